//! Libraries from PyPI that use Ray underneath, unmodified, on Aktis.

use crate::{Failed, command, python};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const HELP: &str = "\
Run the programs below python/tests/compat/clients with Aktis in the place of Ray: they use libraries that use Ray.

usage: cargo xtask clients [--ray-python PATH] [PROGRAM ...]

  --ray-python PATH   a Python that has Ray and the libraries: the programs run there, too, and must print the
                      same results

The package has to be installed: see `cargo xtask python`. The libraries are installed below target/clients.";

const PROGRAMS: &str = "python/tests/compat/clients";

/// What the programs import, besides what Aktis needs itself.
const REQUIREMENTS: &[&str] = &[
    "cloudpickle>=3",
    "dask",
    "evotorch",
    "flwr",
    "gymnasium[classic-control]",
    "joblib",
    "modin",
    "numpy",
    "pandas<3", // the newest that Modin can use
    "pymoo",
    "scikit-learn",
    "sktime",
    "swifter",
    "tianshou",
    "torchrl",
    "xgboost==2.0.3", // the newest that xgboost_ray can use
    "xgboost_ray",
];

/// What lines with results begin with. Other lines are of the libraries, and differ from run to run.
const RESULT: &str = "result: ";

/// Runs the programs.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failed> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{HELP}");
        return Ok(());
    }
    let (ray_python, wanted) = parse(arguments)?;
    if !prepare(root) {
        return Err(Failed::Check);
    }
    let mut failed = Vec::new();
    let programs = programs(root, &wanted)?;
    for program in &programs {
        let name = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut ours = Command::new(home(root).join("bin/python"));
        ours.args(["-m", "aktis.compat"]).arg(program).env("PYTHONPATH", root.join("python"));
        let theirs = ray_python.as_ref().map(|python| {
            let mut command = Command::new(python);
            command.arg(program);
            timed(command)
        });
        let ours = timed(ours);
        let beside =
            theirs.as_ref().map_or(String::new(), |theirs| format!(", with Ray {:.1} s", theirs.seconds));
        let differs = theirs.is_some_and(|theirs| theirs.results != ours.results);
        let verdict = match (ours.well, differs) {
            (false, _) => "FAILED",
            (true, true) => "OTHER RESULTS than with Ray",
            (true, false) => "well",
        };
        println!("{name}: {verdict} in {:.1} s{beside}", ours.seconds);
        if !ours.well || differs {
            failed.push(name);
        }
    }
    println!("{} programs, {} failed", programs.len(), failed.len());
    if failed.is_empty() { Ok(()) } else { Err(Failed::Check) }
}

/// The Python that has Ray, if one is named, and the names of the wanted programs.
fn parse(arguments: &[String]) -> Result<(Option<String>, Vec<String>), Failed> {
    let (mut ray_python, mut wanted) = (None, Vec::new());
    let mut left = arguments.iter();
    while let Some(argument) = left.next() {
        match argument.as_str() {
            "--ray-python" => {
                let missing = || Failed::Usage("`--ray-python` needs a path".to_owned());
                ray_python = Some(left.next().ok_or_else(missing)?.clone());
            }
            unknown if unknown.starts_with('-') => {
                return Err(Failed::Usage(format!(
                    "`clients` does not know `{unknown}`\nhint: see `cargo xtask clients --help`"
                )));
            }
            name => wanted.push(name.to_owned()),
        }
    }
    Ok((ray_python, wanted))
}

/// The programs with these names; all, if there are none.
fn programs(root: &Path, wanted: &[String]) -> Result<Vec<PathBuf>, Failed> {
    let folder = std::fs::read_dir(root.join(PROGRAMS)).into_iter().flatten().flatten();
    let mut found: Vec<_> = folder.map(|entry| entry.path()).collect();
    found.retain(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        path.extension().is_some_and(|suffix| suffix == "py")
            && (wanted.is_empty() || wanted.iter().any(|one| *one == name))
    });
    found.sort();
    match found.is_empty() || found.len() < wanted.len() {
        true => {
            Err(Failed::Usage(format!("{PROGRAMS} has no such program\nhint: leave the names out for all")))
        }
        false => Ok(found),
    }
}

/// What came of a program.
struct Outcome {
    well: bool,
    seconds: f64,
    results: Vec<String>,
}

/// Runs a program.
fn timed(mut command: Command) -> Outcome {
    let began = Instant::now();
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let seconds = began.elapsed().as_secs_f64();
    let text =
        output.as_ref().map_or(String::new(), |done| String::from_utf8_lossy(&done.stdout).into_owned());
    let results = text.lines().filter(|line| line.starts_with(RESULT)).map(str::to_owned).collect();
    Outcome { well: output.is_ok_and(|done| done.status.success()), seconds, results }
}

fn home(root: &Path) -> PathBuf {
    python::target_folder(root).join("clients")
}

/// Makes the environment with the libraries unless it is there; whether it is there now.
fn prepare(root: &Path) -> bool {
    let record = home(root).join("requirements.txt");
    let wanted = REQUIREMENTS.join("\n") + "\n";
    if std::fs::read_to_string(&record).is_ok_and(|present| present == wanted) {
        return true;
    }
    if !python::prepare(root) {
        return false;
    }
    let mut make = python::python(root, &["-m", "venv", "--clear"]);
    make.arg(home(root));
    let mut fill = Command::new(home(root).join("bin/python"));
    fill.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(REQUIREMENTS);
    if !(command::run(make) && command::run(fill)) {
        eprintln!("hint: the environment needs packages; is pip able to fetch them?");
        return false;
    }
    let recorded = std::fs::write(&record, wanted);
    recorded.inspect_err(|error| eprintln!("error: cannot write {}: {error}", record.display())).is_ok()
}
