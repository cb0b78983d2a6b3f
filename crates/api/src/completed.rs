//! References in the order in which they finish, for loops that take results as they come.

use crate::error::{Error, Result};
use crate::object_ref::ObjectRef;
use crate::session::Session;
use aktis_runtime::Completions;
use futures_core::Stream;
use std::fmt::{Debug, Formatter};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Gives the references one by one, in the order in which their objects get a value or a failure.
///
/// The cost of each is constant, however many there are. The result is an iterator, which blocks, and an async
/// [`Stream`], which does not. Dropping it ends the wait; the tasks go on.
///
/// ```
/// use aktis::prelude::*;
///
/// #[remote]
/// fn square(x: u64) -> u64 {
///     x * x
/// }
///
/// fn main() -> aktis::Result<()> {
///     let _session = aktis::init()?;
///     let mut total = 0;
///     for done in aktis::as_completed((0..100).map(square::remote)) {
///         total += done?.get()?;
///     }
///     assert_eq!(total, 328_350);
///     Ok(())
/// }
/// ```
pub fn as_completed<T>(objects: impl IntoIterator<Item = ObjectRef<T>>) -> AsCompleted<T> {
    let mut all = AsCompleted {
        completions: Completions::new(),
        objects: Vec::new(),
        free: Vec::new(),
        deadline: None,
        ended: false,
    };
    all.extend(objects);
    all
}

impl Session {
    /// Gives the references one by one, in the order in which they finish: see [`as_completed`].
    pub fn as_completed<T>(&self, objects: impl IntoIterator<Item = ObjectRef<T>>) -> AsCompleted<T> {
        as_completed(objects)
    }
}

/// References in the order in which they finish: see [`as_completed`].
///
/// An item is an error if the wait itself failed: the time is over, the session has ended, or the task that waits was
/// cancelled. It is the last item then. The failure of a task is not: the reference gives it in `get`.
///
/// With the extension traits of other crates in scope, a method such as `next` is one of the iterator and one of the
/// stream; [`into_async`](Self::into_async) gives a stream alone.
#[must_use = "iterators are lazy and do nothing unless consumed"]
pub struct AsCompleted<T> {
    completions: Completions,
    /// Those that were not given yet, by the position that `completions` knows them by.
    objects: Vec<Option<ObjectRef<T>>>,
    /// Positions of those that were given.
    free: Vec<usize>,
    /// When the iterator gives up, and the time that it was given.
    deadline: Option<(Instant, Duration)>,
    ended: bool,
}

impl<T> AsCompleted<T> {
    /// Gives up when `timeout` from now is over: the iterator's last item is [`Error::Timeout`] then. The rest is in
    /// [`into_unfinished`](Self::into_unfinished). Async streams have no clock: there, use the runtime's own timeout.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # #[remote] fn sleep(ms: u64) { std::thread::sleep(Duration::from_millis(ms)) }
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let refs = vec![sleep::remote(60_000), sleep::remote(0)];
    /// let mut done = aktis::as_completed(refs).timeout(Duration::from_millis(300));
    /// let in_time = done.by_ref().filter(|item| item.is_ok()).count();
    /// for slow in done.into_unfinished() {
    ///     slow.cancel()?;
    /// }
    /// # assert!(in_time <= 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        // A time that no clock reaches is none.
        self.deadline = Instant::now().checked_add(timeout).map(|deadline| (deadline, timeout));
        self
    }

    /// The next reference that has finished, or `None` if all were given; [`Error::Timeout`] if none finishes in time,
    /// and then one may ask again.
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<Result<ObjectRef<T>>> {
        self.take_next(Some(timeout))
    }

    /// How many references were not given yet.
    pub fn unfinished(&self) -> usize {
        self.completions.unfinished()
    }

    /// The references that were not given yet, in the order in which they were passed to [`as_completed`]. After `extend`,
    /// the order is unspecified.
    pub fn into_unfinished(self) -> Vec<ObjectRef<T>> {
        self.objects.into_iter().flatten().collect()
    }

    /// The same references as an async stream that is not an iterator too, so that `next`, `map` and the like are those of
    /// the stream.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// use futures_util::StreamExt;
    ///
    /// # #[remote] fn square(x: u64) -> u64 { x * x }
    /// async fn total(squares: Vec<ObjectRef<u64>>) -> aktis::Result<u64> {
    ///     let mut done = aktis::as_completed(squares).into_async();
    ///     let mut total = 0;
    ///     while let Some(square) = done.next().await {
    ///         total += square?.await?;
    ///     }
    ///     Ok(total)
    /// }
    /// ```
    pub fn into_async(self) -> impl Stream<Item = Result<ObjectRef<T>>> + Send + Unpin {
        StreamOnly(self)
    }

    fn take_next(&mut self, timeout: Option<Duration>) -> Option<Result<ObjectRef<T>>> {
        if self.ended {
            return None;
        }
        let next = self.completions.next(timeout);
        self.settle(next)
    }

    fn settle(&mut self, next: Result<Option<usize>, aktis_runtime::Error>) -> Option<Result<ObjectRef<T>>> {
        match next {
            Ok(Some(position)) => {
                self.free.push(position);
                self.objects[position].take().map(Ok)
            }
            Ok(None) => None,
            Err(error) => {
                self.ended = !matches!(error, aktis_runtime::Error::TimedOut(_));
                Some(Err(Error::from(error)))
            }
        }
    }
}

/// Adds references to wait for, also after some were given.
impl<T> Extend<ObjectRef<T>> for AsCompleted<T> {
    fn extend<I: IntoIterator<Item = ObjectRef<T>>>(&mut self, objects: I) {
        for object in objects {
            let position = self.free.pop().unwrap_or(self.objects.len());
            self.completions.add(object.handle(), position);
            if position == self.objects.len() {
                self.objects.push(None);
            }
            self.objects[position] = Some(object);
        }
    }
}

impl<T> Iterator for AsCompleted<T> {
    type Item = Result<ObjectRef<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some((deadline, timeout)) = self.deadline else { return self.take_next(None) };
        let item = self.take_next(Some(deadline.saturating_duration_since(Instant::now())));
        match item {
            Some(Err(Error::Timeout(_))) => {
                self.ended = true;
                Some(Err(Error::Timeout(timeout)))
            }
            item => item,
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.unfinished()))
    }
}

impl<T> Stream for AsCompleted<T> {
    type Item = Result<ObjectRef<T>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.completions.poll_next(context.waker()).map(|next| self.settle(next))
    }
}

impl<T> Debug for AsCompleted<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "AsCompleted<{}>({} unfinished)", std::any::type_name::<T>(), self.unfinished())
    }
}

/// A stream that is an iterator too, as a stream alone.
pub(crate) struct StreamOnly<S>(pub(crate) S);

impl<S: Stream + Unpin> Stream for StreamOnly<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        Pin::new(&mut self.0).poll_next(context)
    }
}
