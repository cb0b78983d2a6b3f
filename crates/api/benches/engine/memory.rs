//! The memory of this process and its workers together, in which shared pages count once.

use crate::Failure;
use std::fs;

/// Bytes of memory that this process and all its children hold now.
pub(crate) fn bytes_of_all_processes() -> Result<u64, Failure> {
    let mut bytes = bytes_of(std::process::id())?;
    for child in children()? {
        // A child may end between the list and the look.
        bytes += bytes_of(child).unwrap_or(0);
    }
    Ok(bytes)
}

/// The share of a process: its own pages, and of each shared one its part.
fn bytes_of(process: u32) -> Result<u64, Failure> {
    let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let share = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kilobytes =
        share.and_then(|share| share.split_whitespace().next()).ok_or("no `Pss` in smaps_rollup")?;
    Ok(kilobytes.parse::<u64>()? * 1024)
}

/// The processes that this one has started.
fn children() -> Result<Vec<u32>, Failure> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(process) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if parent_of(process) == Some(std::process::id()) {
            children.push(process);
        }
    }
    Ok(children)
}

fn parent_of(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before the last parenthesis may have spaces in it; after it come the state and the parent.
    status.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
