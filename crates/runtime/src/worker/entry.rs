//! Worker mode: the program's own binary, started again, becomes a worker before its `main` runs.

use crate::node::Link;
use crate::runtime::{Inner, Parts, Runtime};
use crate::worker::Executor;
use aktis_daemon::WorkerLink;
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::{Resources, limits};
use std::io::Write;
use std::sync::Arc;

/// Runs before `main`: the only way for a worker not to run the program's (or the test harness's) own start.
///
/// The registry of functions is a link-time table, so it is complete by now, whatever the order of
/// constructors is.
#[allow(unsafe_code)]
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    if let Some(link) = WorkerLink::from_arguments() {
        match link {
            Ok(link) => run(Arc::new(link)),
            Err(error) => {
                eprintln!("aktis: cannot start as a worker: {error}");
                std::process::exit(1);
            }
        }
    }
}

/// Makes sure that the constructor above is linked into every program that starts a session.
pub(crate) fn is_linked() -> bool {
    std::hint::black_box(&BEFORE_MAIN) as *const _ as usize != 0
}

fn run(link: Arc<WorkerLink>) -> ! {
    aktis_store::ignore_broken_pipes();
    let parts = Parts {
        me: link.slot(),
        session: link.session(),
        control: link.control().clone(),
        arena: link.arena().clone(),
        executor: Some(Executor::new(link.kind())),
        lineage: true,
        queued_tasks_max: limits::QUEUED_TASKS_MAX,
        resources: Resources::none(),
    };
    let inner = match Inner::new(parts) {
        Ok(inner) => inner,
        Err(error) => {
            eprintln!("aktis: cannot start as a worker: {error}");
            end(1)
        }
    };
    let _ = inner.link.set(Link::Worker(link.clone()));
    let _ = Runtime(inner.clone()).make_current();
    crate::worker::run::install_panic_hook();
    start(&inner);
    loop {
        match link.receive() {
            Some(FromNode::Shutdown) | None => end(0),
            Some(message) => inner.on_node_message(message),
        }
    }
}

/// Asks for what a worker needs, on a thread of its own: the answers arrive on the thread that asks.
fn start(inner: &Arc<Inner>) {
    let inner = inner.clone();
    let body = move || {
        inner.send_to_node(ToNode::Started);
        if let Err(error) = inner.open_default_lane() {
            eprintln!("aktis: cannot start as a worker: {error}");
            end(1);
        }
        inner.want_channel(aktis_protocol::ProcessSlot(0));
        if let Some(executor) = &inner.executor {
            executor.start(&inner);
        }
    };
    if std::thread::Builder::new().name("aktis-start".into()).spawn(body).is_err() {
        eprintln!("aktis: cannot start as a worker: no thread could be started");
        end(1);
    }
}

/// Ends the process at once: user code on other threads is not waited for, nor are its destructors run.
pub(crate) fn end(code: i32) -> ! {
    let _ = std::io::stdout().flush();
    if code == 0 {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
    std::process::exit(code)
}
