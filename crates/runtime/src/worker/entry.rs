//! Worker mode: the program's own binary, started again, becomes a worker before its `main` runs.

use crate::node::Link;
use crate::options::Tuning;
use crate::runtime::{Inner, Parts, Runtime};
use crate::worker::Executor;
use aktis_node::WorkerLink;
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::{ProcessSlot, Resources, Shape};
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
            Err(error) => give_up(&error),
        }
    }
    crate::registry::MODES.iter().for_each(|mode| mode());
}

/// Makes sure that the constructor above is linked into every program that starts a session.
pub(crate) fn is_linked() -> bool {
    std::hint::black_box(&BEFORE_MAIN) as *const _ as usize != 0
}

/// A worker of the program's own binary: the main thread listens to the node, others run what there is to run.
fn run(link: Arc<WorkerLink>) -> ! {
    let inner = connect(&link, Arc::default(), Tuning::default(), false);
    spawn("aktis-start", {
        let inner = inner.clone();
        move || {
            crate::worker::start::run_hooks();
            begin(&inner);
            if let Some(executor) = &inner.executor {
                executor.start(&inner);
            }
        }
    });
    listen(&inner, &link)
}

/// Makes this process a worker that runs all user code on the calling thread, until the session ends.
///
/// `shape` is what a task needs that says nothing about it; `ready` is called once the process can submit tasks,
/// before it runs any.
pub fn serve(link: WorkerLink, shape: Arc<Shape>, tuning: Tuning, ready: impl FnOnce(&Runtime)) -> ! {
    let link = Arc::new(link);
    let inner = connect(&link, shape, tuning, true);
    crate::worker::run::install_panic_hook();
    spawn("aktis-link", {
        let inner = inner.clone();
        move || listen(&inner, &link)
    });
    begin(&inner);
    ready(&Runtime(inner.clone()));
    inner.executor.as_ref().expect("a worker has an executor").run_here(&inner)
}

fn connect(link: &Arc<WorkerLink>, default_shape: Arc<Shape>, tuning: Tuning, main_only: bool) -> Arc<Inner> {
    aktis_store::ignore_broken_pipes();
    let parts = Parts {
        me: link.slot(),
        session: link.session(),
        control: link.control().clone(),
        arena: link.arena().clone(),
        executor: Some(Executor::new(link.kind(), main_only)),
        tuning,
        resources: Resources::none(),
        default_shape,
        program: link.program(),
    };
    let inner = Inner::new(parts).unwrap_or_else(|error| give_up(&error));
    let _ = inner.link.set(Link::Worker(link.clone()));
    let _ = Runtime(inner.clone()).make_current();
    inner
}

/// Takes in what the node says, until it says that this is the end.
fn listen(inner: &Arc<Inner>, link: &WorkerLink) -> ! {
    loop {
        match link.receive() {
            Some(FromNode::Shutdown) => {
                // If user code keeps this from returning, the node ends the process soon.
                if let Some(hooks) = crate::hooks::get() {
                    (hooks.shut_down)();
                }
                end(0)
            }
            None => end(0),
            Some(message) => inner.on_node_message(message),
        }
    }
}

/// Says that this process is there and asks for what it needs. The answers arrive on the thread that listens.
fn begin(inner: &Arc<Inner>) {
    inner.send_to_node(ToNode::Started);
    if let Err(error) = inner.open_default_lane() {
        give_up(&error);
    }
    inner.want_channel(ProcessSlot(0));
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) {
    if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(body) {
        give_up(&error);
    }
}

fn give_up(error: &dyn std::fmt::Display) -> ! {
    eprintln!("aktis: cannot start as a worker: {error}");
    end(1)
}

/// Ends the process at once: user code on other threads is not waited for, nor are its destructors run.
pub(crate) fn end(code: i32) -> ! {
    let _ = std::io::stdout().flush();
    if code == 0 {
        let (this, kill) = (rustix::process::getpid(), rustix::process::Signal::KILL);
        // A worker leads a group of its own: what it has started goes with it.
        if rustix::process::getpgrp() == this {
            let _ = rustix::process::kill_process_group(this, kill);
        }
        let _ = rustix::process::kill_process(this, kill);
    }
    std::process::exit(code)
}
