//! What the control process was asked, until it has answered: it is asked again after it was away.
//!
//! Invariants:
//! 1. Questions reach it in the order of their numbers, also when they are asked again. By this it knows what it has done.
//! 2. Each question is answered: if the control process does not answer for longer than [`QUESTION_PATIENCE_MICROSECONDS`],
//!    with a failure.
//! 3. Fewer than [`UNDERWAY_MAX`] numbers are between the oldest question without an answer and the latest that was sent.
//!    So the control process remembers what it has answered to each, and a link has room for all, and for all answers.

use super::{ControlClient, ControlClientEffect};
use crate::machine::node::NodeInput;
use crate::{Effects, LinkId, Time};
use aktis_protocol::control::RequestId;
use aktis_protocol::limits::BATCHES_UNANSWERED_MAX;
use aktis_protocol::member::{Question, Reply, ToControl};
use aktis_protocol::tables::Answer;
use aktis_protocol::{Failure, FailureKind, ObjectId, ProcessSlot};
use std::collections::BTreeMap;

/// How long a question waits for the control process.
pub const QUESTION_PATIENCE_MICROSECONDS: u64 = 60_000_000;
/// Questions that wait; another one is refused.
pub(super) const QUESTIONS_MAX: usize = 100_000;
/// Questions that are under way: as many values as a link holds half of.
const UNDERWAY_MAX: u64 = 512;

const _: () = assert!(UNDERWAY_MAX < BATCHES_UNANSWERED_MAX);

/// Which process asked, and what about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    about: AskedFor,
    pub(super) to: ProcessSlot,
    pub(super) request: RequestId,
}

/// What a question is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum AskedFor {
    /// An actor with a name. If its node is out of reach, it is asked for again until then.
    Name(Time),
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
    /// A question of a thread of this process.
    Thread(u64),
}

impl Asker {
    pub(super) fn new(about: AskedFor, to: ProcessSlot, request: RequestId) -> Self {
        Self { about, to, request }
    }

    /// Whether what is out of reach is to be asked for again.
    pub(super) fn is_patient(&self, now: Time) -> bool {
        matches!(self.about, AskedFor::Name(until) if now < until)
    }

    /// A question that no process has asked.
    pub(super) fn of(about: AskedFor) -> Self {
        Self { about, to: ProcessSlot::default(), request: 0 }
    }
}

#[derive(Debug)]
struct Asked {
    asker: Asker,
    question: Question,
    since: Time,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Questions {
    by_number: BTreeMap<u64, Asked>,
    last: u64,
    /// Whether the control process is there.
    is_open: bool,
    /// The latest that was sent since then.
    sent: u64,
}

impl Questions {
    /// Adds a question; false if there are too many.
    fn add(&mut self, now: Time, asker: Asker, question: Question) -> bool {
        if self.by_number.len() >= QUESTIONS_MAX {
            return false;
        }
        self.last += 1;
        self.by_number.insert(self.last, Asked { asker, question, since: now });
        true
    }

    /// Sends what may be under way, in order.
    fn send(&mut self, link: LinkId, out: &mut Effects<ControlClientEffect>) {
        let Some((&oldest, _)) = self.by_number.first_key_value().filter(|_| self.is_open) else { return };
        for (&number, asked) in self.by_number.range(self.sent + 1..) {
            if number >= oldest + UNDERWAY_MAX {
                return;
            }
            let message = ToControl::Asked { number, question: asked.question.clone() };
            out.push(ControlClientEffect::Send { link, message });
            self.sent = number;
        }
    }

    /// The control process is there, and may not have heard anything.
    pub(super) fn open(&mut self) {
        (self.is_open, self.sent) = (true, 0);
    }

    /// The control process is away: a question waits for its turn.
    pub(super) fn close(&mut self) {
        self.is_open = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// Takes out those that have waited for too long.
    fn take_old(&mut self, now: Time) -> Vec<Asker> {
        let mut old = Vec::new();
        while let Some(first) = self.by_number.first_entry()
            && now.0.saturating_sub(first.get().since.0) > QUESTION_PATIENCE_MICROSECONDS
        {
            old.push(first.remove().asker);
        }
        old
    }

    pub(super) fn check(&self, is_member: bool) {
        assert_eq!(self.is_open, is_member, "questions are asked of a control process that is there");
        assert!(self.by_number.len() <= QUESTIONS_MAX && self.sent <= self.last);
        assert!(self.by_number.last_key_value().is_none_or(|(number, _)| *number <= self.last));
        if let Some((oldest, _)) = self.by_number.first_key_value().filter(|_| self.is_open) {
            let limit = oldest + UNDERWAY_MAX;
            assert!(self.sent < limit, "questions invariant 3");
            let next = self.by_number.range(self.sent + 1..).next();
            assert!(next.is_none_or(|(number, _)| *number >= limit), "a question that may be sent is sent");
        }
    }
}

impl ControlClient {
    pub(super) fn ask(
        &mut self,
        now: Time,
        asker: Asker,
        question: Question,
        out: &mut Effects<ControlClientEffect>,
    ) {
        if !self.questions.add(now, asker, question) {
            let why = "too many questions to the control process wait for an answer";
            return self.refuse(now, &asker, why, out);
        }
        self.send_questions(out);
    }

