//! Large arrays: written once into shared memory, and read there in place.

use super::{Outcome, check, session};
use crate::Failure;
use crate::arguments::Scale;
use crate::figure::{Bound, Figure, Unit};
use crate::progress;
use crate::samples::{Samples, timed};
use crate::warm_copy::WarmMemory;
use aktis::prelude::*;
use std::time::Instant;

const PUT_BYTES: usize = 100_000_000;
const GET_BYTES: usize = 1_000_000_000;
/// Puts after which the store's memory has been used before.
const WARM_UP: u32 = 8;

/// Puts of an array, one after another, next to plain copies of it.
pub(super) fn put(scale: Scale) -> Outcome {
    let session = session()?;
    let _entered = session.enter();
    let array: Array<u8> = vec![7; PUT_BYTES].into();
    let mut memory = WarmMemory::new(PUT_BYTES)?;
    for _ in 0..WARM_UP {
        aktis::put(array.clone())?;
        memory.copy(&array);
    }
    let rounds = scale.pick(10, 40);
    let (mut puts, mut copies, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (time, object) = timed(|| aktis::put(array.clone()))?;
        let stored = object.get()?;
        check("the bytes of an array", u64::from(stored[0]) + stored.len() as u64, 7 + PUT_BYTES as u64)?;
        // The object is still held: the node frees nothing while the copy runs.
        let (put, copy) = (time.as_secs_f64(), memory.copy(&array).as_secs_f64());
        puts.push(PUT_BYTES as f64 / put / 1e9);
        copies.push(PUT_BYTES as f64 / copy / 1e9);
        shares.push(copy / put);
    }
    let (puts, copies, shares) = (Samples::new(puts), Samples::new(copies), Samples::new(shares));
    let detail = format!("median of {rounds}; each put against the copy after it: {:.2}", shares.median());
    Ok(vec![
        Figure::new("put of 100 MB arrays, steady", puts.median(), Unit::GigabytesPerSecond)
            .wanted(Bound::AtLeast(0.9 * copies.median()))
            .limit("warm copy", copies.median())
            .detail(detail),
    ])
}

/// What a task saw when it got an array.
type Look = (u64, u64, bool);

/// Gets an array from inside a value; says how many nanoseconds that took, the sum of its ends, and whether its
/// bytes lie in memory that is shared.
#[remote]
fn look_at(arrays: Vec<ObjectRef<Array<u8>>>) -> aktis::Result<Look> {
    let begin = Instant::now();
    let array = arrays[0].get()?;
    let time = begin.elapsed();
    let sum = u64::from(array[0]) + u64::from(array[array.len() - 1]);
    Ok((time.as_nanos() as u64, sum, is_shared(array.as_ptr() as usize)))
}

/// Whether an address lies in a mapping of a memfd.
fn is_shared(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let covers = |line: &str| -> Option<bool> {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        Some((start..end).contains(&address) && line.contains("/memfd:"))
    };
    maps.lines().any(|line| covers(line) == Some(true))
}

/// Gets of one array by tasks in another process.
pub(super) fn get(scale: Scale) -> Outcome {
    let session = session()?;
    let _entered = session.enter();
    progress::say(format_args!("  writing 1 GB"));
    let mut bytes = vec![7_u8; GET_BYTES];
    bytes[GET_BYTES - 1] = 9;
    let object = aktis::put(Array::from(bytes))?;
    let looks = scale.pick(50, 200);
    let look = |_| -> Result<f64, Failure> {
        let (nanoseconds, sum, shared) = look_at::remote(vec![object.clone()]).get()?;
        check("the ends of an array", sum, 16)?;
        check("whether an array is read in place", shared.into(), 1)?;
        Ok(nanoseconds as f64 / 1e3)
    };
    let times = Samples::new((0..looks).map(look).collect::<Result<_, _>>()?);
    Ok(vec![
        Figure::new("get of a 1 GB object by another process", times.median(), Unit::Microseconds)
            .wanted(Bound::AtMost(50.0))
            .detail(format!("median of {looks}; p99 {:.1}; read in place", times.quantile(0.99))),
    ])
}
