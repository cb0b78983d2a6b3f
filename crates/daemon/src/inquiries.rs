//! Questions of one daemon to the others, on behalf of a command line, over the links between nodes.
//!
//! Invariants:
//! 1. Nobody waits longer for an answer than [`PATIENCE`]: a node that is silent is left out, and named.
//! 2. The threads of links only hand questions over; at most [`QUEUED_MAX`] wait, and further ones are not answered.
//! 3. An answer is at most [`NODE_ANSWER_BYTES_MAX`] long, so that the work on the same link does not wait for it.

use aktis_io::Link;
use aktis_node::{QuestionId, Questions};
use aktis_protocol::NodeId;
use aktis_protocol::admin::{NodeAnswer, NodeQuestion};
use aktis_protocol::control::encode;
use aktis_protocol::limits::NODE_ANSWER_BYTES_MAX;
use aktis_protocol::peer::Frame;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How long other nodes may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
/// Questions that wait to be answered.
const QUEUED_MAX: usize = 64;
/// Threads that answer.
const THREADS: usize = 2;

/// A question of another node.
struct Asked {
    link: Link,
    question: QuestionId,
    what: NodeQuestion,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Inquiries {
    own: Mutex<Questions<NodeId, NodeAnswer>>,
    others: Mutex<Option<SyncSender<Asked>>>,
}

impl Inquiries {
    /// Answers the questions of other nodes from now on, until [`Self::close`].
    pub(crate) fn serve(
        &self,
        answer: impl Fn(NodeQuestion) -> NodeAnswer + Send + Sync + 'static,
    ) -> io::Result<()> {
        let (others, questions) = sync_channel(QUEUED_MAX);
        let (questions, answer) = (Arc::new(Mutex::new(questions)), Arc::new(answer));
        for _ in 0..THREADS {
            let (questions, answer) = (questions.clone(), answer.clone());
            let run = move || answer_all(&questions, &*answer);
            std::thread::Builder::new().name("aktis-inquiries".into()).spawn(run)?;
        }
        *self.others.lock() = Some(others);
        Ok(())
    }

    pub(crate) fn close(&self) {
        self.others.lock().take();
    }

    /// Asks other nodes, each what is said, and gives what they answer in time.
    pub(crate) fn ask(
        &self,
        nodes: &[(NodeId, Link)],
        what: impl Fn(NodeId) -> NodeQuestion,
    ) -> BTreeMap<NodeId, NodeAnswer> {
        let until = Instant::now() + PATIENCE;
        let asked = nodes.iter().map(|(node, _)| *node).collect();
        let (question, answers) = self.own.lock().open(asked);
        for (node, link) in nodes {
            if link.send(encode(&Frame::Asked { question, what: what(*node) })).is_err() {
                self.own.lock().on_died(node);
            }
        }
        let next = || answers.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        let told = std::iter::from_fn(next).collect();
        self.own.lock().close(question);
        told
    }

    /// Another node has asked.
    pub(crate) fn on_asked(&self, link: &Link, question: QuestionId, what: NodeQuestion) {
        if let Some(others) = &*self.others.lock() {
            // If too many ask, they do not get an answer, and say so.
            let _ = others.try_send(Asked { link: link.clone(), question, what });
        }
    }

    /// Another node has answered.
    pub(crate) fn on_told(&self, from: NodeId, question: QuestionId, answer: NodeAnswer) {
        self.own.lock().on_answered(from, question, answer);
    }

    /// The link to a node is gone.
    pub(crate) fn on_unlinked(&self, node: NodeId) {
        self.own.lock().on_died(&node);
    }
}

fn answer_all(questions: &Mutex<Receiver<Asked>>, answer: &impl Fn(NodeQuestion) -> NodeAnswer) {
    loop {
        let asked = questions.lock().recv();
        let Ok(Asked { link, question, what }) = asked else { return };
        let told = |answer| encode(&Frame::Told { question, answer });
        let mut frame = told(answer(what));
        if frame.len() > NODE_ANSWER_BYTES_MAX {
            let text = format!("its answer is longer than {NODE_ANSWER_BYTES_MAX} bytes");
            frame = told(NodeAnswer::Refused(text));
        }
        // If the link is busy or gone, the other side waits in vain, but not for long.
        if link.has_room() {
            let _ = link.send(frame);
        }
    }
}
