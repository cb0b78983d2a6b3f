//! `cargo xtask bench engine`: what the engine does per second, and how near it is to what the machine can do.
//!
//! This program plays three parts, told apart by its first argument. Without a special one it goes through the
//! rows and prints the table. It starts itself again for every row, so that no row measures in memory that an earlier
//! one left behind, and a row that fails takes no other with it. And a row that measures the machine's own limits starts
//! it once more, as the other end of a round trip. Worker processes of the engine never get here: they begin before
//! `main`.

mod arguments;
mod cores;
mod figure;
mod isolation;
mod memory;
mod peer;
mod progress;
mod report;
mod rows;
mod samples;
mod warm_copy;

use arguments::{Arguments, Part};
use std::process::ExitCode;

/// A million tasks are millions of small allocations, in the driver and its workers: a program that submits so
/// many chooses its allocator, and so does this one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Why a row, or the whole program, did not get to its end.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let outcome = Arguments::part(std::env::args().skip(1)).and_then(|part| match part {
        Part::Table(arguments) => measure_all(&arguments),
        Part::Row { name, scale } => isolation::measure_here(&name, scale),
        Part::Peer(call) => peer::answer(&call),
        Part::Nothing(why) => {
            println!("{why}");
            Ok(())
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Measures all rows that were asked for, and says what came out. A figure that misses what is wanted is a
/// result; a row that does not come to its end is a failure.
fn measure_all(arguments: &Arguments) -> Result<(), Failure> {
    let rows: Vec<_> = rows::ALL.iter().filter(|row| arguments.wants(row)).collect();
    if rows.is_empty() {
        let names: Vec<_> = rows::ALL.iter().map(|row| row.name).collect();
        return Err(format!("no row has such a name\nhint: the rows are {}", names.join(", ")).into());
    }
    let mut figures = Vec::new();
    let mut failures = Vec::new();
    for (position, row) in rows.iter().enumerate() {
        progress::say(format_args!("[{}/{}] {}", position + 1, rows.len(), row.name));
        match isolation::measure(row, arguments.scale) {
            Ok(measured) => figures.extend(measured),
            Err(failure) => failures.push(format!("row `{}`: {failure}", row.name)),
        }
    }
    progress::clear();
    println!("{}", report::table(&figures));
    if let Some(file) = &arguments.json {
        std::fs::write(file, report::json_lines(&figures))
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\nerror: ").into()) }
}
