//! Options of one call or creation, in a chain: `fit::options().gpus(1).remote(data)`.
//!
//! [`task`] and [`actor`] have the public types. `remote`, at the end of a chain, takes the arguments of one
//! function, so the macros generate it on a type of their own; the public types dereference to that type.

pub(crate) mod actor;
pub(crate) mod task;

use aktis_protocol::resources;
use aktis_runtime::{ActorOptions, Error, TaskOptions};
use std::path::Path;

/// A number that says how much of a resource: any integer or floating-point number.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an amount of a resource",
    note = "give a number, as in `.cpus(2)` or `.gpus(0.5)`"
)]
pub trait Quantity {
    /// The number.
    fn to_f64(self) -> f64;
}

macro_rules! quantities {
    ($($type:ty)*) => {
        $(impl Quantity for $type {
            fn to_f64(self) -> f64 {
                self as f64
            }
        })*
    };
}

quantities!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64);

/// Options of one task, until it is submitted.
#[derive(Clone, Debug, Default)]
pub struct TaskSettings {
    /// The options so far.
    pub options: TaskOptions,
    problem: Option<String>,
}

/// Options of one actor, until it is created.
#[derive(Clone, Debug, Default)]
pub struct ActorSettings {
    /// The options so far.
    pub options: ActorOptions,
    problem: Option<String>,
}

/// The generated end of a chain of options: settings, and `remote` with the arguments of one function or constructor.
pub trait Chain<S> {
    /// Starts with these settings.
    fn new(settings: S) -> Self;
    /// The settings so far.
    fn settings(&self) -> &S;
    /// The settings so far, to be changed.
    fn settings_mut(&mut self) -> &mut S;
}

impl TaskSettings {
    /// Starts from a function's own options.
    pub fn from_default(options: &TaskOptions) -> Self {
        Self { options: options.clone(), problem: None }
    }

    /// Sets a resource; a problem is kept until the task is submitted.
    pub fn resource(&mut self, name: &str, amount: impl Quantity) {
        if let Err(problem) = self.options.set_resource(name, amount.to_f64()) {
            self.problem.get_or_insert(problem);
        }
    }

    /// What is wrong with the options, if anything.
    pub fn check(&self) -> Result<(), Error> {
        self.problem.clone().map_or(Ok(()), |problem| Err(Error::Invalid(problem)))
    }
}

impl ActorSettings {
    /// Starts from an actor's own options.
    pub fn from_default(options: &ActorOptions) -> Self {
        Self { options: options.clone(), problem: None }
    }

    /// Sets a resource; a problem is kept until the actor is created.
    pub fn resource(&mut self, name: &str, amount: impl Quantity) {
        if let Err(problem) = self.options.set_resource(name, amount.to_f64()) {
            self.problem.get_or_insert(problem);
        }
    }

    /// The actor saves its state after so many calls, or this many milliseconds; with 0 and 0, when it asks for that.
    pub fn checkpoint(&mut self, every_calls: u32, every_milliseconds: u64) {
        let log = self.options.log.get_or_insert_default();
        (log.every_calls, log.every_milliseconds) = (every_calls, every_milliseconds);
    }

    /// Where the actor's checkpoints and log are.
    pub fn checkpoint_directory(&mut self, path: &Path) {
        let Some(path) = path.to_str().filter(|path| path.starts_with('/')) else {
            let text = format!("`checkpoint_directory` is an absolute path, but is {}", path.display());
            self.problem.get_or_insert(text);
            return;
        };
        let log = self.options.log.get_or_insert_default();
        (log.directory, log.synced) = (path.to_owned(), true);
    }

    /// What is wrong with the options, if anything.
    pub fn check(&self) -> Result<(), Error> {
        self.problem.clone().map_or(Ok(()), |problem| Err(Error::Invalid(problem)))
    }
}

/// The name of the processor resource.
pub(crate) const CPU: &str = resources::CPU;
/// The name of the accelerator resource.
pub(crate) const GPU: &str = resources::GPU;
/// The name of the memory resource.
pub(crate) const MEMORY: &str = resources::MEMORY;
