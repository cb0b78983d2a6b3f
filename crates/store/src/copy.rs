//! Copies of values into shared memory: large ones with several threads, and past the caches.
//!
//! One thread does not use all the bandwidth of the memory, and a plain copy of what is larger than the caches first
//! reads the lines that it overwrites, and pushes everything else out of them.

#![allow(unsafe_code)]

use parking_lot::Mutex;
use std::sync::OnceLock;
use std::thread;

/// Smaller values are copied by the calling thread alone: they fit into the caches, where their readers find them.
pub const LARGE_BYTES_MIN: usize = 16 << 20;
/// More threads do not make a copy faster: the memory is the bound.
const THREADS_MAX: usize = 6;
/// What a thread copies at a time. One that loses its core delays the end by no more than this.
const STEP_BYTES: usize = 1 << 20;

/// Copies `source` to `target`, which must be of the same length.
pub fn copy(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len(), "a copy is as long as its source");
    if source.len() < LARGE_BYTES_MIN {
        return target.copy_from_slice(source);
    }
    let steps = Mutex::new(target.chunks_mut(STEP_BYTES).zip(source.chunks(STEP_BYTES)));
    let work = || {
        loop {
            let Some((target, source)) = steps.lock().next() else { break };
            stream(target, source);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads() {
            let helper = thread::Builder::new().name("aktis-copy".to_owned());
            // Where no thread can be started, those that there are do its part.
            if helper.spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
}

fn threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| thread::available_parallelism().map_or(1, |cores| cores.get().min(THREADS_MAX)))
}

/// Copies with stores that go to memory without reading it, and without taking space in the caches.
#[cfg(target_arch = "x86_64")]
fn stream(target: &mut [u8], source: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const LINE_BYTES: usize = 64;
    let first = target.as_ptr().align_offset(LINE_BYTES).min(target.len());
    let (target_start, target) = target.split_at_mut(first);
    let (source_start, source) = source.split_at(first);
    target_start.copy_from_slice(source_start);
    let (target_lines, target_end) = target.as_chunks_mut::<LINE_BYTES>();
    let (source_lines, source_end) = source.as_chunks::<LINE_BYTES>();
    for (target, source) in target_lines.iter_mut().zip(source_lines) {
        let (target, source) = (target.as_mut_ptr().cast::<__m128i>(), source.as_ptr().cast::<__m128i>());
        // SAFETY: all x86_64 processors have these instructions. Both lines are of four words each; `target` is aligned
        // to its line.
        unsafe {
            let words = [0, 1, 2, 3].map(|word| _mm_loadu_si128(source.add(word)));
            for (number, word) in words.into_iter().enumerate() {
                _mm_stream_si128(target.add(number), word);
            }
        }
    }
    target_end.copy_from_slice(source_end);
    // These stores are not ordered with those that publish the value; the fence orders them.
    // SAFETY: all x86_64 processors have this instruction.
    unsafe { _mm_sfence() };
}

#[cfg(not(target_arch = "x86_64"))]
fn stream(target: &mut [u8], source: &[u8]) {
    target.copy_from_slice(source);
}
