//! `cargo xtask chaos`: a workload with known answers, while processes of its cluster are killed and stopped.

use crate::{Failed, command, python};
use std::path::Path;

const HELP: &str = "\
Run a mixed workload on a cluster of this machine, while its workers, nodes and control process are killed and
stopped at random instants; fail unless every answer is right, and no object, lease or file is left over.

usage: cargo xtask chaos [--seconds N] [--seed N] [--nodes N] [--drivers N] [--pause SECONDS] [--faults KIND...]

  --seconds N      how long faults happen (60)
  --seed N         which faults and operations (1)
  --nodes N        nodes beside the head (4)
  --drivers N      processes that submit work (2)
  --pause SECONDS  between two faults, on average (2)
  --faults KIND... of worker, node, control, stop-worker, stop-node (all)";

/// Builds the Python package, and runs the workload.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failed> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{HELP}");
        return Ok(());
    }
    if !(python::prepare(root) && python::install(root)) {
        return Err(Failed::Check);
    }
    let mut words = vec!["benches/chaos/run.py"];
    words.extend(arguments.iter().map(String::as_str));
    if command::run(python::python(root, &words)) { Ok(()) } else { Err(Failed::Check) }
}
