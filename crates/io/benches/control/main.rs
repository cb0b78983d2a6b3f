//! `cargo xtask bench control`: how fast, how small and how soon back the control store is.
//!
//! Each row runs in a process of its own, so that none measures in memory that an earlier one left behind.

mod figure;
mod rows;

use figure::Figure;
use std::process::{Command, ExitCode, Stdio};

/// As in the programs that have a control store.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Why a row, or the whole program, did not get to its end.
type Failure = Box<dyn std::error::Error + Send + Sync>;

const HELP: &str = "\
Measure the control store on this machine.

usage: cargo bench -p aktis-io --bench control -- [--quick] [--json FILE] [FILTER...]

  --quick        smaller numbers: a look, not a figure to quote
  --json FILE    also write the figures to FILE, one object in each line
  FILTER...      only the rows whose names contain one of these";

/// The first argument of a process that measures one row.
const ROW: &str = "--measure-row";

#[derive(Default)]
struct Arguments {
    quick: bool,
    json: Option<String>,
    row: Option<String>,
    filters: Vec<String>,
}

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut words: impl Iterator<Item = String>) -> Result<(), Failure> {
    let (mut arguments, mut from_cargo) = (Arguments::default(), false);
    while let Some(word) = words.next() {
        match word.as_str() {
            ROW => arguments.row = Some(words.next().ok_or("which row?")?),
            "--quick" => arguments.quick = true,
            "--json" => arguments.json = Some(words.next().ok_or("`--json` wants the name of a file")?),
            "--bench" => from_cargo = true,
            // A test runner looks for tests.
            "--list" => return Ok(()),
            "--help" | "-h" => {
                println!("{HELP}");
                return Ok(());
            }
            option if option.starts_with('-') => {
                return Err(format!("unknown option `{option}`\nhint: `--help` shows them").into());
            }
            _ => arguments.filters.push(word),
        }
    }
    if let Some(row) = &arguments.row {
        return measure_here(row, arguments.quick);
    }
    if cfg!(debug_assertions) && !from_cargo {
        // `cargo test --all-targets` runs benchmarks too, in a build whose figures mean nothing.
        println!("nothing to test here: run `cargo xtask bench control`");
        return Ok(());
    }
    measure_all(&arguments)
}

fn measure_here(name: &str, quick: bool) -> Result<(), Failure> {
    let row = rows::ALL.iter().find(|row| row.name == name).ok_or("there is no such row")?;
    for figure in (row.measure)(quick)? {
        println!("{}", figure.to_line());
    }
    Ok(())
}

/// Measures all rows that were asked for. A figure that misses what is wanted is a result; a row that does not come
/// to its end is a failure.
fn measure_all(arguments: &Arguments) -> Result<(), Failure> {
    let is_named = |name: &str| arguments.filters.iter().any(|filter| name.contains(filter.as_str()));
    let (mut figures, mut failures) = (Vec::new(), Vec::new());
    for row in rows::ALL.iter().filter(|row| arguments.filters.is_empty() || is_named(row.name)) {
        eprintln!("measuring {}", row.name);
        match measure_apart(row.name, arguments.quick) {
            Ok(measured) => figures.extend(measured),
            Err(failure) => failures.push(format!("row `{}`: {failure}", row.name)),
        }
    }
    println!("{}", figure::table(&figures));
    if let Some(file) = &arguments.json {
        let lines: String = figures.iter().map(Figure::to_json).collect();
        std::fs::write(file, lines).map_err(|error| format!("cannot write {file}: {error}"))?;
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\nerror: ").into()) }
}

fn measure_apart(row: &str, quick: bool) -> Result<Vec<Figure>, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([ROW, row]).args(quick.then_some("--quick")).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("its process ended with {}", output.status).into());
    }
    String::from_utf8(output.stdout)?.lines().map(Figure::from_line).collect()
}
