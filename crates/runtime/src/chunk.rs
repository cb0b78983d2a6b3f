//! Many calls of one function in one task: how their arguments and results share one message.
//!
//! The arguments of a chunk are those of its calls, one call after the other. Its value is the time that they took, and
//! for each call a tag, a length, and the encoded value or the failure. References inside the values belong to the
//! chunk's value.

use crate::codec::{Encoded, Value};
use crate::registry::Call;
use crate::runtime::Runtime;
use crate::worker::context::TaskContext;
use crate::worker::run::{catch, end_if_forked};
use aktis_protocol::{Failure, FailureKind};
use std::time::Instant;

const VALUE: u8 = 0;
const FAILED: u8 = 1;
/// The time that the calls took.
const HEAD_BYTES: usize = 8;

/// Runs a function as often as there are arguments for it. The failure of a call, or its panic, is that call's alone.
pub fn run_chunk(
    call: &mut Call,
    arguments_per_call: u32,
    run: fn(&mut Call) -> Result<Encoded, Failure>,
) -> Result<Encoded, Failure> {
    let begin = Instant::now();
    // Taken before any call: a child that a call forks may start a session of its own.
    let runtime = Runtime::current().ok();
    let mut body = vec![0; HEAD_BYTES];
    let (mut handles, mut actors) = (Vec::new(), Vec::new());
    while !call.arguments().is_at_end() {
        if TaskContext::is_cancelled() {
            return Err(Failure::new(FailureKind::Cancelled, "it was cancelled"));
        }
        let start = call.arguments().position();
        let result = catch(|| run(call));
        if let Some(runtime) = &runtime {
            // The other items are the parent's.
            end_if_forked(&runtime.0);
        }
        match result {
            Ok(value) => {
                handles.extend_from_slice(value.handles());
                actors.extend_from_slice(value.actors());
                match value.as_plain() {
                    Some(bytes) => push(&mut body, VALUE, bytes),
                    None => push(&mut body, VALUE, &value.to_vec()),
                }
            }
            Err(failure) => {
                let failure = Failure { pid: Some(std::process::id()), ..failure };
                let encoded = postcard::to_stdvec(&failure)
                    .map_err(|error| Failure::new(FailureKind::Codec, format!("its failure: {error}")))?;
                push(&mut body, FAILED, &encoded);
                // The call may have left some of its arguments.
                call.arguments().seek(start, arguments_per_call);
            }
        }
    }
    let nanoseconds = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    body[..HEAD_BYTES].copy_from_slice(&nanoseconds.to_le_bytes());
    Ok(Encoded::from_raw(&body, Vec::new(), handles, actors))
}

fn push(body: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    body.push(tag);
    body.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    body.extend_from_slice(bytes);
}

/// The results of a chunk, one call after the other.
#[derive(Debug)]
pub struct ChunkResults {
    value: Value,
    nanoseconds: u64,
    /// Where the next one is in the value's bytes, and where the last one ends.
    position: usize,
    end: usize,
}

impl ChunkResults {
    /// The results in a value that [`run_chunk`] gave; `None` if it is none.
    pub fn of(value: Value) -> Option<Self> {
        let raw = value.raw().ok()?;
        let body = raw.body();
        let nanoseconds = u64::from_le_bytes(body.get(..HEAD_BYTES)?.try_into().ok()?);
        let start = body.as_ptr() as usize - value.bytes().as_ptr() as usize;
        let (position, end) = (start + HEAD_BYTES, start + body.len());
        Some(Self { value, nanoseconds, position, end })
    }

    /// How long all calls took together, in nanoseconds.
    pub fn nanoseconds(&self) -> u64 {
        self.nanoseconds
    }

    /// How many bytes all results take.
    pub fn size_bytes(&self) -> usize {
        self.value.bytes().len()
    }

    fn take_next(&mut self) -> Option<Result<Value, Failure>> {
        let rest = self.value.bytes().get(self.position..self.end)?;
        let (&tag, rest) = rest.split_first()?;
        let (len, rest) = rest.split_first_chunk::<8>()?;
        let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        let bytes = rest.get(..len)?;
        self.position += 1 + 8 + len;
        match tag {
            VALUE => Some(Ok(Value::inline(bytes))),
            _ => postcard::from_bytes(bytes).ok().map(Err),
        }
    }
}

impl Iterator for ChunkResults {
    type Item = Result<Value, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take_next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_no_chunk_are_refused() {
        let encoded = |body: &[u8]| Encoded::from_raw(body, Vec::new(), Vec::new(), Vec::new()).into_value();
        assert!(ChunkResults::of(encoded(b"short")).is_none());
        assert_eq!(ChunkResults::of(encoded(&[0; 8])).unwrap().count(), 0);
        let mut body = vec![0; HEAD_BYTES];
        push(&mut body, VALUE, b"value");
        body.extend([VALUE, 9, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(ChunkResults::of(encoded(&body)).unwrap().count(), 1, "the second one is cut off");
    }
}
