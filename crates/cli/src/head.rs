//! `aktis start --head`: the control process of a cluster, in this process, and the node of its machine, in another.
//!
//! Invariants:
//! 1. The node outlives a control process that is killed, and is found by the next one: there is never a second.
//! 2. A control process that is told to end ends the node before itself.
//! 3. If the control process runs, and the node does not, this process is the node.

use crate::failed::Failed;
use crate::greeting::{self, Greeting};
use crate::{Restart, background, notify, start};
use aktis_daemon::admin::{Client, ClientError};
use aktis_daemon::control::control_directory;
use aktis_daemon::directory::Directory;
use aktis_daemon::journal;
use aktis_daemon::{Control, ControlConfig, ControlError, DaemonConfig, DirectoryError, Role};
use aktis_protocol::admin::{ClusterStatus, JoinToken, StopScope};
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// How long the token is good with which the node of this machine joins. It is not counted: a node whose answer was lost on the
/// way shows it again.
const OWN_TOKEN: Duration = Duration::from_secs(600);
/// How long the token is good that is printed.
const FIRST_TOKEN: Duration = Duration::from_secs(24 * 3600);
/// How long a node may take that is there and does not answer: it may have been started a moment ago.
const NODE_PATIENCE: Duration = Duration::from_secs(20);
const NODE_AGAIN: Duration = Duration::from_millis(20);
/// How long the node may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(60);
/// How long the control process stays for the departure of its machine's node; the lease of a node that was killed lapses before.
const DEPARTURE_PATIENCE: Duration = Duration::from_secs(3);

/// Runs the control process until it is stopped, or the node if that alone is missing; `on_ready` is told what to print, and
/// `notice` what is waited for before.
pub(crate) fn run(
    config: &DaemonConfig,
    node_port: u16,
    node_timeout: Option<Duration>,
    given: &[OsString],
    restart: &Restart,
    on_ready: impl FnOnce(&Greeting) -> io::Result<()>,
    notice: fn(&str),
) -> Result<(), Failed> {
    let directory = &config.directory;
    if !ControlConfig::is_begun(directory)
        && let Node::Runs(_) = Node::find(directory)?
    {
        // It belongs to another cluster. Whoever claims its directory is told so.
        Directory::claim(directory)?;
    }
    let control = Control::start(&ControlConfig {
        directory: directory.clone(),
        listen: config.listen,
        certificate_lifetime: None,
        node_timeout,
    });
    let control = match control {
        Err(ControlError::Directory(claimed @ DirectoryError::Claimed { .. })) => {
            let member = beside(config, node_port, claimed)?;
            return start::run(member, on_ready, notice);
        }
        control => control?,
    };
    journal::begin("control");
    control.keep_journal();
    journal::info(format_args!("it listens on {}, version {}", control.address(), env!("CARGO_PKG_VERSION")));
    let stopper = control.stopper();
    start::on_termination(move || stopper.stop())?;
    let token = control.token(FIRST_TOKEN, None)?.to_string();
    let (mut greeting, is_new) = node(config, node_port, &control, given, restart)?;
    greeting.control =
        Some(greeting::Head { address: control.address(), token, token_seconds: FIRST_TOKEN.as_secs() });
    if let Err(error) = on_ready(&greeting) {
        // Nobody knows of what was started.
        if is_new {
            stop_node(directory)?;
        }
        return Err(Failed::Output(error));
    }
    control.wait()?;
    journal::info("it ends");
    notify::tell("STOPPING=1");
    stop_node(directory)?;
    // Else the next control process finds a member that does not answer.
    control.wait_until_left(greeting.node, DEPARTURE_PATIENCE);
    drop(control);
    Ok(())
}

