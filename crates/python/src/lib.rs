//! The Python module `aktis._native`: conversions between Python and the runtime, and nothing else.
//!
//! Invariants:
//! 1. No thread of the runtime takes the interpreter's lock, except those that run user code, the one for callbacks, and
//!    the one that writes workers' output, which holds no lock then: so whoever holds the lock may take locks of the
//!    runtime.
//! 2. Whatever waits, or copies much, gives the interpreter's lock back meanwhile.

mod actor;
mod buffer;
mod callbacks;
mod calls;
mod checkpoint;
mod codec;
mod collective;
mod command;
mod context;
mod detached;
mod failure;
mod fetched;
mod generator;
mod head;
mod hooks;
mod object_ref;
mod output;
mod rest;
mod retired;
mod session;
mod simulate;
mod state;
mod strategy;
mod stream;
mod template;
mod timeline;
mod title;
mod worker;

/// The module as Python sees it.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::actor::{Actor, load_actor};
    #[pymodule_export]
    use crate::buffer::Pinned;
    #[pymodule_export]
    use crate::callbacks::{next_callbacks, report_unraisable};
    #[pymodule_export]
    use crate::calls::{ActorCaller, Export, MethodCaller, Signature, TaskCaller};
    #[pymodule_export]
    use crate::checkpoint::checkpoint;
    #[pymodule_export]
    use crate::collective::{CollectiveFailure, CollectiveGroup, CollectiveSeat};
    #[pymodule_export]
    use crate::command::{cli, cluster_nodes};
    #[pymodule_export]
    use crate::context::{Context, context, exit_actor, is_cancelled, running_function};
    #[pymodule_export]
    use crate::detached::begin_exit;
    #[pymodule_export]
    const FAILURE_KINDS: [&str; 21] = crate::failure::FAILURE_KINDS;
    #[pymodule_export]
    use crate::failure::Failure;
    #[pymodule_export]
    use crate::generator::is_interrupted;
    #[pymodule_export]
    use crate::hooks::set_hooks;
    #[pymodule_export]
    use crate::object_ref::{
        ObjectRef, cancel, explain, fetch, get, load_ref, object_from_id, put, reference_counts, wait,
    };
    #[pymodule_export]
    use crate::output::output_mark;
    #[pymodule_export]
    use crate::rest::Rest;
    #[pymodule_export]
    use crate::session::{Runtime, current, default_directory, version};
    #[pymodule_export]
    use crate::simulate::{Rollouts, SimulatedBatch, builtin_environments, evaluate_population};
    #[pymodule_export]
    use crate::stream::Stream;
    #[pymodule_export]
    use crate::template::{run_template, run_worker};
    #[pymodule_export]
    use crate::timeline::parents;
    #[pymodule_export]
    use crate::worker::{Completion, loop_turn, wake_loop};
}
