//! Everything that `#[remote]` promises to accept, in a crate that is strict about lints.
#![deny(missing_docs, warnings, unused, unreachable_pub)]
#![forbid(unsafe_code)]

use aktis::prelude::*;
use serde::{Deserialize, Serialize};

/// A function that others see.
#[remote]
pub fn square(x: u64) -> u64 {
    x * x
}

#[remote]
fn nothing() {}

#[remote(cpus = 2, gpus = 0.5, memory = 1_000_000, resources(disk = 1.5, net = 1), retries = 5, name = "fit", isolated)]
fn fit(mut data: Vec<f32>, epochs: u32) -> Result<Model, FitError> {
    data.clear();
    if epochs == 0 { Err(FitError::NoEpochs) } else { Ok(Model { weights: data }) }
}

#[derive(Serialize, Deserialize)]
struct Model {
    weights: Vec<f32>,
}

#[derive(Serialize, Deserialize)]
enum FitError {
    NoEpochs,
}

impl std::fmt::Display for FitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no epochs")
    }
}

#[remote(returns = 2)]
fn split(text: String) -> (String, usize) {
    let length = text.len();
    (text, length)
}

#[remote(returns = 3)]
fn split_or_fail(x: u8) -> std::result::Result<(u8, u16, u32), String> {
    Ok((x, x.into(), x.into()))
}

#[remote(stream, stream_ahead = 8)]
fn count(to: u32) -> impl Iterator<Item = u32> {
    0..to
}

#[remote(stream)]
fn count_boxed(to: u32) -> Box<dyn Iterator<Item = Result<u32, String>> + Send> {
    Box::new((0..to).map(Ok))
}

#[remote(stream)]
fn lines(path: String) -> Result<impl Iterator<Item = String> + 'static, String> {
    if path.is_empty() { Err(path) } else { Ok(std::iter::once(path)) }
}

// Names that the generated code might use itself.
#[remote]
fn run(run: u8, runtime: u16, arguments: String, options: Options) -> aktis::Result<Options> {
    let _ = (run, runtime, arguments);
    Ok(options)
}

/// A user's own type with a common name.
#[derive(Serialize, Deserialize)]
pub struct Options {
    raw: u8,
}

#[remote]
fn raw(r#type: u8) -> u8 {
    r#type
}

#[remote]
fn sum(numbers: Array<f32>, others: Vec<ObjectRef<u64>>) -> f32 {
    numbers.iter().sum::<f32>() + others.len() as f32
}

mod inner {
    use aktis::prelude::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    pub(crate) struct Hidden(u8);

    #[remote]
    pub(super) fn hide(x: u8) -> Hidden {
        Hidden(x)
    }

    #[remote]
    pub(crate) fn show(hidden: Hidden) -> u8 {
        hidden.0
    }
}

fn calls(session: &Session) -> aktis::Result<()> {
    let a: ObjectRef<u64> = square::remote(3);
    let b = square::remote(a.clone());
    let c = square::remote(&b);
    assert_eq!(square(2), 4);
    let refs: Vec<_> = (0..100u64).map(square::remote).collect();
    let refs: Vec<_> = refs.into_iter().map(square::remote).collect();
    let _: Vec<_> = (0..100).map(square::remote).collect();
    let (_ready, _rest) = session.wait(refs, 10, Duration::from_millis(50))?;
    let (_ready, _rest) = aktis::wait(vec![a, b, c], 1, None)?;
    let _: ObjectRef<()> = nothing::remote();
    let _: ObjectRef<Model> = fit::options().gpus(1).cpus(0.5).remote(vec![1.0], 3);
    let (text, length): (ObjectRef<String>, ObjectRef<usize>) = split::remote("text");
    let _ = split::options().retries(0).remote(text);
    let _ = square::remote(session.put(7)?).get_timeout(Duration::from_secs(1))?;
    let (_x, _y, _z) = split_or_fail::remote(1);
    let stream: ObjectStream<u32> = count::remote(10);
    let total: u32 = stream.map(|item| item.and_then(|item| item.get())).sum::<aktis::Result<u32>>()?;
    let _: ObjectStream<u32> = count_boxed::options().stream_ahead(2).remote(total);
    let _: ObjectStream<String> = lines::remote("x");
    let _: ObjectRef<Options> = run::remote(1, 2, "", Options { raw: 1 });
    let _: ObjectRef<u8> = raw::remote(1);
    let numbers = Array::from(vec![1.0_f32]);
    let _ = sum::remote(&numbers, vec![square::remote(1)]);
    let _ = sum::remote(session.put(numbers)?, vec![]);
    let _ = inner::show::remote(inner::hide::remote(1));
    let _ = length.explain();
    Ok(())
}

fn main() {
    #[derive(Serialize, Deserialize)]
    struct Local(u8);

    #[remote]
    fn inside(local: Local) -> u8 {
        local.0
    }

    let _: fn(&Session) -> aktis::Result<()> = calls;
    let _: fn(Local) -> ObjectRef<u8> = inside::remote;
    assert_eq!(inside(Local(2)), 2);
}
