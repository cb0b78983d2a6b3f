//! Options of one call or creation, in a chain: `fit::options().gpus(1).remote(data)`.
//!
//! The macros generate one small type per function and actor; what its methods do is here, once.

use aktis_protocol::resources;
use aktis_runtime::{ActorOptions, Error, TaskOptions};

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

    /// What is wrong with the options, if anything.
    pub fn check(&self) -> Result<(), Error> {
        self.problem.clone().map_or(Ok(()), |problem| Err(Error::Invalid(problem)))
    }
}

/// The name of the processor resource.
pub const CPU: &str = resources::CPU;
/// The name of the accelerator resource.
pub const GPU: &str = resources::GPU;
/// The name of the memory resource.
pub const MEMORY: &str = resources::MEMORY;

/// The chain methods for resources; the type has a field `settings`.
#[doc(hidden)]
#[macro_export]
macro_rules! __resource_methods {
    () => {
        /// How many CPUs are held; fractions are possible.
        pub fn cpus(mut self, amount: impl $crate::Quantity) -> Self {
            self.settings.resource($crate::__private::CPU, amount);
            self
        }
        /// How many GPUs are held; fractions share one.
        pub fn gpus(mut self, amount: impl $crate::Quantity) -> Self {
            self.settings.resource($crate::__private::GPU, amount);
            self
        }
        /// How many bytes of memory are held.
        pub fn memory(mut self, bytes: impl $crate::Quantity) -> Self {
            self.settings.resource($crate::__private::MEMORY, bytes);
            self
        }
        /// How much of a resource with a name of your own is held.
        pub fn resource(mut self, name: &str, amount: impl $crate::Quantity) -> Self {
            self.settings.resource(name, amount);
            self
        }
    };
}

/// The chain methods of a task's options.
#[doc(hidden)]
#[macro_export]
macro_rules! __task_option_methods {
    () => {
        $crate::__resource_methods!();
        /// How often the task is run again if its worker process dies.
        pub fn retries(mut self, retries: u32) -> Self {
            self.settings.options.retries = Some(retries);
            self
        }
        /// Another name for people to see.
        pub fn name(mut self, name: &str) -> Self {
            self.settings.options.name = Some(name.into());
            self
        }
        /// On which nodes it may run, and which of them it prefers.
        pub fn strategy(mut self, strategy: $crate::Strategy) -> Self {
            self.settings.options.shape_mut().strategy = strategy;
            self
        }
        /// Runs on one node after the other.
        pub fn spread(self) -> Self {
            self.strategy($crate::Strategy::Spread)
        }
        /// Runs on this node and no other.
        pub fn on_node(self, node: $crate::NodeId) -> Self {
            self.strategy($crate::Strategy::Node { node, soft: false })
        }
        /// Uses the resources of a placement group, or of one bundle of it.
        pub fn in_group(mut self, place: impl Into<$crate::GroupPlace>) -> Self {
            self.settings.options.shape_mut().group = Some(place.into());
            self
        }
        /// Runs in a worker process that runs nothing else meanwhile.
        pub fn isolated(mut self) -> Self {
            self.settings.options.shape_mut().isolated = true;
            self
        }
        /// Of what waits, tasks with a higher one are run first; 0 is the usual one.
        pub fn priority(mut self, priority: i32) -> Self {
            self.settings.options.shape_mut().priority = priority;
            self
        }
        /// How long after its submission the task is cancelled, if it is not done.
        pub fn deadline(mut self, allowed: ::core::time::Duration) -> Self {
            self.settings.options.deadline = Some(allowed);
            self
        }
        /// How far a streaming task may be ahead of its consumer.
        pub fn stream_ahead(mut self, items: u32) -> Self {
            self.settings.options.stream_ahead = Some(items.max(1));
            self
        }
    };
}

/// The chain methods of an actor's options.
#[doc(hidden)]
#[macro_export]
macro_rules! __actor_option_methods {
    () => {
        $crate::__resource_methods!();
        /// A name under which `find` gives the actor to others.
        pub fn name(mut self, name: &str) -> Self {
            self.settings.options.name = Some(name.into());
            self
        }
        /// Lives even without handles: until it is killed or the session ends, on a cluster until it is killed.
        pub fn detached(mut self) -> Self {
            self.settings.options.detached = true;
            self
        }
        /// How often the actor is started again if its process dies.
        pub fn restarts(mut self, restarts: u32) -> Self {
            self.settings.options.restarts = restarts;
            self
        }
        /// How often a call is tried again if the actor dies under it.
        pub fn call_retries(mut self, retries: u32) -> Self {
            self.settings.options.call_retries = retries;
            self
        }
        /// On which nodes it may live, and which of them it prefers.
        pub fn strategy(mut self, strategy: $crate::Strategy) -> Self {
            self.settings.options.strategy = strategy;
            self
        }
        /// Lives on one node after the other.
        pub fn spread(self) -> Self {
            self.strategy($crate::Strategy::Spread)
        }
        /// Lives on this node and no other.
        pub fn on_node(self, node: $crate::NodeId) -> Self {
            self.strategy($crate::Strategy::Node { node, soft: false })
        }
        /// Uses the resources of a placement group, or of one bundle of it.
        pub fn in_group(mut self, place: impl Into<$crate::GroupPlace>) -> Self {
            self.settings.options.group = Some(place.into());
            self
        }
        /// Of those that wait for resources, actors with a higher one get a place first; 0 is the usual one.
        pub fn priority(mut self, priority: i32) -> Self {
            self.settings.options.priority = priority;
            self
        }
        /// Lives in a worker process of its own.
        pub fn isolated(mut self) -> Self {
            self.settings.options.isolated = true;
            self
        }
    };
}
