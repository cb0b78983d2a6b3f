//! Messages that wait, since a local process has no room for them, or for a message before them.
//!
//! Each process has a queue of its own: a process that does not read keeps no other waiting. A message to the node about
//! a task waits in the queue of the task's submitter. A message to the node about an actor waits for the processes that have
//! yet to read answers of that actor, but not for longer than [`BACKLOG_MICROSECONDS_MAX`]: a process that has not read them
//! by then learns that they are lost.
//!
//! There are at most as many answers as local processes have tasks in lanes and calls in channels.
//!
//! Invariants:
//! 1. Messages to one process, and messages to the node about its tasks, keep their order.
//! 2. Messages to the node about one actor keep their order, and come after the answers of that actor.
//! 3. A process that waits for an answer which is given up learns that it is lost.

use super::local_node::LocalProcesses;
use crate::Time;
use aktis_protocol::control::ToNode;
use aktis_protocol::hot::Message;
use aktis_protocol::{ActorId, DeathCause, ProcessSlot, TaskKey};
use std::collections::BTreeMap;
use std::collections::VecDeque;

/// How long others wait for a process that does not read, in microseconds.
pub const BACKLOG_MICROSECONDS_MAX: u64 = 1_000_000;

/// What is lost when a message is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// The last answer to a task, which nothing else shows to be on another node any more; how often it was started before.
    Task(TaskKey, u32),
    /// An answer of an actor.
    Actor(ActorId),
    /// Nothing that a process would wait for, once the node has told it of the end of the link.
    Nothing,
}

#[derive(Debug)]
enum Item {
    Message {
        message: Message,
        payload: Vec<u8>,
        about: About,
    },
    /// A message to the node about a task of this process.
    OfTask(ToNode),
    /// The place of a message to the node about an actor, by its number.
    Mark(ActorId, u64),
}

impl Item {
    fn is_of(&self, actor: ActorId) -> bool {
        match self {
            Self::Message { about, .. } => *about == About::Actor(actor),
            Self::Mark(marked, _) => *marked == actor,
            Self::OfTask(_) => false,
        }
    }
}

/// A message to the node about an actor.
#[derive(Debug)]
struct OfActor {
    actor: ActorId,
    message: ToNode,
    /// How many queues have to get so far.
    marks: usize,
    since: Time,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    queues: BTreeMap<ProcessSlot, VecDeque<Item>>,
    of_actors: BTreeMap<u64, OfActor>,
    last: u64,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// How many processes have no room.
    pub(super) fn processes(&self) -> usize {
        self.queues.len()
    }

    /// When the oldest message about an actor has waited for too long.
    pub(super) fn next_wakeup(&self) -> Option<Time> {
        let (_, oldest) = self.of_actors.first_key_value()?;
        Some(Time(oldest.since.0 + BACKLOG_MICROSECONDS_MAX))
    }

    /// Panics if an invariant is broken.
    pub(super) fn check(&self) {
        for (number, told) in &self.of_actors {
            let is_mark = |item: &Item| matches!(item, Item::Mark(_, mark) if mark == number);
            let marks = self.queues.values().filter(|queue| queue.iter().any(is_mark)).count();
            assert_eq!(marks, told.marks, "remote node invariant 6: {:?}", told.actor);
        }
        assert!(self.queues.values().all(|queue| !queue.is_empty()), "an empty queue is kept");
    }

    /// Sends a message to a local process, after those before it.
    pub(super) fn post(
        &mut self,
        outlet: &impl LocalProcesses,
        to: ProcessSlot,
        message: Message,
        payload: Vec<u8>,
        about: About,
    ) {
        match self.queues.get_mut(&to) {
            Some(queue) => queue.push_back(Item::Message { message, payload, about }),
            None if outlet.push(to, &message, &payload) => {}
            None => {
                let queue = self.queues.entry(to).or_default();
                queue.push_back(Item::Message { message, payload, about });
            }
        }
    }

