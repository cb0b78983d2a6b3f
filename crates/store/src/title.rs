//! The title of a process: what `ps` shows in the place of its arguments.
//!
//! The system shows the memory in which a process was given its arguments; whoever wants a longer title than that
//! memory holds is given more arguments.

#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// The memory of this process's arguments.
#[derive(Clone, Copy)]
struct Arguments {
    start: usize,
    bytes: usize,
}

static ARGUMENTS: OnceLock<Option<Arguments>> = OnceLock::new();

/// Makes this the title of the process, cut off where there is no more room. Nothing happens where the system does not
/// say where the arguments are.
pub fn set_title(parts: [&str; 2]) {
    let Some(arguments) = *ARGUMENTS.get_or_init(find_arguments) else { return };
    // SAFETY: the system says that the arguments of this process lie there; that memory is written by nobody else and
    // stays mapped as long as the process lives. It is touched through atomics alone.
    let memory = unsafe { std::slice::from_raw_parts(arguments.start as *const AtomicU8, arguments.bytes) };
    let text = parts[0].bytes().chain(parts[1].bytes()).take(memory.len() - 1);
    // The rest is wiped, up to the end: the system takes a last byte that is not zero for a longer text.
    for (place, byte) in memory.iter().zip(text.chain(std::iter::repeat(0))) {
        place.store(byte, Ordering::Relaxed);
    }
}

fn find_arguments() -> Option<Arguments> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name in parentheses, which may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<usize>().ok();
    let (start, end) = (number(48)?, number(49)?);
    (start != 0 && end > start + 1).then(|| Arguments { start, bytes: end - start })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_title_is_what_the_system_shows() {
        let before = std::fs::read("/proc/self/cmdline").unwrap();
        set_title(["short", "::title"]);
        let after = std::fs::read("/proc/self/cmdline").unwrap();
        let shown: Vec<u8> = after.iter().copied().take_while(|byte| *byte != 0).collect();
        assert_eq!(String::from_utf8(shown).unwrap(), "short::title"[..12.min(before.len() - 1)]);
        set_title([&"long".repeat(10_000), ""]);
        let shown = std::fs::read("/proc/self/cmdline").unwrap();
        assert!(shown.len() <= before.len() && shown.starts_with(b"long"));
    }
}
