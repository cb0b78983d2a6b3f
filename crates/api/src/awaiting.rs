//! Waiting for many objects in asynchronous code: no thread blocks until the objects are there.
//!
//! A value that lies on another node or on disk is fetched by the thread that polls, which blocks meanwhile.

use crate::error::{Error, Result};
use crate::object_ref::ObjectRef;
use crate::session::{ReadyAndRest, Session, take_positions};
use aktis_runtime::codec::decode_in;
use aktis_runtime::{Completions, Runtime};
use serde::de::DeserializeOwned;
use std::future::poll_fn;

/// Awaits all objects and gives their values in order, or the first failure: [`get_all`](crate::get_all) for
/// asynchronous code.
///
/// ```
/// use aktis::prelude::*;
///
/// #[remote]
/// fn square(x: u64) -> u64 {
///     x * x
/// }
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> aktis::Result<()> {
///     let _session = aktis::init()?;
///     let squares: Vec<_> = (0..4).map(square::remote).collect();
///     assert_eq!(aktis::get_all_async(&squares).await?, [0, 1, 4, 9]);
///     Ok(())
/// }
/// ```
pub async fn get_all_async<T: DeserializeOwned>(objects: &[ObjectRef<T>]) -> Result<Vec<T>> {
    get_all_in(None, objects).await
}

async fn get_all_in<T: DeserializeOwned>(
    runtime: Option<&Runtime>,
    objects: &[ObjectRef<T>],
) -> Result<Vec<T>> {
    let mut values = Vec::with_capacity(objects.len());
    for object in objects {
        let value = poll_fn(|context| object.handle().poll(context.waker())).await?;
        values.push(decode_in(runtime, &value).map_err(Error::Codec)?);
    }
    Ok(values)
}

/// Awaits that `count` of the objects have a value or a failure. Gives those, and all others, both in the given order:
/// [`wait`](crate::wait) for asynchronous code.
///
/// There is no timeout: use that of your async runtime, and keep a clone of the references, which are cheap to clone.
///
/// ```
/// use aktis::prelude::*;
///
/// #[remote]
/// fn sleep(ms: u64) {
///     std::thread::sleep(Duration::from_millis(ms));
/// }
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> aktis::Result<()> {
///     let _session = aktis::init()?;
///     let sleeps = vec![sleep::remote(0), sleep::remote(60_000)];
///     let both = aktis::wait_async(sleeps.clone(), 2);
///     assert!(tokio::time::timeout(Duration::from_millis(50), both).await.is_err());
///     sleeps[1].cancel()?;
///     let (ready, rest) = aktis::wait_async(sleeps, 2).await?;
///     assert_eq!((ready.len(), rest.len()), (2, 0));
///     Ok(())
/// }
/// ```
pub async fn wait_async<T>(objects: Vec<ObjectRef<T>>, count: usize) -> Result<ReadyAndRest<T>> {
    let count = count.min(objects.len());
    let mut completions = Completions::new();
    objects.iter().enumerate().for_each(|(position, object)| completions.add(object.handle(), position));
    let mut positions = Vec::with_capacity(count);
    while positions.len() < count {
        positions.extend(poll_fn(|context| completions.poll_next(context.waker())).await?);
    }
    positions.sort_unstable();
    Ok(take_positions(objects, &positions))
}

impl Session {
    /// Awaits all objects and gives their values in order, or the first failure: see [`get_all_async`].
    pub async fn get_all_async<T: DeserializeOwned>(&self, objects: &[ObjectRef<T>]) -> Result<Vec<T>> {
        get_all_in(Some(&self.runtime), objects).await
    }

    /// Awaits that `count` of the objects have a value or a failure: see [`wait_async`].
    pub async fn wait_async<T>(&self, objects: Vec<ObjectRef<T>>, count: usize) -> Result<ReadyAndRest<T>> {
        wait_async(objects, count).await
    }
}