    /// Tells the node of a task, after all that was sent to its submitter before.
    pub(super) fn tell_of_task(
        &mut self,
        outlet: &impl LocalProcesses,
        submitter: ProcessSlot,
        message: ToNode,
    ) {
        match self.queues.get_mut(&submitter) {
            Some(queue) => queue.push_back(Item::OfTask(message)),
            None => outlet.tell(message),
        }
    }

    /// Tells the node of an actor, after all answers of that actor.
    pub(super) fn tell_of_actor(
        &mut self,
        outlet: &impl LocalProcesses,
        now: Time,
        actor: ActorId,
        message: ToNode,
    ) {
        let number = self.last + 1;
        let mut marks = 0;
        for queue in self.queues.values_mut() {
            if queue.iter().any(|item| item.is_of(actor)) {
                queue.push_back(Item::Mark(actor, number));
                marks += 1;
            }
        }
        if marks == 0 {
            return outlet.tell(message);
        }
        self.last = number;
        self.of_actors.insert(number, OfActor { actor, message, marks, since: now });
    }

    /// Sends what there is room for; gives whether there was any.
    pub(super) fn flush(&mut self, outlet: &impl LocalProcesses, now: Time) -> bool {
        let (mut progress, mut passed) = (false, Vec::new());
        self.queues.retain(|&to, queue| {
            let alive = outlet.is_alive(to);
            while let Some(item) = queue.pop_front() {
                match item {
                    Item::Mark(_, number) => passed.push(number),
                    _ if !alive => {}
                    Item::OfTask(message) => outlet.tell(message),
                    Item::Message { message, payload, about } => {
                        if !outlet.push(to, &message, &payload) {
                            queue.push_front(Item::Message { message, payload, about });
                            return true;
                        }
                    }
                }
                progress = true;
            }
            false
        });
        passed.into_iter().for_each(|number| self.pass(outlet, number));
        progress | self.give_up_on_actors(outlet, now)
    }

    /// A process is dead: no message waits for it.
    pub(super) fn forget(&mut self, outlet: &impl LocalProcesses, process: ProcessSlot) {
        let marks = self.queues.remove(&process).into_iter().flatten();
        for item in marks {
            if let Item::Mark(_, number) = item {
                self.pass(outlet, number);
            }
        }
    }

    /// A queue has got as far as what the node is to be told of an actor.
    fn pass(&mut self, outlet: &impl LocalProcesses, number: u64) {
        let Some(told) = self.of_actors.get_mut(&number) else { return };
        told.marks -= 1;
        if told.marks == 0
            && let Some(told) = self.of_actors.remove(&number)
        {
            outlet.tell(told.message);
        }
    }

    /// Tells the node what it was not told for too long. The answers that were not read are dropped: with what the node
    /// says of the actor, their receivers learn what becomes of their calls. That the actor takes calls says nothing about
    /// those, and drops nothing.
    fn give_up_on_actors(&mut self, outlet: &impl LocalProcesses, now: Time) -> bool {
        let mut progress = false;
        while let Some((&number, told)) = self.of_actors.first_key_value()
            && now.0.saturating_sub(told.since.0) >= BACKLOG_MICROSECONDS_MAX
        {
            let actor = told.actor;
            let takes_calls = matches!(told.message, ToNode::ActorBack { .. });
            for queue in self.queues.values_mut() {
                let is_mark = |item: &Item| matches!(item, Item::Mark(_, mark) if *mark == number);
                let Some(mark) = queue.iter().position(is_mark) else { continue };
                let behind = queue.split_off(mark + 1);
                queue.pop_back();
                queue.retain(|item| takes_calls || !item.is_of(actor));
                queue.extend(behind);
            }
            self.queues.retain(|_, queue| !queue.is_empty());
            let told = self.of_actors.remove(&number);
            told.into_iter().for_each(|told| outlet.tell(told.message));
            progress = true;
        }
        progress
    }

