//! What the control process was asked, until it has answered: it is asked again when it was away.
//!
//! Invariants:
//! 1. Questions reach it in the order of their numbers, also when they are asked again. By this it knows what it has done.
//! 2. Everybody who asks is answered: if the control process is away for longer than [`PATIENCE`], with a failure.

use super::Elsewhere;
use aktis_logic::machine::node::NodeInput;
use aktis_protocol::control::RequestId;
use aktis_protocol::member::{Question, Reply, ToControl};
use aktis_protocol::{Failure, FailureKind, ProcessSlot};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long somebody waits for a control process that is away.
const PATIENCE: Duration = Duration::from_secs(60);
/// Questions that wait; who asks one more is refused.
const QUESTIONS_MAX: usize = 100_000;

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
    /// An actor with a name.
    Name,
    /// All names.
    Names,
    /// A small value.
    Key,
}

impl Asker {
    pub(super) fn new(about: AskedFor, to: ProcessSlot, request: RequestId) -> Self {
        Self { about, to, request }
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
    /// Whether the control process is there and has been sent all that is asked.
    is_open: bool,
}

impl Elsewhere {
    pub(super) fn ask_control(&self, asker: Asker, question: Question) {
        let mut questions = self.questions.lock();
        if questions.asked.len() >= QUESTIONS_MAX {
            drop(questions);
            return self.refuse(&asker, "too many questions to the control process wait for an answer");
        }
        questions.last += 1;
        let number = questions.last;
        // Under the lock: they must be sent in their order.
        if questions.is_open {
            self.say(&ToControl::Asked { number, question: question.clone() });
        }
        questions.asked.insert(number, Asked { asker, question, since: Instant::now() });
    }

    /// The control process is away: what is asked now waits for its turn.
    pub(super) fn stop_asking(&self) {
        self.questions.lock().is_open = false;
    }

    /// The control process is back.
    pub(super) fn ask_again(&self) {
        let mut questions = self.questions.lock();
        questions.is_open = true;
        for (number, asked) in &questions.asked {
            self.say(&ToControl::Asked { number: *number, question: asked.question.clone() });
        }
    }

    pub(crate) fn on_answered(&self, number: u64, reply: Reply) {
        let Some(Asked { asker, .. }) = self.questions.lock().asked.remove(&number) else { return };
        match reply {
            Reply::NameFound(found) => self.on_name_found(&asker, found),
            Reply::Names(names) => self.on_names(&asker, names),
            Reply::Key(answer) => {
                let Asker { to, request, .. } = asker;
                self.host.feed(NodeInput::KeyAnswered { to, request, answer });
            }
            // No process asks for that.
            Reply::Table(_) => {}
        }
    }

    /// Time has passed while the control process is away.
    pub(crate) fn on_time(&self) {
        let mut questions = self.questions.lock();
        let is_old = |asked: &Asked| asked.since.elapsed() > PATIENCE;
        let old = questions.asked.extract_if(.., |_, asked| is_old(asked)).map(|(_, asked)| asked.asker);
        let old: Vec<Asker> = old.collect();
        drop(questions);
        for asker in old {
            let seconds = PATIENCE.as_secs();
            self.refuse(&asker, &format!("the control process has not answered for {seconds} s"));
        }
    }

    fn refuse(&self, asker: &Asker, why: &str) {
        let Asker { about, to, request } = *asker;
        match about {
            AskedFor::Name => self.on_name_found(asker, None),
            AskedFor::Names => self.on_names(asker, Vec::new()),
            AskedFor::Key => {
                let hint =
                    "hint: `aktis status` says whether it is down; `aktis start --head` starts it again";
                let answer = Err(Failure::new(FailureKind::Refused, format!("{why}\n{hint}")));
                self.host.feed(NodeInput::KeyAnswered { to, request, answer });
            }
        }
    }
}
