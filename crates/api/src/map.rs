//! A remote function over the items of an iterator, many items in one task.
//!
//! Invariants:
//! 1. Each item gives one result, in the order of the items unless the map is unordered.
//! 2. An item with an argument that is a reference has a chunk of its own: if the reference fails, so does its chunk.
//! 3. At most `in_flight` chunks are submitted whose results were not taken.

use crate::completed::StreamOnly;
use crate::error::{Error, Result};
use crate::options::{CPU, TaskSettings};
use aktis_protocol::Failure;
use aktis_runtime::chunk::ChunkResults;
use aktis_runtime::codec::{Value, decode_in};
use aktis_runtime::{Arguments, Completions, Function, Handle, Runtime};
use futures_core::Stream;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fmt::{Debug, Formatter};
use std::iter::Fuse;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

/// How long a chunk is to take, if its size is chosen by the run time: long compared with what a task costs, short
/// compared with what people notice.
const CHUNK_NANOSECONDS: f64 = 2e6;
/// A chunk that is chosen by the run time has at most so many times as many items as those before.
const GROWTH_MAX: usize = 8;
/// Items of a chunk, however short they run.
const CHUNK_ITEMS_MAX: usize = 1 << 16;
/// Bytes of a chunk's arguments that travel inside its message, and of the results that are aimed at.
const CHUNK_BYTES_MAX: usize = 64 << 10;
/// Chunks in flight for each CPU of the node, and for a small one.
const IN_FLIGHT_PER_CPU: usize = 4;
const IN_FLIGHT_MIN: usize = 8;
/// Chunks that remain for each CPU near the end of an iterator whose length is known, so that all CPUs end together.
const LAST_CHUNKS_PER_CPU: usize = 2;

/// Adds the arguments of one call.
type AddItem<T> = fn(&mut Arguments, &Runtime, T) -> Result<(), aktis_runtime::Error>;

/// What `map` of a remote function gives: the results of one call for each item of an iterator.
///
/// Many items are run by one task, so that the cost of a task is shared. The map is lazy: it takes items, and submits tasks,
/// when results are asked for, and only so many in advance. It is an iterator, which blocks, and an async [`Stream`], which
/// does not. Dropping it cancels what is in flight.
///
/// ```
/// use aktis::prelude::*;
///
/// #[remote]
/// fn square(x: u64) -> u64 {
///     x * x
/// }
///
/// #[remote]
/// fn divide(a: i64, b: i64) -> Result<i64, String> {
///     a.checked_div(b).ok_or_else(|| "division by zero".to_owned())
/// }
///
/// fn main() -> aktis::Result<()> {
///     let _session = aktis::init()?;
///     let squares = square::map(0..10_000).collect::<aktis::Result<Vec<_>>>()?;
///     assert_eq!(squares[99], 9_801);
///
///     // Functions of several arguments take tuples. Each item has its own result.
///     let outcomes: Vec<_> = divide::map([(6, 2), (1, 0), (8, 4)]).collect();
///     assert_eq!(outcomes[0], Ok(3));
///     let error = outcomes[1].as_ref().unwrap_err();
///     assert!(error.to_string().contains("item 1: division by zero"), "{error}");
///     assert_eq!(outcomes[2], Ok(2));
///     Ok(())
/// }
/// ```
///
/// - An error or a panic fails its item alone, and says its position. If a worker process dies, its chunk runs again, within the
///   task's `retries`.
/// - Items may be references where the function takes a value, as for `remote`. Each of them has a task of its own, and so has
///   an item with a value of more than 16 KiB.
#[must_use = "maps are lazy and do nothing unless consumed"]
pub struct Map<I: Iterator, T> {
    items: Fuse<I>,
    add: AddItem<I::Item>,
    function: &'static Function,
    settings: TaskSettings,
    /// The session; why there is none, until that was said.
    runtime: Result<Runtime, Option<Error>>,
    size: Size,
    in_flight: usize,
    cpus: usize,
    /// Items that were taken so far.
    position: usize,
    /// The arguments of an item that was taken and starts the next chunk.
    carried: Option<Arguments>,
    /// Chunks whose results were not taken, by the positions of their first items.
    chunks: HashMap<usize, Chunk>,
    order: Order,
    current: Option<Results>,
    marker: PhantomData<fn() -> T>,
}

/// Nothing is pinned inside.
impl<I: Iterator, T> Unpin for Map<I, T> {}

