//! What ran when, for people to look at.

use crate::detached::detached;
use crate::object_ref::id_hex;
use aktis_runtime::Runtime;
use aktis_store::RunKind;
use pyo3::prelude::*;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Something that runs, from when it is made until it is dropped, on the thread that runs it.
pub(crate) struct Span<'a> {
    runtime: &'a Runtime,
    kind: RunKind,
    name: &'a str,
    begin: u64,
}

impl<'a> Span<'a> {
    /// It begins now.
    pub(crate) fn new(runtime: &'a Runtime, kind: RunKind, name: &'a str) -> Self {
        Self::since(runtime, kind, name, Runtime::clock())
    }

    /// It has begun before.
    pub(crate) fn since(runtime: &'a Runtime, kind: RunKind, name: &'a str, begin: u64) -> Self {
        Self { runtime, kind, name, begin }
    }
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        self.runtime.note_run(self.kind, self.name, self.begin);
    }
}

/// When the machine's clock was zero, by the world's. Looked at once, so that a run is always told with the same time.
static EPOCH: OnceLock<Duration> = OnceLock::new();

fn epoch() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_nanos(Runtime::clock()))
}

/// A run as Python gets it: kind, name, task, process, begin and duration in seconds.
type Row = (&'static str, String, String, u32, f64, f64);

/// What the processes of a session have run of late.
pub(crate) fn rows(py: Python<'_>, runtime: &Runtime) -> Vec<Row> {
    let runs = detached(py, || runtime.runs());
    let epoch = *EPOCH.get_or_init(epoch);
    let row = |run: aktis_store::Run| {
        let kind = match run.kind {
            RunKind::Task => "task",
            RunKind::Creation => "actor_creation",
            RunKind::Call => "actor_task",
        };
        let begin = epoch + Duration::from_nanos(run.begin);
        let duration = Duration::from_nanos(run.end.saturating_sub(run.begin));
        let task = id_hex(run.task.to_words());
        (kind, run.name, task, run.pid, begin.as_secs_f64(), duration.as_secs_f64())
    };
    runs.into_iter().map(row).collect()
}