    /// The link has ended: tells the node all that it was to be told, and which tasks have lost their answers.
    pub(super) fn end(&mut self, outlet: &impl LocalProcesses, cause: &DeathCause) {
        for (submitter, queue) in std::mem::take(&mut self.queues) {
            for item in queue {
                match item {
                    Item::Message { about: About::Task(key, attempt), .. } => {
                        let cause = Some(cause.clone());
                        outlet.tell(ToNode::TaskLost { submitter, key, attempt, cause });
                    }
                    Item::OfTask(message) => outlet.tell(message),
                    Item::Message { .. } | Item::Mark(..) => {}
                }
            }
        }
        for told in std::mem::take(&mut self.of_actors).into_values() {
            outlet.tell(told.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::actors::Away;
    use aktis_protocol::{SessionId, TaskId};
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    /// Processes that read or do not, and a node that writes down what it is told.
    #[derive(Default)]
    struct Recorder {
        full: RefCell<BTreeSet<ProcessSlot>>,
        dead: RefCell<BTreeSet<ProcessSlot>>,
        heard: RefCell<Vec<String>>,
    }

    impl Recorder {
        fn heard(&self) -> Vec<String> {
            std::mem::take(&mut self.heard.borrow_mut())
        }
    }

    impl LocalProcesses for Recorder {
        fn is_alive(&self, process: ProcessSlot) -> bool {
            !self.dead.borrow().contains(&process)
        }

        fn push(&self, to: ProcessSlot, message: &Message, _: &[u8]) -> bool {
            if self.full.borrow().contains(&to) {
                return false;
            }
            self.heard.borrow_mut().push(format!("{} got {}", to.0, message.index));
            true
        }

        fn tell(&self, message: ToNode) {
            let text = match message {
                ToNode::TaskLost { submitter, key, attempt, .. } => {
                    format!("lost {} of {}, attempt {attempt}", key.index, submitter.0)
                }
                ToNode::ActorAway { away, .. } => format!("away: {}", away.reason),
                ToNode::ActorBack { .. } => "back".to_owned(),
                other => panic!("{other:?}"),
            };
            self.heard.borrow_mut().push(text);
        }
    }

    const SLOW: ProcessSlot = ProcessSlot(1);
    const QUICK: ProcessSlot = ProcessSlot(2);

    fn key(index: u32) -> TaskKey {
        TaskKey { index, generation: 0 }
    }

    fn message(index: u32) -> Message {
        Message { kind: 0, form: 0, contains: 0, reserved: 0, index, key: key(index) }
    }

    fn actor(number: u64) -> ActorId {
        ActorId::created_by(TaskId::root(SessionId(1)).child(number))
    }

    fn away(number: u64) -> ToNode {
        let away = Away { reason: number.to_string(), is_moved: false };
        ToNode::ActorAway { actor: actor(number), away }
    }

    fn cause() -> DeathCause {
        DeathCause::default()
    }

    fn lost(submitter: ProcessSlot, index: u32) -> ToNode {
        ToNode::TaskLost { submitter, key: key(index), attempt: 0, cause: Some(cause()) }
    }

    #[test]
    fn one_that_does_not_read_keeps_nobody_else_waiting() {
        let (outlet, mut backlog) = (Recorder::default(), Backlog::default());
        outlet.full.borrow_mut().insert(SLOW);
        backlog.post(&outlet, SLOW, message(1), Vec::new(), About::Task(key(1), 0));
        backlog.post(&outlet, SLOW, message(2), Vec::new(), About::Actor(actor(1)));
        backlog.post(&outlet, QUICK, message(3), Vec::new(), About::Nothing);
        backlog.tell_of_task(&outlet, QUICK, lost(QUICK, 4));
        backlog.tell_of_actor(&outlet, Time(0), actor(2), away(2));
        assert_eq!(outlet.heard(), ["2 got 3", "lost 4 of 2, attempt 0", "away: 2"]);
        backlog.tell_of_task(&outlet, SLOW, lost(SLOW, 5));
        backlog.tell_of_actor(&outlet, Time(0), actor(1), away(1));
        backlog.tell_of_actor(&outlet, Time(0), actor(1), ToNode::ActorBack { actor: actor(1) });
        assert!(!backlog.flush(&outlet, Time(0)) && outlet.heard().is_empty(), "they come after the answers");
        outlet.full.borrow_mut().clear();
        assert!(backlog.flush(&outlet, Time(0)) && backlog.is_empty());
        let heard = outlet.heard();
        assert_eq!(heard, ["1 got 1", "1 got 2", "lost 5 of 1, attempt 0", "away: 1", "back"]);
    }

    #[test]
    fn answers_that_are_given_up_are_told_to_be_lost() {
        let (outlet, mut backlog) = (Recorder::default(), Backlog::default());
        outlet.full.borrow_mut().insert(SLOW);
        backlog.post(&outlet, SLOW, message(1), Vec::new(), About::Task(key(1), 2));
        backlog.post(&outlet, SLOW, message(2), Vec::new(), About::Actor(actor(1)));
        backlog.post(&outlet, SLOW, message(3), Vec::new(), About::Nothing);
        backlog.tell_of_actor(&outlet, Time(0), actor(1), away(1));
        backlog.tell_of_task(&outlet, SLOW, lost(SLOW, 4));
        backlog.end(&outlet, &cause());
        assert_eq!(outlet.heard(), ["lost 1 of 1, attempt 2", "lost 4 of 1, attempt 0", "away: 1"]);
        assert!(backlog.is_empty());
    }

    #[test]
    fn the_node_hears_of_an_actor_though_a_caller_does_not_read() {
        let (outlet, mut backlog) = (Recorder::default(), Backlog::default());
        outlet.full.borrow_mut().insert(SLOW);
        backlog.post(&outlet, SLOW, message(1), Vec::new(), About::Actor(actor(1)));
        backlog.post(&outlet, SLOW, message(2), Vec::new(), About::Task(key(2), 0));
        backlog.tell_of_actor(&outlet, Time(0), actor(1), away(1));
        backlog.post(&outlet, SLOW, message(3), Vec::new(), About::Actor(actor(1)));
        assert!(backlog.give_up_on_actors(&outlet, Time(BACKLOG_MICROSECONDS_MAX)));
        assert_eq!(outlet.heard(), ["away: 1"]);
        outlet.full.borrow_mut().clear();
        backlog.flush(&outlet, Time(0));
        assert_eq!(outlet.heard(), ["1 got 2", "1 got 3"], "the answer of the life before is gone");
    }

    #[test]
    fn an_actor_that_takes_calls_has_taken_no_answer_back() {
        let (outlet, mut backlog) = (Recorder::default(), Backlog::default());
        outlet.full.borrow_mut().insert(SLOW);
        backlog.post(&outlet, SLOW, message(1), Vec::new(), About::Actor(actor(1)));
        backlog.tell_of_actor(&outlet, Time(0), actor(1), ToNode::ActorBack { actor: actor(1) });
        assert!(backlog.give_up_on_actors(&outlet, Time(BACKLOG_MICROSECONDS_MAX)));
        assert_eq!(outlet.heard(), ["back"]);
        outlet.full.borrow_mut().clear();
        backlog.flush(&outlet, Time(0));
        assert_eq!(outlet.heard(), ["1 got 1"]);
    }

    #[test]
    fn the_dead_are_not_waited_for() {
        let (outlet, mut backlog) = (Recorder::default(), Backlog::default());
        outlet.full.borrow_mut().extend([SLOW, QUICK]);
        for process in [SLOW, QUICK] {
            backlog.post(&outlet, process, message(1), Vec::new(), About::Actor(actor(1)));
        }
        backlog.tell_of_actor(&outlet, Time(0), actor(1), away(1));
        backlog.forget(&outlet, SLOW);
        assert!(outlet.heard().is_empty());
        outlet.dead.borrow_mut().insert(QUICK);
        assert!(backlog.flush(&outlet, Time(0)) && backlog.is_empty());
        assert_eq!(outlet.heard(), ["away: 1"]);
    }
}