#[derive(Clone, Copy, Debug)]
enum Size {
    Given(usize),
    /// By the run time and the size of items so far.
    Measured {
        items: usize,
        nanoseconds_per_item: Option<f64>,
        bytes_per_item: f64,
    },
}

enum Order {
    /// That of the items: the position of the next chunk.
    Given(usize),
    /// That in which they finish; and the one that has, if its value is still on the way.
    Finished(Completions, Option<usize>),
}

struct Chunk {
    handle: Handle,
    len: usize,
    /// Items that could not even be encoded, by their offsets.
    refused: Vec<(usize, aktis_runtime::Error)>,
}

/// The results of a chunk that were not given yet.
struct Results {
    first: usize,
    offset: usize,
    chunk: Chunk,
    outcome: Result<ChunkResults, aktis_runtime::Error>,
}

/// Makes a map; see `crates/macros/src/map.rs`.
pub fn map<I: Iterator, T>(
    function: &'static Function,
    settings: TaskSettings,
    items: I,
    add: AddItem<I::Item>,
) -> Map<I, T> {
    let runtime =
        settings.check().and_then(|()| Runtime::current()).map_err(|error| Some(Error::from(error)));
    let cpus = runtime.as_ref().map_or(0, |runtime| runtime.resources().get(CPU).to_f64() as usize);
    // A worker does not know what its node has.
    let cpus = if cpus == 0 { std::thread::available_parallelism().map_or(1, usize::from) } else { cpus };
    Map {
        items: items.fuse(),
        add,
        function,
        settings,
        runtime,
        size: Size::Measured { items: 1, nanoseconds_per_item: None, bytes_per_item: 0.0 },
        in_flight: (IN_FLIGHT_PER_CPU * cpus).max(IN_FLIGHT_MIN),
        cpus,
        position: 0,
        carried: None,
        chunks: HashMap::new(),
        order: Order::Given(0),
        current: None,
        marker: PhantomData,
    }
}

impl<I: Iterator, T> Map<I, T> {
    /// How many items one task runs. Without it, that is chosen by how long items have taken: so many that a task takes
    /// about 2 ms.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # #[remote] fn square(x: u64) -> u64 { x * x }
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// let total: u64 = square::map(0..1_000).chunk_size(100).sum::<aktis::Result<u64>>()?;
    /// # assert_eq!(total, 332_833_500);
    /// # Ok(())
    /// # }
    /// ```
    pub fn chunk_size(mut self, items: usize) -> Self {
        self.size = Size::Given(items.max(1));
        self
    }

    /// How many chunks may be submitted whose results were not taken; four for each CPU of the node by default. On a cluster,
    /// give what keeps all its CPUs busy.
    pub fn in_flight(mut self, chunks: usize) -> Self {
        self.in_flight = chunks.max(1);
        self
    }

