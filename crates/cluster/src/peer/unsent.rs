//! What has to wait, since a local process has no room for it, or for something before it.
//!
//! Each process has a queue of its own: one that does not read keeps nobody else waiting. What the node is told of a task
//! waits in the queue of its submitter. What it is told of an actor waits for those who have yet to read answers of that
//! actor, but not for longer than [`PATIENCE`]: who has not read them by then learns that they are lost.
//!
//! There are at most as many answers as local processes have tasks in lanes and calls in channels.
//!
//! Invariants:
//! 1. Messages to one process, and what the node is told of its tasks, keep their order.
//! 2. What the node is told of one actor keeps its order, and comes after the answers of that actor.
//! 3. Whoever waits for an answer that is given up learns that it is lost.

use aktis_protocol::control::ToNode;
use aktis_protocol::hot::Message;
use aktis_protocol::{ActorId, DeathCause, ProcessSlot, TaskKey};
use aktis_runtime::bridge::Bridge;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// How long others wait for a process that does not read.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// What goes when a message is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// The last answer to a task, which nothing else shows to be on another node any more; how often it was started before.
    Task(TaskKey, u32),
    /// An answer of an actor.
    Actor(ActorId),
    /// Nothing that anybody would wait for, once the node has told of the end of the link.
    Nothing,
}

/// Where messages go.
pub(super) trait Outlet {
    /// Whether the process is alive.
    fn is_alive(&self, process: ProcessSlot) -> bool;

    /// Sends a message to a process; false if there is no room.
    fn push(&self, to: ProcessSlot, message: &Message, payload: &[u8]) -> bool;

    /// Says something to the node.
    fn tell_node(&self, message: ToNode);
}

impl Outlet for Bridge {
    fn is_alive(&self, process: ProcessSlot) -> bool {
        Self::is_alive(self, process)
    }

    fn push(&self, to: ProcessSlot, message: &Message, payload: &[u8]) -> bool {
        Self::push(self, to, message, &[payload])
    }

    fn tell_node(&self, message: ToNode) {
        self.send(message);
    }
}

