//! `iperf3`, one stream: what the network carries without us.

use crate::Failure;
use crate::network::Machine;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Installs it, where Debian's packages are to be had and it is not there.
pub(crate) fn install() -> Result<(), Failure> {
    let is_there = || Command::new("iperf3").arg("--version").stdout(Stdio::null()).status().is_ok();
    if is_there() {
        return Ok(());
    }
    let mut command = Command::new("apt-get");
    command.args(["install", "--yes", "--quiet", "iperf3"]).env("DEBIAN_FRONTEND", "noninteractive");
    let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    if is_there() {
        Ok(())
    } else {
        Err("there is no iperf3\nhint: install it: apt-get install iperf3".into())
    }
}

/// Bytes per second of one stream from one machine to another.
pub(crate) fn stream(from: &Machine, to: &Machine, seconds: u32) -> Result<f64, Failure> {
    let address = to.address.to_string();
    let mut server = to.inside.command("iperf3")?;
    server.args(["--server", "--one-off", "--forceflush", "--bind", &address]).stdout(Stdio::piped());
    let mut server = server.spawn()?;
    let output = server.stdout.take().ok_or("its output is not a pipe")?;
    let mut lines = BufReader::new(output).lines();
    let is_ready = |line: Result<String, _>| line.is_ok_and(|line: String| line.contains("listening"));
    if !lines.any(is_ready) {
        return Err("iperf3 does not listen".into());
    }
    // Its last words must find a reader.
    let drain = std::thread::spawn(move || lines.for_each(drop));
    let mut client = from.inside.command("iperf3")?;
    let seconds = seconds.to_string();
    let report = client.args(["--client", &address, "--time", &seconds, "--omit", "1", "--json"]).output()?;
    server.wait()?;
    let _ = drain.join();
    let report: Value = serde_json::from_slice(&report.stdout)?;
    let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(bits.ok_or_else(|| format!("iperf3 says {}", report["error"]))? / 8.0)
}