    /// Gives results in the order in which chunks finish: a slow item holds up only those of its own chunk.
    ///
    /// ```
    /// # use aktis::prelude::*;
    /// # #[remote] fn measure(x: u64) -> (u64, usize) { (x, x.to_string().len()) }
    /// # fn main() -> aktis::Result<()> {
    /// # let _session = aktis::init()?;
    /// for result in measure::map(0..100).unordered() {
    ///     let (number, digits) = result?;
    ///     println!("{number} has {digits} digits");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn unordered(mut self) -> Self {
        let mut completions = Completions::new();
        self.chunks.iter().for_each(|(&first, chunk)| completions.add(&chunk.handle, first));
        self.order = Order::Finished(completions, None);
        self
    }

    /// Submits chunks while there may be more.
    fn fill(&mut self) {
        let Ok(runtime) = self.runtime.clone() else { return };
        while self.chunks.len() < self.in_flight {
            let Some(chunk) = self.submit_chunk(&runtime) else { return };
            if let Order::Finished(completions, _) = &mut self.order {
                completions.add(&chunk.handle, self.position);
            }
            let first = self.position;
            self.position += chunk.len;
            self.chunks.insert(first, chunk);
        }
    }

    fn submit_chunk(&mut self, runtime: &Runtime) -> Option<Chunk> {
        if let Some(arguments) = self.carried.take() {
            return Some(self.submit(runtime, arguments, 1, Vec::new()));
        }
        let wanted = self.next_size();
        let (mut arguments, mut len, mut refused) = (Arguments::new(), 0, Vec::new());
        while len < wanted {
            let Some(item) = self.items.next() else { break };
            let before = arguments.extent();
            if let Err(error) = (self.add)(&mut arguments, runtime, item) {
                arguments.truncate(before);
                refused.push((len, error));
            }
            let has_reference = !arguments.handles().is_empty();
            if has_reference && len > 0 {
                self.carried = Some(arguments.split_off(before));
                break;
            }
            len += 1;
            if has_reference || arguments.extent().bytes >= CHUNK_BYTES_MAX {
                break;
            }
        }
        (len > 0).then(|| self.submit(runtime, arguments, len, refused))
    }

    fn submit(
        &mut self,
        runtime: &Runtime,
        arguments: Arguments,
        len: usize,
        refused: Vec<(usize, aktis_runtime::Error)>,
    ) -> Chunk {
        // Chunks of different lengths take different times: the engine is told which are alike.
        self.settings.options.kind = len.ilog2() + 1;
        let handle = runtime.submit(self.function, &self.settings.options, arguments);
        Chunk { handle: handle.unwrap_or_else(Handle::failed), len, refused }
    }

    /// How many items the next chunk has.
    fn next_size(&self) -> usize {
        let items = match self.size {
            Size::Given(items) => return items,
            Size::Measured { items, .. } => items,
        };
        match self.items.size_hint() {
            (left, Some(most)) if left == most => {
                items.min(left.div_ceil(LAST_CHUNKS_PER_CPU * self.cpus)).max(1)
            }
            _ => items,
        }
    }

    /// Takes the next chunk's results, and submits another one. `Ready(false)` if there are none left.
    fn poll_chunk(&mut self, waker: Option<&Waker>) -> Poll<bool> {
        self.fill();
        if self.chunks.is_empty() {
            return Poll::Ready(false);
        }
        let first = match &mut self.order {
            Order::Given(first) => *first,
            Order::Finished(_, Some(first)) => *first,
            Order::Finished(completions, finished) => {
                let next = match waker {
                    None => completions.next(None),
                    Some(waker) => ready!(completions.poll_next(waker)),
                };
                match next {
                    Ok(Some(first)) => *finished.insert(first),
                    Ok(None) => return Poll::Ready(false),
                    Err(error) => {
                        self.fail(error.into());
                        return Poll::Ready(false);
                    }
                }
            }
        };
        let Some(chunk) = self.chunks.get(&first) else { return Poll::Ready(false) };
        let value = match waker {
            None => chunk.handle.get(None),
            Some(waker) => ready!(chunk.handle.poll(waker)),
        };
        let Some(chunk) = self.chunks.remove(&first) else { return Poll::Ready(false) };
        match &mut self.order {
            Order::Given(next) => *next = first + chunk.len,
            Order::Finished(_, finished) => *finished = None,
        }
        let outcome =
            value.and_then(|value| opened(value).inspect(|results| self.size.note(&chunk, results)));
        let over = match &outcome {
            Err(aktis_runtime::Error::Failed(_)) => crate::is_cancelled(),
            Err(error) => ends_session(error),
            Ok(_) => false,
        };
        self.current = Some(Results { first, offset: 0, chunk, outcome });
        if over {
            // The session, or the task that asks, is at its end: what comes next would fail in the same way.
            self.runtime = Err(None);
            self.cancel();
        } else {
            self.fill();
        }
        Poll::Ready(true)
    }

    fn fail(&mut self, error: Error) {
        self.runtime = Err(Some(error));
        self.cancel();
    }

    /// Nobody wants the results of what is in flight.
    fn cancel(&mut self) {
        for (_, chunk) in self.chunks.drain().filter(|(_, chunk)| !chunk.handle.has_outcome()) {
            let _ = chunk.handle.cancel(false, true);
        }
    }
}

impl<I: Iterator, T: DeserializeOwned> Map<I, T> {
    /// The same results as an async stream that is not an iterator too, so that `next`, `map` and the like are those of the
    /// stream.
    pub fn into_async(self) -> impl Stream<Item = Result<T>> + Unpin {
        StreamOnly(self)
    }

    fn poll_result(&mut self, waker: Option<&Waker>) -> Poll<Option<Result<T>>> {
        loop {
            if let Some(results) = &mut self.current {
                if let Some(result) = results.next(self.function, self.runtime.as_ref().ok()) {
                    return Poll::Ready(Some(result));
                }
                self.current = None;
            }
            if !ready!(self.poll_chunk(waker)) {
                let failed = self.runtime.as_mut().err().and_then(Option::take);
                return Poll::Ready(failed.map(Err));
            }
        }
    }
}

