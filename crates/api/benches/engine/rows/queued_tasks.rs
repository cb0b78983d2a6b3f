//! A million tasks that wait for a CPU: what each costs, and that all of them finish.

use super::endurance::echo;
use super::{CPUS, Outcome, check};
use crate::arguments::Scale;
use crate::figure::{Bound, Figure, Unit};
use crate::memory::bytes_of_all_processes;
use crate::progress;
use crate::samples::{rate, timed};
use aktis::prelude::*;
use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

const TASKS: u64 = 1_000_000;

/// Holds a CPU until the other end of the socket is closed.
#[remote]
fn occupy(socket: String) -> u64 {
    let mut stream = UnixStream::connect(socket).expect("the driver listens");
    stream.read_to_end(&mut Vec::new()).expect("the driver closes it") as u64
}

/// Occupies all CPUs, queues tasks behind that, looks at the memory, and lets them run.
pub(super) fn measure(_: Scale) -> Outcome {
    // The tasks that hold the CPUs count too.
    let session = Session::builder().cpus(CPUS).queued_tasks_max(TASKS as usize + 1000).start()?;
    let _entered = session.enter();
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket)?;
    let path = socket.to_str().ok_or("the temporary folder has an odd name")?;
    let occupied: Vec<_> = (0..CPUS).map(|_| occupy::remote(path)).collect();
    let mut held = Vec::new();
    for _ in 0..CPUS {
        held.push(listener.accept()?.0);
    }
    progress::say(format_args!("  queueing {TASKS} tasks"));
    let before = bytes_of_all_processes()?;
    let begin = Instant::now();
    let tasks: Vec<_> = (0..TASKS).map(echo::remote).collect();
    let queueing = begin.elapsed();
    let bytes = bytes_of_all_processes()?.saturating_sub(before) as f64 / TASKS as f64;
    let early = tasks.iter().filter(|task| task.is_ready()).count() as u64;
    check("tasks that ran though no CPU was free", early, 0)?;
    drop(held);
    let (running, sum) = timed(|| tasks.into_iter().map(|task| task.get()).sum::<aktis::Result<u64>>())?;
    check("adding up queued tasks", sum, TASKS * (TASKS - 1) / 2)?;
    for task in occupied {
        check("a task that held a CPU", task.get()?, 0)?;
    }
    let rates = (rate(TASKS, queueing), rate(TASKS, running));
    Ok(vec![
        Figure::new("1 million queued tasks, memory of each", bytes, Unit::Bytes)
            .wanted(Bound::AtMost(400.0))
            .detail(format!("all processes; queued at {:.0} /s, then run at {:.0} /s", rates.0, rates.1)),
    ])
}
