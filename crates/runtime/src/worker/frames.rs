//! What waits on a thread of a worker for a task that the same thread runs meanwhile, and how a cancel gets through.
//!
//! A cancelled task whose `get` runs another task cannot return before that does. So whoever cancels the one below
//! cancels the one above, too, if the one below has submitted it; and so on, up to the top of the stack.

use crate::worker::context::{Family, TaskContext};
use aktis_protocol::TaskId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A task or call that waits for the task above it.
pub(super) struct Frame {
    pub(super) submitter: u32,
    pub(super) key: u64,
    pub(super) cancelled: Arc<AtomicBool>,
    /// Whether it was cancelled with all that it has submitted.
    pub(super) recursive: bool,
    /// What it has submitted.
    pub(super) family: Option<Family>,
    /// The task that it waits for.
    pub(super) above: TaskId,
}

impl Frame {
    /// Whether it has submitted the task that it waits for.
    pub(super) fn is_parent(&self) -> bool {
        let Some(Family { task, children }) = self.family else { return false };
        // Most wait for what they have submitted last.
        TaskContext::numbers_up_to(children).rev().any(|number| task.child(number) == self.above)
    }

    fn cancel(&mut self, recursive: bool) {
        self.recursive |= recursive;
        self.cancelled.store(true, Ordering::Release);
    }
}

/// What waits on a thread, the lowest first.
#[derive(Default)]
pub(super) struct Outer {
    pub(super) frames: Vec<Frame>,
    /// A flag for the next one.
    pub(super) spare: Option<Arc<AtomicBool>>,
}

impl Outer {
    /// A flag that is not set and that nobody else has.
    pub(super) fn take_flag(&mut self) -> Arc<AtomicBool> {
        let is_fresh = |flag: &Arc<AtomicBool>| !flag.load(Ordering::Relaxed) && Arc::strong_count(flag) == 1;
        self.spare.take().filter(is_fresh).unwrap_or_default()
    }

    /// Cancels the first frame for which `is_it`, and all above that are cancelled with it. Gives whether there is such a
    /// frame, and whether what the thread runs is cancelled with it.
    pub(super) fn cancel(&mut self, is_it: impl Fn(&Frame) -> bool, recursive: bool) -> (bool, bool) {
        let Some(place) = self.frames.iter().position(is_it) else { return (false, false) };
        for frame in &mut self.frames[place..] {
            frame.cancel(recursive);
            if !recursive || !frame.is_parent() {
                return (true, false);
            }
        }
        (true, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::SessionId;

    fn frame(key: u64, task: TaskId, above: TaskId) -> Frame {
        let family = Some(Family { task, children: 3 });
        Frame { submitter: 1, key, cancelled: Arc::default(), recursive: false, family, above }
    }

    fn cancelled(outer: &Outer) -> Vec<bool> {
        outer.frames.iter().map(|frame| frame.cancelled.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn a_cancel_reaches_what_was_submitted_from_below_and_nothing_else() {
        let root = TaskId::root(SessionId(1));
        let (one, two) = (root.child(1), root.child(1).child(2));
        let stack = |third: TaskId, top: TaskId| {
            let frames = vec![frame(1, root, one), frame(2, one, two), frame(3, third, top)];
            Outer { frames, spare: None }
        };
        let mut all = stack(two, two.child(3));
        assert_eq!(all.cancel(|frame| frame.key == 1, true), (true, true));
        assert_eq!(cancelled(&all), [true, true, true]);

        let mut upper = stack(two, two.child(3));
        assert_eq!(upper.cancel(|frame| frame.key == 2, true), (true, true));
        assert_eq!(cancelled(&upper), [false, true, true]);

        let mut of_another = stack(two, root.child(2));
        assert_eq!(of_another.cancel(|frame| frame.key == 1, true), (true, false));
        assert_eq!(cancelled(&of_another), [true, true, true]);

        let mut alone = stack(two, two.child(3));
        assert_eq!(alone.cancel(|frame| frame.key == 1, false), (true, false));
        assert_eq!(cancelled(&alone), [true, false, false]);
        assert_eq!(alone.cancel(|frame| frame.key == 4, true), (false, false));
    }
}