impl Size {
    /// Takes into account how long the items of a chunk have taken.
    fn note(&mut self, chunk: &Chunk, results: &ChunkResults) {
        let Self::Measured { items, nanoseconds_per_item, bytes_per_item } = self else { return };
        let ran = (chunk.len - chunk.refused.len()).max(1) as f64;
        let nanoseconds = results.nanoseconds() as f64 / ran;
        // The mean of the last few: items may get longer or shorter on the way.
        let mean = nanoseconds_per_item.map_or(nanoseconds, |before| (before + nanoseconds) / 2.0);
        *nanoseconds_per_item = Some(mean);
        *bytes_per_item = (*bytes_per_item + results.size_bytes() as f64 / ran) / 2.0;
        let fitting =
            (CHUNK_NANOSECONDS / mean.max(1.0)).min(CHUNK_BYTES_MAX as f64 / bytes_per_item.max(1.0));
        *items =
            (fitting as usize).clamp(1, GROWTH_MAX * chunk.len.max(*items / GROWTH_MAX)).min(CHUNK_ITEMS_MAX);
    }
}

impl Results {
    fn next<T: DeserializeOwned>(
        &mut self,
        function: &'static Function,
        runtime: Option<&Runtime>,
    ) -> Option<Result<T>> {
        if self.offset == self.chunk.len {
            return None;
        }
        let (offset, position) = (self.offset, self.first + self.offset);
        self.offset += 1;
        if let Ok(refused) = self.chunk.refused.binary_search_by_key(&offset, |(offset, _)| *offset) {
            return Some(Err(at_item(position, function, self.chunk.refused[refused].1.clone())));
        }
        let error = match &mut self.outcome {
            Ok(results) => match results.next() {
                Some(Ok(value)) => return Some(decode_in(runtime, &value).map_err(Error::Codec)),
                Some(Err(failure)) => failure.into(),
                None => aktis_runtime::Error::Codec("its chunk has fewer results than items".to_owned()),
            },
            Err(error) => error.clone(),
        };
        Some(Err(at_item(position, function, error)))
    }
}

/// Whether all later chunks would fail in the same way; other errors are those of one chunk.
fn ends_session(error: &aktis_runtime::Error) -> bool {
    use aktis_runtime::Error as Inner;
    matches!(error, Inner::Closed | Inner::Forked | Inner::NotInitialised | Inner::Interrupted)
}

fn opened(value: Value) -> Result<ChunkResults, aktis_runtime::Error> {
    ChunkResults::of(value).ok_or_else(|| {
        aktis_runtime::Error::Codec("a chunk's value cannot be read: it is of another build".to_owned())
    })
}

/// The error of an item, which says the item's position.
fn at_item(position: usize, function: &'static Function, error: aktis_runtime::Error) -> Error {
    use aktis_runtime::Error as Inner;
    match error {
        Inner::Failed(failure) => {
            let mut failure = Failure::clone(&failure);
            failure.message = format!("item {position}: {}", failure.message);
            if failure.function.is_empty() {
                failure.function = function.name.to_owned();
            }
            Inner::Failed(Arc::new(failure)).into()
        }
        Inner::Codec(problem) => Error::Codec(format!("item {position}: {problem}")),
        Inner::Store(problem) => Error::Store(format!("item {position}: {problem}")),
        Inner::Invalid(problem) => Error::Invalid(format!("item {position}: {problem}")),
        Inner::System(problem) => Error::System(format!("item {position}: {problem}")),
        other => other.into(),
    }
}

impl<I: Iterator, T: DeserializeOwned> Iterator for Map<I, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.poll_result(None) {
            Poll::Ready(result) => result,
            Poll::Pending => unreachable!("without a waker, the map blocks"),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let current = self.current.as_ref().map_or(0, |results| results.chunk.len - results.offset);
        let in_flight: usize = self.chunks.values().map(|chunk| chunk.len).sum();
        let taken = current + in_flight + usize::from(self.carried.is_some());
        let most = self.items.size_hint().1.and_then(|items| items.checked_add(taken));
        // A map that fails as a whole ends early, with one error.
        (0, most.map(|most| most.max(1)))
    }
}

impl<I: Iterator, T: DeserializeOwned> Stream for Map<I, T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_result(Some(context.waker()))
    }
}

impl<I: Iterator, T> Drop for Map<I, T> {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl<I: Iterator, T> Debug for Map<I, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Map({}, {} items taken, {} chunks in flight)",
            self.function.name,
            self.position,
            self.chunks.len()
        )
    }
}
