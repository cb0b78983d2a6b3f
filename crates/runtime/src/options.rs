//! How to start a session, run a task, and create an actor.

use aktis_node::{OutputOptions, WorkerProgram};
use aktis_protocol::actor_log::LogSpec;
use aktis_protocol::{Amount, GroupPlace, Labels, Resources, Shape, Strategy, limits, resources};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How to run a task.
#[derive(Clone, Debug, Default)]
pub struct TaskOptions {
    /// What it needs; `None` is the common case: one CPU in the shared worker.
    pub shape: Option<Arc<Shape>>,
    /// How often it is run again after its worker died; `None` is the default.
    pub retries: Option<u32>,
    /// Another name for people to see.
    pub name: Option<Arc<str>>,
    /// How far a streaming task may be ahead of its consumer; `None` is the default.
    pub stream_ahead: Option<u32>,
    /// How long after its submission it is cancelled, if it is not done.
    pub deadline: Option<Duration>,
    /// Which of the things that the function does, if it does several: how long they run is told apart by this.
    pub kind: u32,
}

impl TaskOptions {
    /// The shape, to be changed.
    pub fn shape_mut(&mut self) -> &mut Shape {
        Arc::make_mut(self.shape.get_or_insert_default())
    }

    /// Sets the amount of one resource; a message if it is not an amount.
    pub fn set_resource(&mut self, name: &str, amount: f64) -> Result<(), String> {
        self.shape_mut().resources.set(name, parse_amount(name, amount)?);
        Ok(())
    }
}

/// How to call a method of an actor.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// How often it is called again after its actor died under it; `None` is what the actor says.
    pub retries: Option<u32>,
    /// Another name for people to see.
    pub name: Option<Arc<str>>,
    /// How far a streaming method may be ahead of its consumer; `None` is the default.
    pub stream_ahead: Option<u32>,
    /// The group of calls that it is counted in; 0 is that of all others.
    pub group: u16,
    /// How long after its submission it is cancelled, if it is not done.
    pub deadline: Option<Duration>,
}

/// How to create an actor.
#[derive(Clone, Debug, Default)]
pub struct ActorOptions {
    /// Resources it holds for its whole life; nothing by default.
    pub resources: Resources,
    /// Resources that must be free when its place is chosen, and are not held.
    pub placement: Resources,
    /// How its process has to be set up; only that process understands it.
    pub environment: String,
    /// The placement group that it is to be in.
    pub group: Option<GroupPlace>,
    /// On which nodes it may live, and which of them it prefers.
    pub strategy: Strategy,
    /// Those with a higher one get a place first; 0 is the usual one.
    pub priority: i32,
    /// What those are told who find it by its name.
    pub details: Vec<u8>,
    /// What people call its type, if not by the constructor's name.
    pub type_name: Option<String>,
    /// Whether it wants a process of its own.
    pub isolated: bool,
    /// A name under which others find it.
    pub name: Option<String>,
    /// Whether it lives until the session ends, even without handles.
    pub detached: bool,
    /// Whether it has no place before [`ActorHandle::on_arguments_ready`](crate::ActorHandle::on_arguments_ready).
    pub awaits_arguments: bool,
    /// Whether it ends with this process, whoever else holds a handle.
    pub ends_with_creator: bool,
    /// How often it may be started again after its process died.
    pub restarts: u32,
    /// How often a call is tried again when its actor died under it.
    pub call_retries: u32,
    /// Groups of calls that are counted by themselves: the number of each, and how many may run at once.
    pub groups: Vec<(u16, u32)>,
    /// Whether its calls all run on the main thread of its process, however many run at once.
    pub looped: bool,
    /// How many calls may run at once; 1 unless the actor is asynchronous or says otherwise.
    pub concurrency: u32,
    /// How it remembers its state over restarts, if it does.
    pub log: Option<LogSpec>,
}

impl ActorOptions {
    /// Sets the amount of one resource; a message if it is not an amount.
    pub fn set_resource(&mut self, name: &str, amount: f64) -> Result<(), String> {
        self.resources.set(name, parse_amount(name, amount)?);
        Ok(())
    }
}

