//! The attributes of Aktis: `remote` for functions, `actor` for impls.
//!
//! Both leave the code as it is and add to it: what can be called here can still be called here. What they
//! add is thin and typed; everything it does is in the crate `aktis`.
//!
//! Invariants:
//! 1. Generated names start with `__aktis`, or are those that the documentation promises.
//! 2. Everything refused is refused with a span on the culprit, and says what to do instead.
//! 3. A function defined inside a function body works like any other: no modules are generated.
//! 4. What is refused has all names that it would have, so that one mistake is one error.

mod actor;
mod generics;
mod map;
mod method;
mod options;
mod place;
mod signature;
mod start;
mod task;

use proc_macro::TokenStream;

/// Makes a function callable as a task: `square::remote(3)` runs `square` in a worker process and gives an
/// `ObjectRef` at once. `square(3)` still calls it here.
///
/// Arguments and return values are owned and serialisable. Where the function takes a `T`, `remote` takes
/// a `T` or an `ObjectRef<T>`. A function that returns `Result<T, E>` gives an `ObjectRef<T>`, and its
/// error comes back typed.
///
/// `square::map(items)` runs it for each item of an iterator, many items in one task, and gives the results as an
/// iterator. A function of several arguments takes tuples.
///
/// # Options
///
/// Each of these is also a method of `square::options()`, for one call; the type `TaskOptions` describes them:
///
/// - `cpus = 2`, `gpus = 0.5`, `memory = 1_000_000`, `resources(disk = 1.5)`: what it holds while it runs
/// - `retries = 5`: how often it runs again after its worker process died
/// - `isolated`: a worker process that runs nothing else meanwhile
/// - `priority = 1`: of the tasks that wait, those with the highest run first
/// - `deadline = 1.5`: seconds after its submission when it is cancelled, if it is not done
/// - `name = "fit"`: another name for people to see
/// - `stream_ahead = 8`: with `stream`, how many items it may be ahead of its consumer
///
/// These are on the attribute only:
///
/// - `returns = 2`: gives a tuple of references instead of a reference to a tuple
/// - `stream`: returns an iterator; gives an `ObjectStream` of its items
/// - `T = [u64, f64]`: the types that the type parameter `T` is used with
///
/// And these on one call only: `spread`, `on_node`, `strategy`, `in_group`.
///
/// # Type parameters
///
/// Workers find functions by name and types, so a generic function lists its types: with
/// `#[remote(T = [u64, f64])]`, `total::<u64>::remote(..)` and `total::<f64>::remote(..)` compile. Several
/// lists make all combinations; `(K, V) = [(u8, u64), (String, f64)]` makes two. A `const N: usize` is listed as
/// `N = [16, 32]`.
#[proc_macro_attribute]
pub fn remote(attributes: TokenStream, item: TokenStream) -> TokenStream {
    task::expand(attributes.into(), item.into(), is_associated).into()
}

/// Makes a type's methods callable remotely: `Counter::remote(10)` creates an actor in a worker process and
/// gives a `CounterHandle` at once, with the same methods; each gives an `ObjectRef`.
///
/// The impl has a constructor `fn new(..) -> Self` (or `Result<Self, E>`). Methods take `&self` or
/// `&mut self` and may be async. Calls through one process run in order, one at a time, unless the actor
/// has async methods or `max_concurrency`; calls with `&mut self` never overlap others. Functions without
/// `self` and methods marked `#[local]` are left alone.
///
/// Functions called `remote`, `options` and `find` are what the attribute adds to the type, so the impl has none of
/// these names.
///
/// # Options
///
/// Each of these is also a method of `Counter::options()`, for one actor; the type `ActorOptions` describes them:
///
/// - `restarts = 3`: how often it is started again after its process died
/// - `call_retries = 1`: how often a call is tried again when the actor died under it
/// - `isolated`: a worker process of its own
/// - `name = "counter"`, `detached`: found by `Counter::find`, lives without handles
/// - `cpus = 2`, `gpus = 0.5`, `memory = 1_000_000`, `resources(disk = 1.5)`: what it holds for its whole life
/// - `priority = 1`: of the actors that wait for resources, those with the highest get a place first
///
/// These are on the attribute only:
///
/// - `max_concurrency = 8`: how many calls may run at once
/// - `T = [u64, String]`: the types that the type parameter `T` is used with, as for `#[remote]`. The handle has the
///   same parameters: `StackHandle<u64>`.
///
/// And these on one actor only: `spread`, `on_node`, `strategy`, `in_group`. A deadline is of calls:
/// `handle.with_deadline(..)`.
#[proc_macro_attribute]
pub fn actor(attributes: TokenStream, item: TokenStream) -> TokenStream {
    actor::expand(attributes.into(), item.into()).into()
}

/// Runs a function once in each worker process, before its first task: for loggers, panic hooks, thread pools.
///
/// The function takes nothing, and returns nothing or a `Result<(), E>` whose error has a `Display`. If it fails or panics,
/// all that the worker is given fails with its error; it is not tried again. It does not run in the driver. If there
/// are several such functions, their order is not specified.
///
/// ```ignore
/// #[aktis::on_worker_start]
/// fn set_up() {
///     std::panic::set_hook(Box::new(|info| eprintln!("outside of any task: {info}")));
/// }
/// ```
#[proc_macro_attribute]
pub fn on_worker_start(attributes: TokenStream, item: TokenStream) -> TokenStream {
    match start::expand(attributes.into(), item.clone().into()) {
        Ok(tokens) => tokens.into(),
        // The untouched function lets the compiler go on.
        Err(error) => [TokenStream::from(error.to_compile_error()), item].into_iter().collect(),
    }
}

/// Whether the function with this name, which has the attribute, is inside an impl or a trait.
fn is_associated(name: &str) -> bool {
    let attribute = proc_macro::Span::call_site();
    // A function at the left edge is at the top of a module.
    attribute.column() > 1
        && attribute
            .local_file()
            .and_then(|path| std::fs::read_to_string(path).ok())
            .is_some_and(|source| place::is_associated(&source, attribute.line(), attribute.column(), name))
}
