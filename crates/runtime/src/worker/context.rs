//! What a thread knows about the task or call that it is running.

use crate::error::Error;
use crate::objects::Pinned;
use crate::runtime::{Context, Inner};
use crate::worker::executor::Executor;
use aktis_protocol::{ActorId, TaskId};
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The task that the thread is running.
pub(crate) struct TaskContext {
    runtime: *const Inner,
    pub(crate) task: TaskId,
    pub(crate) function: &'static str,
    /// What people call it, if not by the function's name.
    name: Option<Arc<str>>,
    pub(crate) actor: Option<ActorId>,
    pub(crate) attempt: u32,
    pub(crate) gpus: Arc<[u32]>,
    pub(crate) cancelled: Arc<AtomicBool>,
    children: u64,
    pinned: Vec<Arc<Pinned>>,
    exits: bool,
    /// Whether the call asked for a checkpoint of its actor.
    saves: bool,
}

/// A task, and the number of the last thing that it has submitted.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    pub(crate) task: TaskId,
    pub(crate) children: u64,
}

thread_local! {
    static CURRENT: RefCell<Option<TaskContext>> = const { RefCell::new(None) };
    /// How much the task that ended last on this thread has submitted.
    static LAST_CHILDREN: Cell<u64> = const { Cell::new(0) };
    static SUBMISSIONS: Cell<u32> = const { Cell::new(0) };
}

/// The task that threads work for which user code has started, and how much they have submitted for it. In an actor that runs
/// several calls at a time, that is the task that has created it.
static OWNER: Mutex<Option<Family>> = Mutex::new(None);

/// What the threads of a task submit has numbers of its own.
const THREADS_CHILDREN: u64 = 1 << 63;
/// The numbers of a task's children begin anew, this far on, at each attempt.
const ATTEMPT_SHIFT: u32 = 40;
/// Completions are taken in once every so many submissions of a thread.
const TEND_EVERY: u32 = 32;

impl TaskContext {
    pub(crate) fn new(
        runtime: &Arc<Inner>,
        task: TaskId,
        function: &'static str,
        actor: Option<ActorId>,
        attempt: u32,
        gpus: Arc<[u32]>,
        cancelled: Arc<AtomicBool>,
    ) -> Self {
        let runtime = Arc::as_ptr(runtime);
        // Another attempt may make other things: they must not have the ids of those that the first one made.
        let children = u64::from(attempt) << ATTEMPT_SHIFT;
        let (name, pinned, exits, saves) = (None, Vec::new(), false, false);
        Self {
            runtime,
            task,
            function,
            name,
            actor,
            attempt,
            gpus,
            cancelled,
            children,
            pinned,
            exits,
            saves,
        }
    }

    /// Makes this the context of the thread; gives what was there before.
    pub(crate) fn enter(self, executor: Option<&Executor>) -> Option<Self> {
        let creates = self.actor.is_some_and(|actor| actor.to_words() == self.task.to_words());
        if executor
            .is_some_and(|executor| executor.runs_one_call_at_a_time() || creates && !executor.hosts_actors())
        {
            self.own_threads();
        }
        CURRENT.replace(Some(self))
    }

    /// From now on threads without a context work for this task.
    fn own_threads(&self) {
        let mut owner = OWNER.lock();
        if owner.is_none_or(|owner| owner.task != self.task) {
            let children = THREADS_CHILDREN | u64::from(self.attempt) << ATTEMPT_SHIFT;
            *owner = Some(Family { task: self.task, children });
        }
    }

    /// The next task that a thread submits which user code has started in a worker.
    pub(crate) fn next_child_of_threads() -> Option<TaskId> {
        let mut owner = OWNER.lock();
        let family = owner.as_mut()?;
        family.children += 1;
        Some(family.task.child(family.children))
    }

    /// Ends what `enter` began; gives the context back.
    pub(crate) fn leave(before: Option<Self>) -> Option<Self> {
        CURRENT.replace(before)
    }

    /// Keeps stored arguments that user code still refers to. True if the actor asked to exit.
    pub(crate) fn finish(self, runtime: &Arc<Inner>) -> bool {
        LAST_CHILDREN.set(self.children);
        for pinned in &self.pinned {
            if Arc::strong_count(pinned) > 1 {
                pinned.keep(runtime);
            }
        }
        self.exits
    }

    /// The call that the thread is running wants a checkpoint of its actor when it is over.
    pub(crate) fn save_actor() {
        CURRENT.with_borrow_mut(|current| {
            if let Some(context) = current {
                context.saves = true;
            }
        });
    }