enum Item {
    Message {
        message: Message,
        payload: Vec<u8>,
        about: About,
    },
    /// What the node is told of a task of this process.
    OfTask(ToNode),
    /// The place of what the node is told of an actor, by its number.
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

/// What the node is to be told of an actor.
struct OfActor {
    actor: ActorId,
    message: ToNode,
    /// How many queues have to get so far.
    marks: usize,
    since: Instant,
}

/// See the module.
#[derive(Default)]
pub(super) struct Unsent {
    queues: HashMap<ProcessSlot, VecDeque<Item>>,
    of_actors: BTreeMap<u64, OfActor>,
    last: u64,
}

impl Unsent {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Sends a message to a local process, after those before it.
    pub(super) fn post(
        &mut self,
        outlet: &impl Outlet,
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
    pub(super) fn tell_of_task(&mut self, outlet: &impl Outlet, submitter: ProcessSlot, message: ToNode) {
        match self.queues.get_mut(&submitter) {
            Some(queue) => queue.push_back(Item::OfTask(message)),
            None => outlet.tell_node(message),
        }
    }

    /// Tells the node of an actor, after all answers of that actor.
    pub(super) fn tell_of_actor(&mut self, outlet: &impl Outlet, actor: ActorId, message: ToNode) {
        let number = self.last + 1;
        let mut marks = 0;
        for queue in self.queues.values_mut() {
            if queue.iter().any(|item| item.is_of(actor)) {
                queue.push_back(Item::Mark(actor, number));
                marks += 1;
            }
        }
        if marks == 0 {
            return outlet.tell_node(message);
        }
        self.last = number;
        self.of_actors.insert(number, OfActor { actor, message, marks, since: Instant::now() });
    }

    /// Sends what there is room for; gives whether there was any.
    pub(super) fn flush(&mut self, outlet: &impl Outlet) -> bool {
        let (mut progress, mut passed) = (false, Vec::new());
        self.queues.retain(|&to, queue| {
            let alive = outlet.is_alive(to);
            while let Some(item) = queue.pop_front() {
                match item {
                    Item::Mark(_, number) => passed.push(number),
                    _ if !alive => {}
                    Item::OfTask(message) => outlet.tell_node(message),
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
        progress | self.give_up_on_actors(outlet, Instant::now())
    }

    /// A process is dead: nobody waits for it.
    pub(super) fn forget(&mut self, outlet: &impl Outlet, process: ProcessSlot) {
        let marks = self.queues.remove(&process).into_iter().flatten();
        for item in marks {
            if let Item::Mark(_, number) = item {
                self.pass(outlet, number);
            }
        }
    }

    /// A queue has got as far as what the node is to be told of an actor.
    fn pass(&mut self, outlet: &impl Outlet, number: u64) {
        let Some(told) = self.of_actors.get_mut(&number) else { return };
        told.marks -= 1;
        if told.marks == 0
            && let Some(told) = self.of_actors.remove(&number)
        {
            outlet.tell_node(told.message);
        }
    }

    /// Tells the node what it was not told for too long. The answers that were not read go: with what the node says of the
    /// actor, those who wait for them learn what becomes of their calls. That it takes calls says nothing about those, and
    /// takes nothing away.
    fn give_up_on_actors(&mut self, outlet: &impl Outlet, now: Instant) -> bool {
        let mut progress = false;
        while let Some((&number, told)) = self.of_actors.first_key_value()
            && now.saturating_duration_since(told.since) >= PATIENCE
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
            told.into_iter().for_each(|told| outlet.tell_node(told.message));
            progress = true;
        }
        progress
    }

    /// Nobody waits any longer: tells the node all that it was to be told, and which tasks have lost their answers.
    pub(super) fn end(&mut self, outlet: &impl Outlet, cause: &DeathCause) {
        for (submitter, queue) in std::mem::take(&mut self.queues) {
            for item in queue {
                match item {
                    Item::Message { about: About::Task(key, attempt), .. } => {
                        let cause = Some(cause.clone());
                        outlet.tell_node(ToNode::TaskLost { submitter, key, attempt, cause });
                    }
                    Item::OfTask(message) => outlet.tell_node(message),
                    Item::Message { .. } | Item::Mark(..) => {}
                }
            }
        }
        for told in std::mem::take(&mut self.of_actors).into_values() {
            outlet.tell_node(told.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::{SessionId, TaskId};
    use std::cell::RefCell;
    use std::collections::HashSet;

    /// Processes that read or do not, and a node that writes down what it is told.
    #[derive(Default)]
    struct Recorder {
        full: RefCell<HashSet<ProcessSlot>>,
        dead: RefCell<HashSet<ProcessSlot>>,
        heard: RefCell<Vec<String>>,
    }

    impl Recorder {
        fn heard(&self) -> Vec<String> {
            std::mem::take(&mut self.heard.borrow_mut())
        }
    }

    impl Outlet for Recorder {
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

        fn tell_node(&self, message: ToNode) {
            let text = match message {
                ToNode::TaskLost { submitter, key, attempt, .. } => {
                    format!("lost {} of {}, attempt {attempt}", key.index, submitter.0)
                }
                ToNode::ActorAway { reason, .. } => format!("away: {reason}"),
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
        ToNode::ActorAway { actor: actor(number), reason: number.to_string() }
    }

    fn cause() -> DeathCause {
        DeathCause::default()
    }

    fn lost(submitter: ProcessSlot, index: u32) -> ToNode {
        ToNode::TaskLost { submitter, key: key(index), attempt: 0, cause: Some(cause()) }
    }

    #[test]
    fn one_that_does_not_read_keeps_nobody_else_waiting() {
        let (outlet, mut unsent) = (Recorder::default(), Unsent::default());
        outlet.full.borrow_mut().insert(SLOW);
        unsent.post(&outlet, SLOW, message(1), Vec::new(), About::Task(key(1), 0));
        unsent.post(&outlet, SLOW, message(2), Vec::new(), About::Actor(actor(1)));
        unsent.post(&outlet, QUICK, message(3), Vec::new(), About::Nothing);
        unsent.tell_of_task(&outlet, QUICK, lost(QUICK, 4));
        unsent.tell_of_actor(&outlet, actor(2), away(2));
        assert_eq!(outlet.heard(), ["2 got 3", "lost 4 of 2, attempt 0", "away: 2"]);
        unsent.tell_of_task(&outlet, SLOW, lost(SLOW, 5));
        unsent.tell_of_actor(&outlet, actor(1), away(1));
        unsent.tell_of_actor(&outlet, actor(1), ToNode::ActorBack { actor: actor(1) });
        assert!(!unsent.flush(&outlet) && outlet.heard().is_empty(), "they come after the answers");
        outlet.full.borrow_mut().clear();
        assert!(unsent.flush(&outlet) && unsent.is_empty());
        let heard = outlet.heard();
        assert_eq!(heard, ["1 got 1", "1 got 2", "lost 5 of 1, attempt 0", "away: 1", "back"]);
    }

    #[test]
    fn answers_that_are_given_up_are_told_to_be_lost() {
        let (outlet, mut unsent) = (Recorder::default(), Unsent::default());
        outlet.full.borrow_mut().insert(SLOW);
        unsent.post(&outlet, SLOW, message(1), Vec::new(), About::Task(key(1), 2));
        unsent.post(&outlet, SLOW, message(2), Vec::new(), About::Actor(actor(1)));
        unsent.post(&outlet, SLOW, message(3), Vec::new(), About::Nothing);
        unsent.tell_of_actor(&outlet, actor(1), away(1));
        unsent.tell_of_task(&outlet, SLOW, lost(SLOW, 4));
        unsent.end(&outlet, &cause());
        assert_eq!(outlet.heard(), ["lost 1 of 1, attempt 2", "lost 4 of 1, attempt 0", "away: 1"]);
        assert!(unsent.is_empty());
    }

    #[test]
    fn the_node_hears_of_an_actor_though_a_caller_does_not_read() {
        let (outlet, mut unsent) = (Recorder::default(), Unsent::default());
        outlet.full.borrow_mut().insert(SLOW);
        unsent.post(&outlet, SLOW, message(1), Vec::new(), About::Actor(actor(1)));
        unsent.post(&outlet, SLOW, message(2), Vec::new(), About::Task(key(2), 0));
        unsent.tell_of_actor(&outlet, actor(1), away(1));
        unsent.post(&outlet, SLOW, message(3), Vec::new(), About::Actor(actor(1)));
        assert!(unsent.give_up_on_actors(&outlet, Instant::now() + PATIENCE));
        assert_eq!(outlet.heard(), ["away: 1"]);
        outlet.full.borrow_mut().clear();
        unsent.flush(&outlet);
        assert_eq!(outlet.heard(), ["1 got 2", "1 got 3"], "the answer of the life before is gone");
    }

    #[test]
    fn an_actor_that_takes_calls_has_taken_no_answer_back() {
        let (outlet, mut unsent) = (Recorder::default(), Unsent::default());
        outlet.full.borrow_mut().insert(SLOW);
        unsent.post(&outlet, SLOW, message(1), Vec::new(), About::Actor(actor(1)));
        unsent.tell_of_actor(&outlet, actor(1), ToNode::ActorBack { actor: actor(1) });
        assert!(unsent.give_up_on_actors(&outlet, Instant::now() + PATIENCE));
        assert_eq!(outlet.heard(), ["back"]);
        outlet.full.borrow_mut().clear();
        unsent.flush(&outlet);
        assert_eq!(outlet.heard(), ["1 got 1"]);
    }

    #[test]
    fn the_dead_are_not_waited_for() {
        let (outlet, mut unsent) = (Recorder::default(), Unsent::default());
        outlet.full.borrow_mut().extend([SLOW, QUICK]);
        for process in [SLOW, QUICK] {
            unsent.post(&outlet, process, message(1), Vec::new(), About::Actor(actor(1)));
        }
        unsent.tell_of_actor(&outlet, actor(1), away(1));
        unsent.forget(&outlet, SLOW);
        assert!(outlet.heard().is_empty());
        outlet.dead.borrow_mut().insert(QUICK);
        assert!(unsent.flush(&outlet) && unsent.is_empty());
        assert_eq!(outlet.heard(), ["away: 1"]);
    }
}
