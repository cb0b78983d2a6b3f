//! `cargo xtask bench cluster`: what a cluster does, next to what its network does in the same run.
//!
//! The machines of the cluster are network namespaces of this one. This program plays several parts, told apart by its
//! first argument: without a special one it goes through the rows and prints the table; it starts itself again for every
//! row, and rows start it once more for what has to happen inside a namespace. Worker processes of the engine never get
//! here: they begin before `main`.

mod arguments;
mod capture;
mod cluster;
mod echo;
mod iperf;
mod network;
mod plot;
mod rows;

// What a figure is, how it is shown and how a row is kept apart from others is the same in the engine's benchmark, which
// also knows units that are not used here.
#[path = "../../../api/benches/engine/figure.rs"]
#[allow(dead_code)]
mod figure;
#[path = "../../../api/benches/engine/isolation.rs"]
mod isolation;
#[path = "../../../api/benches/engine/progress.rs"]
mod progress;
#[path = "../../../api/benches/engine/report.rs"]
mod report;
#[path = "../../../api/benches/engine/samples.rs"]
#[allow(dead_code)]
mod samples;

use arguments::{Arguments, Part};
use std::process::ExitCode;

/// As in the engine's benchmark: a program that submits so many tasks chooses its allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Why a row, or the whole program, did not get to its end.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let outcome = Arguments::part(std::env::args().skip(1)).and_then(|part| match part {
        Part::Table(arguments) => measure_all(&arguments),
        Part::Row { name, scale } => isolation::measure_here(&name, scale),
        Part::Hold => network::hold(),
        Part::Enter { namespace, command } => network::enter(&namespace, &command),
        Part::Echo(address) => echo::answer(&address),
        Part::Ask { address, count } => echo::ask(&address, count),
        Part::Capture => capture::watch(),
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
    let (mut figures, mut failures) = (Vec::new(), Vec::new());
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