    /// The actor that the thread is running a call of.
    pub(crate) fn current_actor() -> Option<ActorId> {
        CURRENT.with_borrow(|current| current.as_ref().and_then(|context| context.actor))
    }

    /// Whether a replay of the call that the thread is running would not do the same: the call was cancelled, has submitted
    /// something, or has asked for a checkpoint.
    pub(crate) fn needs_checkpoint() -> bool {
        CURRENT.with_borrow(|current| {
            let submitted = |children: u64| children & ((1 << ATTEMPT_SHIFT) - 1) > 0;
            current.as_ref().is_some_and(|context| {
                context.saves || submitted(context.children) || context.cancelled.load(Ordering::Relaxed)
            })
        })
    }

    /// The task that the thread is running has submitted so much before.
    pub(crate) fn set_children(count: u64) {
        CURRENT.with_borrow_mut(|current| {
            if let Some(context) = current {
                context.children = count;
            }
        });
    }

    /// The number of the last thing that the task which ended last on this thread has submitted.
    pub(crate) fn last_children() -> u64 {
        LAST_CHILDREN.get()
    }

    /// The numbers of all that a task has submitted in the attempt in which this was the last one.
    pub(crate) fn numbers_up_to(last: u64) -> std::ops::RangeInclusive<u64> {
        (last >> ATTEMPT_SHIFT << ATTEMPT_SHIFT) + 1..=last
    }

    /// The task that the thread is running, and what it has submitted so far.
    pub(crate) fn family() -> Option<Family> {
        CURRENT.with_borrow(|current| {
            current.as_ref().map(|context| Family { task: context.task, children: context.children })
        })
    }

    pub(crate) fn next_child(runtime: &Inner) -> Option<TaskId> {
        CURRENT.with_borrow_mut(|current| {
            let context = current.as_mut().filter(|context| std::ptr::eq(context.runtime, runtime))?;
            context.children += 1;
            Some(context.task.child(context.children))
        })
    }

    /// The task that the thread is running.
    pub(crate) fn current_task(runtime: &Inner) -> Option<TaskId> {
        CURRENT.with_borrow(|current| {
            let context = current.as_ref().filter(|context| std::ptr::eq(context.runtime, runtime))?;
            Some(context.task)
        })
    }

    /// What people call the task that the thread is running.
    pub(crate) fn set_name(name: &Arc<str>) {
        CURRENT.with_borrow_mut(|current| {
            if let Some(context) = current {
                context.name = Some(name.clone());
            }
        });
    }

    /// Whether the thread is running this task.
    pub(crate) fn is_task(task: TaskId) -> bool {
        CURRENT.with_borrow(|current| current.as_ref().is_some_and(|context| context.task == task))
    }

    pub(crate) fn is_cancelled() -> bool {
        CURRENT.with_borrow(|current| {
            current.as_ref().is_some_and(|context| context.cancelled.load(Ordering::Relaxed))
        })
    }

    pub(crate) fn add_pinned(pinned: &Arc<Pinned>) {
        CURRENT.with_borrow_mut(|current| {
            if let Some(context) = current {
                context.pinned.push(pinned.clone());
            }
        });
    }

    pub(crate) fn exit_actor() -> Result<(), Error> {
        CURRENT.with_borrow_mut(|current| match current {
            Some(context) if context.actor.is_some() => {
                context.exits = true;
                Ok(())
            }
            _ => Err(Error::Invalid("exit_actor() was called outside an actor".to_owned())),
        })
    }

    pub(crate) fn describe(runtime: &Inner) -> Context {
        CURRENT.with_borrow(|current| match current {
            Some(context) if std::ptr::eq(context.runtime, runtime) => Context {
                task: context.task,
                function: context.name.clone().unwrap_or_else(|| context.function.into()),
                actor: context.actor,
                attempt: context.attempt,
                gpus: context.gpus.to_vec(),
                pid: runtime.control.pid(runtime.me),
                is_worker: true,
            },
            _ => Context {
                task: runtime.root(),
                function: "".into(),
                actor: None,
                attempt: 0,
                gpus: Vec::new(),
                pid: runtime.control.pid(runtime.me),
                is_worker: runtime.executor.is_some(),
            },
        })
    }

    /// Counts a submission of this thread. Now and then, completions are to be taken in, and the number of
    /// unfinished tasks (which `unfinished` gives) is looked at.
    pub(crate) fn count_submission(unfinished: impl FnOnce() -> usize) -> (bool, Option<usize>) {
        let count = SUBMISSIONS.get().wrapping_add(1);
        SUBMISSIONS.set(count);
        match count % TEND_EVERY {
            0 => (true, Some(unfinished())),
            _ => (false, None),
        }
    }
}
