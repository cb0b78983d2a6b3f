//! Lines that several workers print at about the same time: printed once, and then counted.
//!
//! Invariants:
//! 1. A line that one worker alone prints is always printed, however often it is.
//! 2. What was counted is told: after [`WINDOW`], when there are too many lines to remember, or at the end.

use super::forwarder::Line;
use super::{Source, Stream};
use aktis_protocol::NodeId;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a line is remembered, and so how long others who print it are waited for.
pub(crate) const WINDOW: Duration = Duration::from_secs(5);
/// Lines that are remembered; with more of them, the oldest is forgotten.
const LINES_MAX: usize = 1024;
/// Longer lines are not compared.
const LINE_BYTES_MAX: usize = 4096;

type Key = (Stream, Arc<[u8]>);

/// A process, of this node or another.
type Worker = (Option<NodeId>, u32);

/// Lines that were printed a short while ago.
#[derive(Default)]
pub(crate) struct Repeats {
    seen: HashMap<Key, Seen>,
    /// When each was printed, oldest first.
    order: VecDeque<(Instant, Key)>,
}

struct Seen {
    printed_by: Worker,
    /// Whether another worker has printed it too.
    shared: bool,
    /// How often it was held back, by whom, and the last of these with its name.
    held_back: u64,
    by: BTreeSet<Worker>,
    last: Option<(Source, Arc<str>)>,
}

impl Repeats {
    /// A worker has printed a line: it is printed if it comes back, and so is what else comes.
    pub(crate) fn on_line(&mut self, now: Instant, line: Line, print: &mut impl FnMut(Line)) {
        if line.text.len() > LINE_BYTES_MAX || line.text.iter().all(u8::is_ascii_whitespace) {
            return print(line);
        }
        let key = (line.source.stream, Arc::from(line.text.as_slice()));
        let Some(seen) = self.seen.get_mut(&key) else {
            if self.seen.len() == LINES_MAX {
                self.forget_oldest(print);
            }
            self.remember(now, key, Seen::by(worker(line.source)));
            return print(line);
        };
        if worker(line.source) == seen.printed_by && !seen.shared {
            return print(line);
        }
        seen.shared = true;
        seen.held_back += 1;
        seen.by.insert(worker(line.source));
        seen.last = Some((line.source, line.name));
    }

    /// Tells what has been held back for long enough.
    pub(crate) fn on_time(&mut self, now: Instant, print: &mut impl FnMut(Line)) {
        while self.order.front().is_some_and(|(at, _)| *at + WINDOW <= now) {
            let Some((key, seen)) = self.forget_oldest(print) else { continue };
            if seen.held_back > 0 {
                // Others go on printing it: they are counted again.
                self.remember(now, key, Seen { shared: true, ..Seen::by(seen.printed_by) });
            }
        }
    }

    /// When [`on_time`](Self::on_time) has something to tell.
    pub(crate) fn due(&self) -> Option<Instant> {
        let waits = |key: &Key| self.seen.get(key).is_some_and(|seen| seen.held_back > 0);
        self.order.iter().find(|(_, key)| waits(key)).map(|(at, _)| *at + WINDOW)
    }

    /// Tells all that was held back.
    pub(crate) fn finish(&mut self, print: &mut impl FnMut(Line)) {
        while self.forget_oldest(print).is_some() {}
    }

    fn remember(&mut self, now: Instant, key: Key, seen: Seen) {
        self.order.push_back((now, key.clone()));
        self.seen.insert(key, seen);
    }

    fn forget_oldest(&mut self, print: &mut impl FnMut(Line)) -> Option<(Key, Seen)> {
        let (_, key) = self.order.pop_front()?;
        let seen = self.seen.remove(&key)?;
        if let Some((source, name)) = &seen.last {
            let text = [&key.1, seen.told().as_bytes()].concat();
            print(Line { source: *source, name: name.clone(), text });
        }
        Some((key, seen))
    }
}

impl Seen {
    fn by(worker: Worker) -> Self {
        Self { printed_by: worker, shared: false, held_back: 0, by: BTreeSet::new(), last: None }
    }

    /// What stands behind a line that was held back.
    fn told(&self) -> String {
        match (self.held_back, self.by.len()) {
            (1, _) => " [printed once more, by another worker]".to_owned(),
            (times, 1) => format!(" [printed {times} more times, by 1 worker]"),
            (times, workers) => format!(" [printed {times} more times, by {workers} workers]"),
        }
    }
}

fn worker(source: Source) -> Worker {
    (source.node, source.pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::ProgramId;

    struct Story {
        began: Instant,
        repeats: Repeats,
        printed: Vec<String>,
    }

    impl Story {
        fn new() -> Self {
            Self { began: Instant::now(), repeats: Repeats::default(), printed: Vec::new() }
        }

        fn line(&mut self, second: u64, pid: u32, text: &str) {
            let source = Source { stream: Stream::Stdout, pid, program: ProgramId::default(), node: None };
            let line = Line { source, name: "f".into(), text: text.into() };
            let now = self.began + Duration::from_secs(second);
            let mut print = |line: Line| self.printed.push(show(&line));
            self.repeats.on_time(now, &mut print);
            self.repeats.on_line(now, line, &mut print);
        }

        fn take(&mut self) -> Vec<String> {
            std::mem::take(&mut self.printed)
        }

        fn finish(mut self) -> Vec<String> {
            self.repeats.finish(&mut |line| self.printed.push(show(&line)));
            self.printed
        }
    }

    fn show(line: &Line) -> String {
        format!("({}) {}", line.source.pid, String::from_utf8_lossy(&line.text))
    }

    #[test]
    fn one_worker_may_repeat_itself() {
        let mut story = Story::new();
        (0..3).for_each(|second| story.line(second, 1, "tick"));
        assert_eq!(story.finish(), ["(1) tick"; 3]);
    }

    #[test]
    fn what_several_print_is_printed_once_and_counted() {
        let mut story = Story::new();
        for pid in [1, 2, 3, 2, 1] {
            story.line(0, pid, "hello");
        }
        story.line(1, 2, "other");
        story.line(1, 2, "");
        story.line(1, 3, "");
        assert_eq!(story.take(), ["(1) hello", "(2) other", "(2) ", "(3) "]);
        assert_eq!(story.repeats.due(), Some(story.began + WINDOW));
        story.line(5, 4, "hello");
        assert_eq!(story.take(), ["(1) hello [printed 4 more times, by 3 workers]"]);
        assert_eq!(story.finish(), ["(4) hello [printed once more, by another worker]"]);
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut story = Story::new();
        story.line(0, 1, "hello");
        assert_eq!(story.repeats.due(), None, "nothing to tell");
        story.line(5, 2, "hello");
        assert_eq!(story.finish(), ["(1) hello", "(2) hello"]);
    }

    #[test]
    fn no_more_lines_are_remembered_than_it_may_be() {
        let mut story = Story::new();
        story.line(0, 1, "first");
        story.line(0, 2, "first");
        (0..LINES_MAX + 10).for_each(|number| story.line(0, 1, &number.to_string()));
        assert_eq!((story.repeats.seen.len(), story.repeats.order.len()), (LINES_MAX, LINES_MAX));
        let told = story.take();
        assert!(told.contains(&"(2) first [printed once more, by another worker]".to_owned()));
    }
}