fn parse_amount(name: &str, amount: f64) -> Result<Amount, String> {
    Amount::from_f64(amount).ok_or_else(|| {
        format!(
            "{amount} is not an amount of {name}\nhint: amounts are not negative and have at most four decimals"
        )
    })
}

/// How each process of a session goes about its tasks and objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Bytes of an encoded value up to which it travels inside messages; no more than [`limits::INLINE_BYTES_MAX`].
    pub inline_bytes_max: usize,
    /// Bytes of finished tasks that stay on record while their results are referenced; 0 if none are to.
    pub lineage_bytes_max: usize,
    /// Tasks that may be submitted and not finished before `remote` blocks.
    pub queued_tasks_max: usize,
    /// How long a task waits before it is tried again.
    pub retry_delay: Duration,
    /// Whether each wait of a task is twice as long as the one before, up to a second.
    pub retry_doubles: bool,
    /// Whether a running task that is cancelled is only told, so that it may go on and give a value after all.
    pub cancel_asks: bool,
    /// Whether a cancel of a finished task means that it is not run again if its value is lost.
    pub cancel_forgets: bool,
    /// Whether tasks go where most of what they read lies.
    pub locality: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            inline_bytes_max: limits::INLINE_BYTES_MAX,
            lineage_bytes_max: limits::LINEAGE_BYTES_MAX,
            queued_tasks_max: limits::QUEUED_TASKS_MAX,
            retry_delay: Duration::ZERO,
            retry_doubles: false,
            cancel_asks: false,
            cancel_forgets: false,
            locality: true,
        }
    }
}

/// How to start a session.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is said about this node, by name.
    pub labels: Labels,
    /// What this node offers.
    pub resources: Resources,
    /// Size of the object store, in bytes.
    pub store_bytes: u64,
    /// Where objects go that do not fit.
    pub spill_directory: PathBuf,
    /// How many bytes may be there at most.
    pub spill_bytes_max: u64,
    /// Part of the object store, in percent, above which objects go there before it is full.
    pub spill_above_percent: u32,
    /// How the driver goes about its tasks and objects; workers that are forked are told by who forks them.
    pub tuning: Tuning,
    /// What becomes of what workers print.
    pub output: OutputOptions,
    /// What a task needs that says nothing about it.
    pub default_shape: Arc<Shape>,
    /// What workers run.
    pub workers: WorkerProgram,
    /// How long a driver that attaches waits for a node that says nothing.
    pub attach_timeout: Duration,
    /// Whether other jobs of the node may use the actors and objects of this driver that attaches.
    pub share: bool,
}

/// How long a driver that attaches waits for its node, if nothing else is said.
pub const ATTACH_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// What tasks get, and the object store, of the memory that this process may use.
fn shares_of(memory: u64) -> (u64, u64) {
    let store = (memory / 10 * 3).clamp(64 << 20, 200 << 30);
    (memory / 10 * 7, store.min(memory))
}

impl Default for Config {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let (memory, store_bytes) = shares_of(aktis_store::memory_bytes());
        Self {
            labels: Labels::new(),
            resources: Resources::none()
                .with(resources::CPU, Amount::units(cpus))
                .with(resources::MEMORY, Amount::units(memory)),
            store_bytes,
            spill_directory: std::env::temp_dir(),
            spill_bytes_max: u64::MAX,
            spill_above_percent: aktis_node::SPILL_ABOVE_PERCENT_DEFAULT,
            tuning: Tuning::default(),
            output: OutputOptions::default(),
            default_shape: Arc::default(),
            workers: WorkerProgram::ThisProgram,
            attach_timeout: ATTACH_TIMEOUT_DEFAULT,
            share: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_machine_offers_no_more_than_it_has() {
        for memory in [1 << 40, 16 << 30, 2 << 30, 128 << 20, 32 << 20] {
            let (tasks, store) = shares_of(memory);
            assert!(tasks < memory && store <= memory, "{memory}: {tasks} and {store}");
        }
        let Config { store_bytes, resources, .. } = Config::default();
        let memory = aktis_store::memory_bytes();
        assert!(store_bytes <= memory && resources.get(resources::MEMORY) <= Amount::units(memory));
    }
}
