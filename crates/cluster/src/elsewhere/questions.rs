//! What the control process was asked, until it has answered: it is asked again when it was away.
//!
//! Invariants:
//! 1. Questions reach it in the order of their numbers, also when they are asked again. By this it knows what it has done.
//! 2. Everybody who asks is answered: if the control process does not answer for longer than [`PATIENCE`], with a failure.
//! 3. Fewer than [`UNDERWAY_MAX`] numbers are between the oldest question without an answer and the latest that was sent.
//!    So the control process remembers what it has answered to each, and a link has room for all, and for all answers.

use super::Elsewhere;
use aktis_logic::machine::node::NodeInput;
use aktis_protocol::control::RequestId;
use aktis_protocol::limits::BATCHES_UNANSWERED_MAX;
use aktis_protocol::member::{Question, Reply, ToControl};
use aktis_protocol::tables::Answer;
use aktis_protocol::{Failure, FailureKind, ObjectId, ProcessSlot};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long somebody waits for the control process.
const PATIENCE: Duration = Duration::from_secs(60);
/// Questions that wait; who asks one more is refused.
const QUESTIONS_MAX: usize = 100_000;
/// Questions that are under way: as many values as a link holds half of.
const UNDERWAY_MAX: u64 = 512;

const _: () = assert!(UNDERWAY_MAX < BATCHES_UNANSWERED_MAX);

/// Who asked, and what about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    about: AskedFor,
    pub(super) to: ProcessSlot,
    pub(super) request: RequestId,
}

/// What a question of a process is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum AskedFor {
    /// An actor with a name. If its node is out of reach, it is asked for again until then.
    Name(Instant),
    /// All names.
    Names,
    /// A small value.
    Key,
    /// Changes that nobody waits for.
    Changes,
    /// How the task of an object can be run again.
    Record(ObjectId),
    /// Where the copies of an object are.
    Copies(ObjectId),
    /// Somebody in this process who waits.
    Somebody(u64),
}

impl Asker {
    pub(super) fn new(about: AskedFor, to: ProcessSlot, request: RequestId) -> Self {
        Self { about, to, request }
    }

    /// Whether what is out of reach is to be asked for again.
    pub(super) fn is_patient(&self, now: Instant) -> bool {
        matches!(self.about, AskedFor::Name(until) if now < until)
    }

    /// A question that no process has asked.
    pub(super) fn of(about: AskedFor) -> Self {
        Self { about, to: ProcessSlot::default(), request: 0 }
    }
}

struct Asked {
    asker: Asker,
    question: Question,
    since: Instant,
}

/// See the module.
#[derive(Default)]
pub(super) struct Questions {
    asked: BTreeMap<u64, Asked>,
    last: u64,
    /// Whether the control process is there.
    is_open: bool,
    /// The latest that it was sent since it is there.
    sent: u64,
}

impl Questions {
    /// Adds a question; nothing if there are too many.
    fn add(&mut self, asker: Asker, question: Question, now: Instant) -> Option<u64> {
        if self.asked.len() >= QUESTIONS_MAX {
            return None;
        }
        self.last += 1;
        self.asked.insert(self.last, Asked { asker, question, since: now });
        Some(self.last)
    }

    /// Sends what may be under way, in order. `say` gives whether the control process is told.
    fn send(&mut self, mut say: impl FnMut(&ToControl) -> bool) {
        let Some((&oldest, _)) = self.asked.first_key_value().filter(|_| self.is_open) else { return };
        for (&number, asked) in self.asked.range(self.sent + 1..) {
            if number >= oldest + UNDERWAY_MAX
                || !say(&ToControl::Asked { number, question: asked.question.clone() })
            {
                return;
            }
            self.sent = number;
        }
    }

    /// The control process is there, and may not have heard anything.
    fn open(&mut self) {
        (self.is_open, self.sent) = (true, 0);
    }

    /// Takes out those who have waited for too long.
    fn take_old(&mut self, now: Instant) -> Vec<Asker> {
        let mut old = Vec::new();
        while let Some(first) = self.asked.first_entry()
            && now.saturating_duration_since(first.get().since) > PATIENCE
        {
            old.push(first.remove().asker);
        }
        old
    }
}

impl Elsewhere {
    pub(super) fn ask_control(&self, asker: Asker, question: Question) {
        let mut questions = self.questions.lock();
        if questions.add(asker, question, Instant::now()).is_none() {
            drop(questions);
            return self.refuse(&asker, "too many questions to the control process wait for an answer");
        }
        // Under the lock: they must be sent in their order.
        questions.send(|message| self.say(message));
    }

    /// The control process is away: what is asked now waits for its turn.
    pub(super) fn stop_asking(&self) {
        self.questions.lock().is_open = false;
    }

