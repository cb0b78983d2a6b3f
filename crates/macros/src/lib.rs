//! The attributes of Aktis: `remote` for functions, `actor` for impls.
//!
//! Both leave the code as it is and add to it: what can be called here can still be called here. What they
//! add is thin and typed; everything it does is in the crate `aktis`.
//!
//! Invariants:
//! 1. Generated names start with `__aktis`, or are those that the documentation promises.
//! 2. Everything refused is refused with a span on the culprit, and says what to do instead.
//! 3. A function defined inside a function body works like any other: no modules are generated.

mod actor;
mod method;
mod options;
mod signature;
mod task;

use proc_macro::TokenStream;

/// Makes a function callable as a task: `square::remote(3)` runs `square` in a worker process and gives an
/// `ObjectRef` at once. `square(3)` still calls it here.
///
/// Arguments and return values are owned and serialisable. Where the function takes a `T`, `remote` takes
/// a `T` or an `ObjectRef<T>`. A function that returns `Result<T, E>` gives an `ObjectRef<T>`, and its
/// error comes back typed.
///
/// Options, each also a method of `square::options()`:
///
/// - `cpus = 2`, `gpus = 0.5`, `memory = 1_000_000`, `resources(disk = 1.5)`: what it holds while it runs
/// - `retries = 5`: how often it runs again after its worker process died
/// - `isolated`: a worker process that runs nothing else meanwhile
/// - `name = "fit"`: another name for people to see
/// - `returns = 2`: gives a tuple of references instead of a reference to a tuple
/// - `stream`, `stream_ahead = 8`: returns an iterator; gives an `ObjectStream` of its items
#[proc_macro_attribute]
pub fn remote(attributes: TokenStream, item: TokenStream) -> TokenStream {
    expand(task::expand(attributes.into(), item.clone().into()), item)
}

/// Makes a type's methods callable remotely: `Counter::remote(10)` creates an actor in a worker process and
/// gives a `CounterHandle` at once, with the same methods; each gives an `ObjectRef`.
///
/// The impl has a constructor `fn new(..) -> Self` (or `Result<Self, E>`). Methods take `&self` or
/// `&mut self` and may be async. Calls through one process run in order, one at a time, unless the actor
/// has async methods or `max_concurrency`; calls with `&mut self` never overlap others. Functions without
/// `self` and methods marked `#[local]` are left alone.
///
/// Options, each also a method of `Counter::options()` unless noted:
///
/// - `restarts = 3`: how often it is started again after its process died
/// - `call_retries = 1`: how often a call is tried again when the actor died under it
/// - `max_concurrency = 8`: how many calls may run at once (only here)
/// - `isolated`: a worker process of its own
/// - `name = "counter"`, `detached`: found by `Counter::find`, lives without handles
/// - `cpus`, `gpus`, `memory`, `resources(..)`: what it holds for its whole life
#[proc_macro_attribute]
pub fn actor(attributes: TokenStream, item: TokenStream) -> TokenStream {
    expand(actor::expand(attributes.into(), item.clone().into()), item)
}

/// The expansion; or the errors and the untouched item, so that the compiler can go on.
fn expand(expansion: syn::Result<proc_macro2::TokenStream>, item: TokenStream) -> TokenStream {
    match expansion {
        Ok(tokens) => tokens.into(),
        Err(error) => {
            let mut tokens = TokenStream::from(error.to_compile_error());
            tokens.extend(actor::without_marks(item.into()).map(TokenStream::from));
            tokens
        }
    }
}
