//! What ran when, for people to look at.

use crate::detached::detached;
use crate::object_ref::id_hex;
use aktis_protocol::TaskId;
use aktis_runtime::Runtime;
use aktis_store::RunKind;
use pyo3::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Something that runs, from when it is made until it is dropped, on the thread that runs it.
pub(crate) struct Span<'a> {
    runtime: &'a Runtime,
    number: Option<u64>,
    /// Whether it ends with a failure.
    pub(crate) failed: bool,
}

impl<'a> Span<'a> {
    /// It begins now.
    pub(crate) fn new(runtime: &'a Runtime, kind: RunKind, name: &'a str) -> Self {
        Self::begun(runtime, runtime.begin_run(kind, name))
    }

    /// It has begun before, and has this number.
    pub(crate) fn begun(runtime: &'a Runtime, number: Option<u64>) -> Self {
        Self { runtime, number, failed: false }
    }
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.runtime.end_run(number, self.failed);
        }
    }
}

/// When the machine's clock was zero, by the world's. Looked at once, so that a run is always told with the same time.
static EPOCH: OnceLock<Duration> = OnceLock::new();

fn epoch() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_nanos(Runtime::clock()))
}

/// A run as Python gets it: kind, name, task, process, begin and duration in seconds, which is negative while it runs, and
/// whether it failed.
pub(crate) type Row = (&'static str, String, String, u32, f64, f64, bool);

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
        let duration = match run.end {
            0 => -1.0,
            end => Duration::from_nanos(end.saturating_sub(run.begin)).as_secs_f64(),
        };
        let task = id_hex(run.task.to_words());
        (kind, run.name, task, run.pid, begin.as_secs_f64(), duration, run.failed)
    };
    runs.into_iter().map(row).collect()
}

/// Children of a task that are looked for, at each attempt, and of the driver.
const CHILDREN_MAX: u64 = 2048;
const DRIVERS_CHILDREN_MAX: u64 = 1 << 20;
/// Attempts of a task whose children are looked for; see `ATTEMPT_SHIFT` of the runtime.
const ATTEMPTS: u64 = 3;
const ATTEMPT_SHIFT: u64 = 40;
/// What a task's threads submit has numbers from here on, and so many of them are looked for.
const THREADS_CHILDREN: u64 = 1 << 63;
const CHILDREN_OF_THREADS_MAX: u64 = 256;

/// Which of these tasks submitted which: child to parent. Ids of children follow from those of their parents, so that nobody
/// has to write down who submitted what. What the calling process itself submitted has it as parent.
#[pyfunction]
pub(crate) fn parents(py: Python<'_>, tasks: Vec<[u8; 16]>) -> PyResult<HashMap<String, String>> {
    let mut open: HashSet<TaskId> = HashSet::new();
    for task in &tasks {
        open.insert(TaskId::from_words(crate::object_ref::id_words(task)?));
    }
    let candidates: Vec<TaskId> = open.iter().copied().collect();
    let root = Runtime::current().ok().map(|runtime| runtime.context().task);
    Ok(detached(py, || {
        let mut found = HashMap::new();
        let mut look = |parent: TaskId, numbers: std::ops::RangeInclusive<u64>| {
            for number in numbers {
                let child = parent.child(number);
                if open.remove(&child) {
                    found.insert(id_hex(child.to_words()), id_hex(parent.to_words()));
                }
                if open.is_empty() {
                    return;
                }
            }
        };
        for parent in candidates {
            for attempt in 0..ATTEMPTS {
                let first = attempt << ATTEMPT_SHIFT;
                look(parent, first + 1..=first + CHILDREN_MAX);
                let threads = THREADS_CHILDREN | first;
                look(parent, threads + 1..=threads + CHILDREN_OF_THREADS_MAX);
            }
        }
        if let Some(root) = root {
            look(root, 1..=DRIVERS_CHILDREN_MAX);
        }
        found
    }))
}