    /// The control process is back.
    pub(super) fn ask_again(&self) {
        let mut questions = self.questions.lock();
        questions.open();
        questions.send(|message| self.say(message));
    }

    pub(crate) fn on_answered(&self, number: u64, reply: Reply) {
        let mut questions = self.questions.lock();
        let answered = questions.asked.remove(&number);
        questions.send(|message| self.say(message));
        drop(questions);
        let Some(Asked { asker, question, .. }) = answered else { return };
        match reply {
            Reply::NameFound(found) => self.on_name_found(asker, Some(question), found),
            Reply::Names(names) => self.on_names(&asker, names),
            Reply::Key(answer) => {
                let Asker { to, request, .. } = asker;
                self.host.feed(NodeInput::KeyAnswered { to, request, answer });
            }
            Reply::Table(answer) => self.on_table(&asker, Some(answer)),
        }
    }

    /// The tables have answered, or will not.
    fn on_table(&self, asker: &Asker, answer: Option<Answer>) {
        match asker.about {
            AskedFor::Changes => self.on_changed(answer.is_some()),
            AskedFor::Record(object) => self.on_record(object, answer),
            AskedFor::Copies(object) => self.on_copies(object, answer),
            AskedFor::Somebody(number) => self.on_told(number, answer),
            AskedFor::Name(_) | AskedFor::Names | AskedFor::Key => {}
        }
    }

    /// Answers those who have waited for too long.
    pub(super) fn give_up_waiting(&self) {
        let mut questions = self.questions.lock();
        let old = questions.take_old(Instant::now());
        questions.send(|message| self.say(message));
        drop(questions);
        for asker in old {
            let seconds = PATIENCE.as_secs();
            self.refuse(&asker, &format!("the control process has not answered for {seconds} s"));
        }
    }

    fn refuse(&self, asker: &Asker, why: &str) {
        let Asker { about, to, request } = *asker;
        match about {
            AskedFor::Name(_) => self.on_name_found(*asker, None, None),
            AskedFor::Names => self.on_names(asker, Vec::new()),
            AskedFor::Key => {
                let hint =
                    "hint: `aktis status` says whether it is down; `aktis start --head` starts it again";
                let answer = Err(Failure::new(FailureKind::Refused, format!("{why}\n{hint}")));
                self.host.feed(NodeInput::KeyAnswered { to, request, answer });
            }
            AskedFor::Changes | AskedFor::Record(_) | AskedFor::Copies(_) | AskedFor::Somebody(_) => {
                self.on_table(asker, None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(questions: &mut Questions, now: Instant) -> Option<u64> {
        let asker = Asker::new(AskedFor::Names, ProcessSlot(1), 1);
        questions.add(asker, Question::Names, now)
    }

    fn sent(questions: &mut Questions) -> Vec<u64> {
        let mut numbers = Vec::new();
        questions.send(|message| {
            let ToControl::Asked { number, .. } = message else { panic!("{message:?}") };
            numbers.push(*number);
            true
        });
        numbers
    }

    #[test]
    fn few_are_under_way_and_they_keep_their_order() {
        let (mut questions, now) = (Questions::default(), Instant::now());
        let count = 2 * UNDERWAY_MAX;
        for _ in 0..count {
            ask(&mut questions, now);
        }
        assert!(sent(&mut questions).is_empty(), "nobody is there");
        questions.open();
        assert_eq!(sent(&mut questions), Vec::from_iter(1..=UNDERWAY_MAX));
        questions.asked.remove(&2);
        assert!(sent(&mut questions).is_empty(), "the oldest has no answer");
        questions.asked.remove(&1);
        assert_eq!(sent(&mut questions), [UNDERWAY_MAX + 1, UNDERWAY_MAX + 2]);
        // Another life of the control process.
        questions.open();
        assert_eq!(sent(&mut questions), Vec::from_iter(3..=UNDERWAY_MAX + 2));
        questions.asked.clear();
        assert_eq!(ask(&mut questions, now), Some(count + 1));
        assert_eq!(sent(&mut questions), [count + 1]);
    }

    #[test]
    fn what_could_not_be_sent_is_sent_again() {
        let mut questions = Questions::default();
        ask(&mut questions, Instant::now());
        questions.open();
        questions.send(|_| false);
        assert_eq!(sent(&mut questions), [1]);
    }

    #[test]
    fn nobody_waits_for_ever_and_not_all_may_ask() {
        let (mut questions, now) = (Questions::default(), Instant::now());
        while ask(&mut questions, now).is_some() {}
        assert_eq!(questions.asked.len(), QUESTIONS_MAX);
        assert!(questions.take_old(now + PATIENCE).is_empty());
        assert_eq!(questions.take_old(now + 2 * PATIENCE).len(), QUESTIONS_MAX);
    }
}
