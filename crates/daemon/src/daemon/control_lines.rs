//! The lines of the control process on this machine, kept with those of the node, so that `aktis logs` shows them.

use super::Parts;
use crate::admin::Client;
use crate::control::control_directory;
use aktis_protocol::admin::{LogLine, LogQuery};
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The pause before a control process that is away is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// The last line that was kept: a control process that is asked again tells all its lines again.
#[derive(Default)]
struct Last {
    pid: u32,
    unix_milliseconds: u64,
}

impl Last {
    fn is_new(&self, line: &LogLine) -> bool {
        line.pid != self.pid || line.unix_milliseconds > self.unix_milliseconds
    }
}

/// Follows them until the daemon is stopped.
pub(super) fn follow(parts: &Arc<Parts>) -> io::Result<()> {
    let weak = Arc::downgrade(parts);
    let run = move || {
        let mut last = Last::default();
        loop {
            let Some(parts) = weak.upgrade() else { return };
            let directory = control_directory(&parts.directory);
            if parts.wait_for_stop(AGAIN) {
                return;
            }
            drop(parts);
            // The control process may be away, or go away: its next lines come from the next one.
            let _ = follow_once(&weak, &directory, &mut last);
        }
    };
    std::thread::Builder::new().name("aktis-control-lines".into()).spawn(run).map(|_| ())
}

fn follow_once(
    parts: &Weak<Parts>,
    directory: &std::path::Path,
    last: &mut Last,
) -> Result<(), crate::admin::ClientError> {
    let query = LogQuery { follow: true, ..LogQuery::default() };
    Client::connect(directory)?.logs(query, |lines, _| {
        let Some(parts) = parts.upgrade() else { return ControlFlow::Break(()) };
        // Its lines are of this machine, and found by the id of its node.
        let new = lines.iter().filter(|line| last.is_new(line));
        let new: Vec<LogLine> = new.map(|line| LogLine { node: parts.node, ..line.clone() }).collect();
        parts.log.add(&new);
        if let Some(line) = lines.last() {
            *last = Last { pid: line.pid, unix_milliseconds: line.unix_milliseconds };
        }
        ControlFlow::Continue(())
    })
}