    pub(super) fn send_questions(&mut self, out: &mut Effects<ControlClientEffect>) {
        if let Some(link) = self.membership.member_link() {
            self.questions.send(link, out);
        }
    }

    pub(super) fn on_answered(
        &mut self,
        now: Time,
        number: u64,
        reply: Reply,
        out: &mut Effects<ControlClientEffect>,
    ) {
        let answered = self.questions.by_number.remove(&number);
        self.send_questions(out);
        let Some(Asked { asker, question, .. }) = answered else { return };
        match reply {
            Reply::NameFound(found) => self.on_name_found(now, asker, Some(question), found, out),
            Reply::Names(names) => self.on_names(&asker, names, out),
            Reply::Key(answer) => {
                let Asker { to, request, .. } = asker;
                out.push(ControlClientEffect::ToNode(NodeInput::KeyAnswered { to, request, answer }));
            }
            Reply::Table(answer) => self.on_table(now, &asker, Some(answer), out),
        }
    }

    /// The tables have answered, or will not.
    fn on_table(
        &mut self,
        now: Time,
        asker: &Asker,
        answer: Option<Answer>,
        out: &mut Effects<ControlClientEffect>,
    ) {
        match asker.about {
            AskedFor::Changes => self.on_changed(now, answer.is_some(), out),
            AskedFor::Record(object) => self.on_record(now, object, answer, out),
            AskedFor::Copies(object) => self.on_copies(object, answer, out),
            AskedFor::Thread(asker) => out.push(ControlClientEffect::Answer { asker, answer }),
            AskedFor::Name(_) | AskedFor::Names | AskedFor::Key => {}
        }
    }

    /// Answers the questions that have waited for too long.
    pub(super) fn give_up_waiting(&mut self, now: Time, out: &mut Effects<ControlClientEffect>) {
        let old = self.questions.take_old(now);
        self.send_questions(out);
        for asker in old {
            let seconds = QUESTION_PATIENCE_MICROSECONDS / 1_000_000;
            let why = format!("the control process has not answered for {seconds} s");
            self.refuse(now, &asker, &why, out);
        }
    }

    fn refuse(&mut self, now: Time, asker: &Asker, why: &str, out: &mut Effects<ControlClientEffect>) {
        let Asker { about, to, request } = *asker;
        match about {
            AskedFor::Name(_) => self.on_name_found(now, *asker, None, None, out),
            AskedFor::Names => self.on_names(asker, Vec::new(), out),
            AskedFor::Key => {
                let hint =
                    "hint: `aktis status` says whether it is down; `aktis start --head` starts it again";
                let answer = Err(Failure::new(FailureKind::Refused, format!("{why}\n{hint}")));
                out.push(ControlClientEffect::ToNode(NodeInput::KeyAnswered { to, request, answer }));
            }
            AskedFor::Changes | AskedFor::Record(_) | AskedFor::Copies(_) | AskedFor::Thread(_) => {
                self.on_table(now, asker, None, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(questions: &mut Questions, now: Time) -> bool {
        let asker = Asker::new(AskedFor::Names, ProcessSlot(1), 1);
        questions.add(now, asker, Question::Names)
    }

    fn sent(questions: &mut Questions) -> Vec<u64> {
        let mut out = Vec::new();
        questions.send(LinkId(1), &mut out);
        let number = |effect| match effect {
            ControlClientEffect::Send { message: ToControl::Asked { number, .. }, .. } => number,
            effect => panic!("{effect:?}"),
        };
        out.into_iter().map(number).collect()
    }

    #[test]
    fn few_are_under_way_and_they_keep_their_order() {
        let (mut questions, now) = (Questions::default(), Time(0));
        let count = 2 * UNDERWAY_MAX;
        for _ in 0..count {
            ask(&mut questions, now);
        }
        assert!(sent(&mut questions).is_empty(), "the control process is away");
        questions.open();
        assert_eq!(sent(&mut questions), Vec::from_iter(1..=UNDERWAY_MAX));
        questions.by_number.remove(&2);
        assert!(sent(&mut questions).is_empty(), "the oldest has no answer");
        questions.by_number.remove(&1);
        assert_eq!(sent(&mut questions), [UNDERWAY_MAX + 1, UNDERWAY_MAX + 2]);
        // Another life of the control process.
        questions.open();
        assert_eq!(sent(&mut questions), Vec::from_iter(3..=UNDERWAY_MAX + 2));
        questions.by_number.clear();
        assert!(ask(&mut questions, now));
        assert_eq!(sent(&mut questions), [count + 1]);
        questions.check(true);
    }

    #[test]
    fn waiting_and_asking_are_bounded() {
        let (mut questions, now) = (Questions::default(), Time(0));
        while ask(&mut questions, now) {}
        assert_eq!(questions.by_number.len(), QUESTIONS_MAX);
        assert!(questions.take_old(Time(QUESTION_PATIENCE_MICROSECONDS)).is_empty());
        assert_eq!(questions.take_old(Time(2 * QUESTION_PATIENCE_MICROSECONDS)).len(), QUESTIONS_MAX);
    }
}
