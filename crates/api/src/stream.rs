//! The items of a streaming task, as references, while it is still running.

use crate::completed::StreamOnly;
use crate::error::{Error, Result};
use crate::object_ref::ObjectRef;
use aktis_runtime::Stream;
use std::fmt::{Debug, Formatter};
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The items of a streaming task, in order, each as a reference.
///
/// The task is ahead of its consumer by a bounded number of items (`stream_ahead`) and then waits.
/// Dropping the stream ends the task. If the task fails, the last item is its error, so that
/// `collect::<aktis::Result<Vec<_>>>()` fails too.
///
/// The stream is an iterator, which blocks, and an async [`Stream`](futures_core::Stream), which does not. With the
/// extension traits of other crates in scope, a method such as `next` is one of both;
/// [`into_async`](Self::into_async) gives an async stream alone.
#[must_use = "a stream that is dropped ends its task"]
pub struct ObjectStream<T> {
    state: State,
    marker: PhantomData<fn() -> T>,
}

enum State {
    Open(Stream),
    Failed(aktis_runtime::Error),
    Ended,
}

type Item<T> = Option<Result<ObjectRef<T>>>;

impl<T> ObjectStream<T> {
    pub(crate) fn from_outcome(outcome: Result<Stream, aktis_runtime::Error>) -> Self {
        let state = outcome.map_or_else(State::Failed, State::Open);
        Self { state, marker: PhantomData }
    }

    /// The next item, or `None` at the end; [`Error::Timeout`] if there is neither in time, and then one
    /// may ask again.
    pub fn next_timeout(&mut self, timeout: Duration) -> Item<T> {
        self.take_next(Some(timeout))
    }

    /// The next item, or `None` at the end, for asynchronous code.
    pub fn next_async(&mut self) -> NextItem<'_, T> {
        NextItem(self)
    }

    /// The same items as an async stream that is not an iterator too, so that `next`, `map` and the like are those of
    /// the async stream.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// use futures_util::StreamExt;
    ///
    /// # #[remote(stream)] fn numbers(to: u64) -> impl Iterator<Item = u64> { 0..to }
    /// async fn total(numbers: ObjectStream<u64>) -> aktis::Result<u64> {
    ///     let mut numbers = numbers.into_async();
    ///     let mut total = 0;
    ///     while let Some(number) = numbers.next().await {
    ///         total += number?.await?;
    ///     }
    ///     Ok(total)
    /// }
    /// ```
    pub fn into_async(self) -> impl futures_core::Stream<Item = Result<ObjectRef<T>>> + Send + Unpin {
        StreamOnly(self)
    }

    fn poll_item(&mut self, waker: &Waker) -> Poll<Item<T>> {
        let polled = match &mut self.state {
            State::Open(stream) => std::task::ready!(stream.poll_next(waker)),
            State::Failed(_) | State::Ended => return Poll::Ready(self.take_next(None)),
        };
        Poll::Ready(self.settle(polled))
    }

    fn take_next(&mut self, timeout: Option<Duration>) -> Item<T> {
        let taken = match &mut self.state {
            State::Open(stream) => stream.next(timeout),
            State::Failed(error) => Err(error.clone()),
            State::Ended => return None,
        };
        self.settle(taken)
    }

    fn settle(&mut self, outcome: Result<Option<aktis_runtime::Handle>, aktis_runtime::Error>) -> Item<T> {
        match outcome {
            Ok(Some(handle)) => match handle.failure() {
                // The runtime gives the task's failure as a last item that has failed.
                Some(error) => {
                    self.state = State::Ended;
                    Some(Err(Error::from(error)))
                }
                None => Some(Ok(ObjectRef::new(handle))),
            },
            Ok(None) => {
                self.state = State::Ended;
                None
            }
            Err(error) => {
                if !matches!(error, aktis_runtime::Error::TimedOut(_)) {
                    self.state = State::Ended;
                }
                Some(Err(Error::from(error)))
            }
        }
    }
}

impl<T> Iterator for ObjectStream<T> {
    type Item = Result<ObjectRef<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take_next(None)
    }
}

impl<T> futures_core::Stream for ObjectStream<T> {
    type Item = Result<ObjectRef<T>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_item(context.waker())
    }
}

impl<T> Debug for ObjectStream<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let state = match self.state {
            State::Open(_) => "open",
            State::Failed(_) => "failed",
            State::Ended => "ended",
        };
        write!(f, "ObjectStream<{}>({state})", std::any::type_name::<T>())
    }
}

/// The next item of a stream, to be awaited: see [`ObjectStream::next_async`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct NextItem<'a, T>(&'a mut ObjectStream<T>);

impl<T> Future for NextItem<'_, T> {
    type Output = Item<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_item(context.waker())
    }
}
