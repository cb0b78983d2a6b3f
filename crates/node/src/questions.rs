//! Questions to many at once, such as all processes of a node, and who has not answered yet.
//!
//! Invariant: a question is open until all who were asked have answered or died, or until nobody waits any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Matches answers to questions.
pub type QuestionId = u64;

/// See the module.
pub struct Questions<Who, Answer> {
    next: QuestionId,
    open: BTreeMap<QuestionId, Open<Who, Answer>>,
}

struct Open<Who, Answer> {
    asked: BTreeSet<Who>,
    answers: Sender<(Who, Answer)>,
}

impl<Who, Answer> Default for Questions<Who, Answer> {
    fn default() -> Self {
        Self { next: 0, open: BTreeMap::new() }
    }
}

impl<Who: Ord, Answer> Questions<Who, Answer> {
    /// These are asked something: its number, and where the answers come. They end when all have answered.
    pub fn open(&mut self, asked: BTreeSet<Who>) -> (QuestionId, Receiver<(Who, Answer)>) {
        let (answers, receiver) = channel();
        self.next += 1;
        if !asked.is_empty() {
            self.open.insert(self.next, Open { asked, answers });
        }
        (self.next, receiver)
    }

    /// One has answered.
    pub fn on_answered(&mut self, from: Who, question: QuestionId, answer: Answer) {
        let Some(open) = self.open.get_mut(&question) else { return };
        if open.asked.remove(&from) {
            // Whoever has asked may have gone.
            let _ = open.answers.send((from, answer));
        }
        self.open.retain(|_, open| !open.asked.is_empty());
    }

    /// One will not answer any more.
    pub fn on_died(&mut self, who: &Who) {
        self.open.retain(|_, open| {
            open.asked.remove(who);
            !open.asked.is_empty()
        });
    }

    /// Nobody waits for this any more.
    pub fn close(&mut self, question: QuestionId) {
        self.open.remove(&question);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_end_when_all_have_answered_or_died() {
        let mut questions = Questions::default();
        let (first, answers) = questions.open(BTreeSet::from([1, 2, 3]));
        let (second, others) = questions.open(BTreeSet::from([2]));
        questions.on_answered(1, first, "one");
        questions.on_answered(1, first, "once more");
        questions.on_answered(9, first, "not asked");
        questions.on_died(&2);
        assert!(others.recv().is_err(), "the only one who was asked is dead");
        questions.on_answered(3, first, "three");
        assert_eq!(answers.iter().collect::<Vec<_>>(), [(1, "one"), (3, "three")]);
        assert!(questions.open.is_empty(), "nothing is left of {first} and {second}");
    }

    #[test]
    fn who_does_not_wait_any_more_leaves_nothing_behind() {
        let mut questions = Questions::<u32, ()>::default();
        let (question, answers) = questions.open(BTreeSet::from([1]));
        questions.close(question);
        assert!(answers.recv().is_err() && questions.open.is_empty());
        let (_, answers) = questions.open(BTreeSet::new());
        assert!(answers.recv().is_err() && questions.open.is_empty());
    }
}
