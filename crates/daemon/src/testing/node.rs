//! One node of a cluster of a test: a process, from both sides.
//!
//! The process is this very program with [`ARGUMENT`]. What it has to know comes through its standard input, the end of
//! which is the order to end.

use super::{AGAIN, ClusterError, PATIENCE};
use crate::admin::Client;
use crate::daemon::{Daemon, DaemonConfig, HideControl, Role};
use crate::directory::LOG_NAME;
use aktis_protocol::control::{decode, encode};
use aktis_protocol::{Amount, NodeId};
use aktis_runtime::registry::MODES;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Instant;

/// What makes a program a node.
const ARGUMENT: &str = "--aktis-test-node";

/// What a node has to know.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Given {
    pub(super) directory: PathBuf,
    /// The address of the head, and a token; nothing for the head.
    pub(super) join: Option<(String, String)>,
    pub(super) resources: BTreeMap<String, Amount>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) store_bytes: u64,
}

/// A node's process, which does not outlive this.
#[derive(Debug)]
pub(super) struct Node {
    child: Child,
    /// Its end is the node's.
    input: Option<ChildStdin>,
    directory: PathBuf,
    id: NodeId,
}

impl Node {
    /// Starts a node, and waits until it is ready.
    pub(super) fn start(given: Given) -> Result<Self, ClusterError> {
        let system = |what| move |source| ClusterError::System { what, source };
        let log = log_of(&given.directory);
        let output = File::create(&log).map_err(system("a file"))?;
        let errors = output.try_clone().map_err(system("a descriptor"))?;
        let mut child = Command::new("/proc/self/exe")
            .arg(ARGUMENT)
            // They would tell workers to attach to another node.
            .env_remove("AKTIS_ADDRESS")
            .env_remove("AKTIS_DIRECTORY")
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(system("a process"))?;
        let input = child.stdin.take();
        let mut node = Self { child, input, directory: given.directory.clone(), id: NodeId::default() };
        if let Some(input) = &mut node.input {
            let bytes = encode(&given);
            let length = (bytes.len() as u32).to_le_bytes();
            // If it is gone, its log says why.
            let _ = input.write_all(&length).and_then(|()| input.write_all(&bytes));
        }
        node.id = node.wait_until_ready(&log)?;
        Ok(node)
    }

    fn wait_until_ready(&mut self, log: &Path) -> Result<NodeId, ClusterError> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Ok(status) = Client::connect(&self.directory).and_then(|mut client| client.status()) {
                return Ok(status.node);
            }
            let ended = self.child.try_wait().is_ok_and(|status| status.is_some());
            if ended || Instant::now() >= until {
                let words = std::fs::read_to_string(log).unwrap_or_default();
                return Err(ClusterError::NotStarted(words.trim().to_owned()));
            }
            std::thread::sleep(AGAIN);
        }
    }

    pub(super) fn id(&self) -> NodeId {
        self.id
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn kill(mut self) {
        let _ = self.child.kill();
    }

    /// Has it end by itself, if it can.
    pub(super) fn end(mut self) {
        drop(self.input.take());
        let until = Instant::now() + PATIENCE;
        while self.child.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < until {
            std::thread::sleep(AGAIN);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It is dead already, or it does not listen.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asked before `main`: whether this program was started to be a node.
#[linkme::distributed_slice(MODES)]
static BECOME_NODE: fn() = become_node;

/// Makes sure that the above is linked into every program that starts a cluster.
pub(super) fn is_linked() {
    std::hint::black_box(&BECOME_NODE);
}

fn become_node() {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT) {
        aktis_store::ignore_broken_pipes();
        let code = run().map_or_else(
            |problem| {
                eprintln!("{problem}");
                1
            },
            |()| 0,
        );
        std::process::exit(code);
    }
}

fn run() -> Result<(), String> {
    let given = read_given().map_err(|error| format!("nobody says what this node is: {error}"))?;
    let directory = given.directory.clone();
    let role = match given.join {
        None => Role::Head,
        Some((address, token)) => Role::Member { address, token },
    };
    let daemon = Daemon::start(DaemonConfig {
        directory: given.directory,
        role,
        listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        resources: given.resources,
        labels: given.labels,
        store_bytes: Some(given.store_bytes),
        spill_directory: None,
        spill_bytes_max: None,
        hide_control: HideControl::Auto,
    })
    .map_err(|error| error.to_string())?;
    let stopper = daemon.stopper();
    let wait = move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        stopper.stop();
    };
    let spawned = std::thread::Builder::new().name("aktis-test-node".into()).spawn(wait);
    spawned.map_err(|error| error.to_string())?;
    daemon.wait();
    drop(daemon);
    // Whoever made the cluster may not be there any more to do it.
    let _ = std::fs::remove_dir_all(&directory);
    let _ = std::fs::remove_file(log_of(&directory));
    let _ = directory.parent().map(std::fs::remove_dir);
    Ok(())
}

fn read_given() -> io::Result<Given> {
    let mut input = io::stdin().lock();
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    input.read_exact(&mut bytes)?;
    decode(&bytes).map_err(io::Error::other)
}

/// What a node prints, beside its directory.
fn log_of(directory: &Path) -> PathBuf {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    directory.with_file_name(format!("{name}.{LOG_NAME}"))
}
