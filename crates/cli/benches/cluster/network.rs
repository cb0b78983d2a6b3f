//! Machines on one machine: network namespaces, each with a cable to one switch.
//!
//! Invariant: a namespace lasts as long as a process in it, and a cable as long as both its ends; all processes here end
//! with the one that started them. So nothing is left behind, however the benchmark ends.

use crate::Failure;
use crate::arguments::{ENTER, HOLD};
use crate::isolation::die_with_parent;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A switch, and the machines around it.
pub(crate) struct Network {
    pub(crate) switch: Namespace,
    pub(crate) machines: Vec<Machine>,
}

/// A machine, as its cable goes.
pub(crate) struct Machine {
    pub(crate) address: Ipv4Addr,
    pub(crate) inside: Namespace,
    /// The switch's end of its cable.
    port: String,
}

/// A network namespace, and the process that keeps it.
pub(crate) struct Namespace {
    holder: Child,
}

impl Network {
    /// So many machines, with cables as fast as memory.
    pub(crate) fn new(machines: u8) -> Result<Self, Failure> {
        let switch = Namespace::new()?;
        switch.ip("link set lo up\nlink add switch type bridge\nlink set switch up\n")?;
        let machines =
            (1..=machines).map(|number| Machine::new(&switch, number)).collect::<Result<_, _>>()?;
        Ok(Self { switch, machines })
    }

    /// From now on no cable carries more than so many bits in a second, in either direction.
    pub(crate) fn limit(&self, bits_per_second: u64) -> Result<(), Failure> {
        for machine in &self.machines {
            self.switch.limit(&machine.port, bits_per_second)?;
            machine.inside.limit("eth0", bits_per_second)?;
        }
        Ok(())
    }
}

impl Machine {
    fn new(switch: &Namespace, number: u8) -> Result<Self, Failure> {
        let inside = Namespace::new()?;
        let (address, port) = (Ipv4Addr::new(10, 77, 0, number), format!("port{number}"));
        let namespace = inside.holder.id();
        switch.ip(&format!(
            "link add {port} type veth peer name eth0 netns {namespace}\n\
             link set {port} master switch\nlink set {port} up\n"
        ))?;
        inside.ip(&format!("link set lo up\naddress add {address}/24 dev eth0\nlink set eth0 up\n"))?;
        Ok(Self { address, inside, port })
    }
}

impl Namespace {
    fn new() -> Result<Self, Failure> {
        let mut holder = Command::new("unshare")
            .args(["--net", "--"])
            .arg(std::env::current_exe()?)
            .arg(HOLD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = holder.stdout.take().ok_or("its output is not a pipe")?;
        let namespace = Self { holder };
        if BufReader::new(stdout).lines().next().is_none() {
            return Err(
                "there is no network namespace to be had\nhint: the benchmark has to run as root".into()
            );
        }
        Ok(namespace)
    }

    /// A command that runs in here, and ends with the thread that starts it.
    pub(crate) fn command(&self, program: &str) -> Result<Command, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([ENTER, &self.holder.id().to_string(), program]).stdin(Stdio::null());
        Ok(command)
    }

    /// This program, in here.
    pub(crate) fn this_program(&self, part: &str) -> Result<Command, Failure> {
        let mut command = self.command(std::env::current_exe()?.to_str().ok_or("an odd path")?)?;
        command.arg(part);
        Ok(command)
    }

    fn ip(&self, orders: &str) -> Result<(), Failure> {
        let mut command = self.command("ip")?;
        let mut child = command.args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
        child.stdin.take().ok_or("its input is not a pipe")?.write_all(orders.as_bytes())?;
        if child.wait()?.success() { Ok(()) } else { Err(format!("`ip` refused:\n{orders}").into()) }
    }

    fn limit(&self, device: &str, bits_per_second: u64) -> Result<(), Failure> {
        // What a token bucket gives out in ten milliseconds, and what may wait for it.
        let (rate, burst) =
            (format!("{bits_per_second}bit"), (bits_per_second / 800).max(1 << 17).to_string());
        let mut command = self.command("tc")?;
        command.args(["qdisc", "replace", "dev", device, "root", "tbf", "rate", &rate, "burst", &burst]);
        let status = command.args(["latency", "20ms"]).status()?;
        if status.success() { Ok(()) } else { Err(format!("`tc` refused to limit {device}").into()) }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The end of its input is the end of its work.
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// Keeps a namespace until the input ends.
pub(crate) fn hold() -> Result<(), Failure> {
    die_with_parent()?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Becomes another program, in the namespace of a process.
pub(crate) fn enter(namespace: &str, command: &[String]) -> Result<(), Failure> {
    die_with_parent()?;
    Err(Command::new("nsenter").args(["--target", namespace, "--net", "--"]).args(command).exec().into())
}