fn stop_node(directory: &Path) -> Result<(), Failed> {
    match Client::connect(directory).and_then(|client| client.stop(StopScope::Node, STOP_PATIENCE)) {
        // There was none, or it has ended by itself: one that ends the cluster asks its control process to end, and then ends.
        Ok(_)
        | Err(ClientError::NoDaemon { .. } | ClientError::Starting { .. } | ClientError::Ended { .. }) => {
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// How to start the node beside a control process that has claimed its directory, if there is none.
fn beside(config: &DaemonConfig, node_port: u16, claimed: DirectoryError) -> Result<DaemonConfig, Failed> {
    let Node::None = Node::find(&config.directory)? else { return Err(claimed.into()) };
    // If it does not answer, it has hardly begun, and will start a node itself.
    let Ok(mut control) = Client::connect(&control_directory(&config.directory)) else {
        return Err(claimed.into());
    };
    let JoinToken { token, address, .. } = control.token(OWN_TOKEN, None)?;
    let Ok(listens) = address.parse::<SocketAddr>() else { return Err(claimed.into()) };
    Ok(as_member(config, node_port, listens, token))
}

/// The node of this machine, as a member of the cluster whose control process listens there.
fn as_member(config: &DaemonConfig, node_port: u16, control: SocketAddr, token: String) -> DaemonConfig {
    let role = Role::Member { address: reached_at(control).to_string(), token };
    DaemonConfig { role, listen: Some(SocketAddr::new(control.ip(), node_port)), ..config.clone() }
}

/// The node of a directory.
enum Node {
    None,
    /// There is one, and it does not answer, or not yet.
    Silent,
    Runs(ClusterStatus),
}

impl Node {
    fn find(directory: &Path) -> Result<Self, Failed> {
        match Client::connect(directory).and_then(|mut client| client.status()) {
            Ok(status) => return Ok(Self::Runs(status)),
            Err(ClientError::NoDaemon { .. } | ClientError::Starting { .. } | ClientError::Ended { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        match Directory::claim(directory) {
            Ok(_) => Ok(Self::None),
            Err(DirectoryError::Claimed { .. }) => Ok(Self::Silent),
            Err(error) => Err(error.into()),
        }
    }
}

/// Finds the node of this machine, or starts it; gives what it says, and whether it is new.
fn node(
    config: &DaemonConfig,
    node_port: u16,
    control: &Control,
    given: &[OsString],
    restart: &Restart,
) -> Result<(Greeting, bool), Failed> {
    let directory = &config.directory;
    let deadline = Instant::now() + NODE_PATIENCE;
    loop {
        match Node::find(directory)? {
            Node::Runs(status) => {
                let (node, directory) = (status.node, directory.clone());
                return Ok((Greeting { node, directory, address: None, control: None }, false));
            }
            Node::None => match start_node(config, node_port, control, given, restart) {
                Ok((greeting, child)) => {
                    bury(child)?;
                    return Ok((greeting, true));
                }
                // One that an earlier control process has started was faster.
                Err(_) if matches!(Node::find(directory), Ok(Node::Silent | Node::Runs(_))) => {}
                Err(failed) => return Err(failed),
            },
            Node::Silent if Instant::now() > deadline => {
                Directory::claim(directory)?;
            }
            Node::Silent => std::thread::sleep(NODE_AGAIN),
        }
    }
}

fn start_node(
    config: &DaemonConfig,
    node_port: u16,
    control: &Control,
    given: &[OsString],
    restart: &Restart,
) -> Result<(Greeting, Child), Failed> {
    let token = control.token(OWN_TOKEN, None)?.to_string();
    let config = as_member(config, node_port, control.address(), token);
    let mut arguments = background::without(
        given,
        &["--head", "--detach", "--background"],
        &["--listen", "--node-port", "--node-timeout"],
    );
    let address = reached_at(control.address()).to_string();
    let listen = SocketAddr::new(control.address().ip(), node_port).to_string();
    arguments.extend(["--address", &address, "--listen", &listen].map(OsStr::new));
    background::start(&config, &arguments, restart)
}

/// Where a control process on this machine is reached.
fn reached_at(mut listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() {
        listen.set_ip(match listen {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    listen
}

/// Waits for the end of the node, so that nothing is left of it, and says so.
fn bury(mut child: Child) -> Result<(), Failed> {
    let wait = move || {
        if let Ok(status) = child.wait()
            && !status.success()
        {
            journal::warn(format_args!("the node of this machine has ended: {status}"));
        }
    };
    let thread = std::thread::Builder::new().name("aktis-node".to_owned()).spawn(wait);
    thread.map(|_| ()).map_err(|source| Failed::System { what: "a thread", source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_daemon::admin::SOCKET_NAME;
    use aktis_protocol::admin::ADMIN_VERSION;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_node_that_ends_before_it_is_told_to_has_been_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join(SOCKET_NAME)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut client, _) = listener.accept().unwrap();
                client.write_all(&[ADMIN_VERSION]).unwrap();
                client.read_exact(&mut [0]).unwrap();
            });
            stop_node(directory.path()).unwrap();
        });
    }
}
