//! Clusters whose nodes are daemons, each in a machine of the network and in a directory of its own.

use crate::Failure;
use crate::network::{Machine, Network};
use aktis::Session;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const AKTIS: &str = env!("CARGO_BIN_EXE_aktis");
/// The port of every head.
const PORT: u16 = 6388;
/// How long anything may take that is not measured.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon, which does not outlive this.
pub(crate) struct Node {
    pub(crate) directory: PathBuf,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Node {
    fn start(
        machine: &Machine,
        directory: PathBuf,
        role: &[&str],
        options: &[&str],
    ) -> Result<Self, Failure> {
        let listen = if role == ["--head"] { PORT } else { 0 };
        let mut command = machine.inside.command(AKTIS)?;
        command.env("AKTIS_DIRECTORY", &directory).arg("start").args(role).args(options);
        command.args(["--listen", &format!("{}:{listen}", machine.address)]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("its output is not a pipe")?);
        Ok(Self { directory, child, output })
    }

    /// The next line that it prints and that begins so.
    fn line(&mut self, begin: &str) -> Result<String, Failure> {
        let mut line = String::new();
        while self.output.read_line(&mut line)? > 0 {
            if let Some(rest) = line.trim().strip_prefix(begin) {
                return Ok(rest.to_owned());
            }
            line.clear();
        }
        Err("a daemon has not started".into())
    }

    /// What a command says to programs about it.
    pub(crate) fn json(&self, arguments: &[&str]) -> Result<Value, Failure> {
        let output =
            aktis(&self.directory).args(arguments).arg("--json").stderr(Stdio::inherit()).output()?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// The nodes that it has links to, and itself.
    fn alive(&self) -> Result<usize, Failure> {
        let listed = self.json(&["list", "nodes", "--state", "alive"])?;
        Ok(listed["nodes"].as_array().ok_or("no list of nodes")?.len())
    }

    /// Where drivers attach.
    pub(crate) fn address(&self) -> Result<String, Failure> {
        Ok(self.directory.join("node").to_str().ok_or("an odd path")?.to_owned())
    }

    /// A driver of this node, which is no matter of namespaces: it attaches through a file.
    pub(crate) fn session(&self) -> Result<Session, Failure> {
        Ok(Session::connect(self.address()?)?)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = aktis(&self.directory).arg("stop").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn aktis(directory: &Path) -> Command {
    let mut command = Command::new(AKTIS);
    command.env("AKTIS_DIRECTORY", directory).stdin(Stdio::null());
    command
}

/// A head and its members, on machines that follow each other.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) token: String,
    head: String,
    directory: tempfile::TempDir,
}

impl Cluster {
    /// Starts a daemon on each of these machines, with these options.
    pub(crate) fn start(machines: &[Machine], options: &[&[&str]]) -> Result<Self, Failure> {
        let mut cluster = Self::begin(&machines[0], options[0])?;
        for (machine, options) in machines[1..].iter().zip(&options[1..]) {
            cluster.add(machine, options)?;
        }
        cluster.wait_for_members()?;
        cluster.wait_for_links()?;
        Ok(cluster)
    }

    /// As [`start`](Self::start), on the machines of a network of its own, from the first on.
    pub(crate) fn on(network: &Network, options: &[&[&str]]) -> Result<Self, Failure> {
        Self::start(&network.machines, options)
    }

    /// Starts the head alone.
    pub(crate) fn begin(machine: &Machine, options: &[&str]) -> Result<Self, Failure> {
        let directory = tempfile::tempdir()?;
        let mut head = Node::start(machine, directory.path().join("0"), &["--head"], options)?;
        let command = head.line("aktis start --address ")?;
        let (address, token) = command.split_once(" --token ").ok_or("the head gives out no token")?;
        let (address, token) = (address.to_owned(), token.to_owned());
        Ok(Self { nodes: vec![head], token, head: address, directory })
    }

    /// Starts a member, and does not wait for it.
    pub(crate) fn add(&mut self, machine: &Machine, options: &[&str]) -> Result<(), Failure> {
        let place = self.directory.path().join(self.nodes.len().to_string());
        let mut member = Node::start(machine, place, &["--address", &self.head, "--token", "-"], options)?;
        let mut input = member.child.stdin.take().ok_or("its input is not a pipe")?;
        writeln!(input, "{}", self.token)?;
        self.nodes.push(member);
        Ok(())
    }

    /// Waits until all that were added say that they are members.
    pub(crate) fn wait_for_members(&mut self) -> Result<(), Failure> {
        for member in &mut self.nodes[1..] {
            member.line("node ")?;
        }
        Ok(())
    }

    /// Waits until the one that was added last says that it is a member.
    pub(crate) fn wait_for_last(&mut self) -> Result<(), Failure> {
        self.nodes.last_mut().ok_or("there is no node")?.line("node ").map(drop)
    }

    /// Waits until all nodes have links to all others.
    pub(crate) fn wait_for_links(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        for node in &self.nodes {
            while node.alive()? < self.nodes.len() {
                if Instant::now() > deadline {
                    return Err("the nodes have not found each other".into());
                }
            }
        }
        Ok(())
    }

    pub(crate) fn head(&self) -> &Node {
        &self.nodes[0]
    }
}
