//! Where nodes of this machine listen, and how one is found by its address.
//!
//! A node's directory is the default one or lies in it, and holds its socket and a file `address` that says under which
//! addresses its cluster is known, one in each line.

use crate::attach::SOCKET;
use crate::trust::{TrustError, check_way};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

/// The address that means a new session inside the calling process.
pub const LOCAL: &str = "local";
/// The address that means the node of this machine.
pub const AUTO: &str = "auto";
/// The file in a node's directory with the address of its cluster.
pub const ADDRESS_FILE: &str = "address";
/// Directories that are looked at.
const NODES_MAX: usize = 256;

/// Why there is no node at an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// None runs here.
    #[error(
        "no node runs on this machine (looked in {0})\n\
         hint: start one with `aktis start --head`, or leave the address out to start one inside this process"
    )]
    NoNode(PathBuf),
    /// None of those that run here belongs to that cluster.
    #[error(
        "no node on this machine belongs to the cluster at {address} (looked in {directory})\n\
         hint: start one with `aktis start --address {address} --token TOKEN`"
    )]
    NotThatCluster {
        /// The address.
        address: String,
        /// Where was looked.
        directory: PathBuf,
    },
    /// Another user controls the directory.
    #[error(transparent)]
    Untrusted(#[from] TrustError),
    /// Several run here.
    #[error("several nodes run on this machine: {0}\nhint: give the directory of one as the address")]
    Several(String),
}

/// Where nodes of this user listen, unless told otherwise: `AKTIS_DIRECTORY`, or a private directory of the user.
pub fn default_directory() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = set("AKTIS_DIRECTORY") {
        return directory;
    }
    match set("XDG_RUNTIME_DIR") {
        Some(directory) => directory.join("aktis"),
        None => PathBuf::from(format!("/tmp/aktis-{}", rustix::process::geteuid().as_raw())),
    }
}

/// The directory of the node on this machine that an address means: a path, `auto`, or the address of a cluster. A path
/// may be that of the daemon's directory, inside which the node's lies.
pub fn find_local(address: &str) -> Result<PathBuf, AddressError> {
    if address.contains('/') {
        let path = PathBuf::from(address);
        check_way(&path)?;
        let is_above = !path.join(SOCKET).exists() && !nodes_in(&path).is_empty();
        return if is_above { find_in(&path, AUTO) } else { Ok(path) };
    }
    find_in(&default_directory(), address)
}

fn find_in(directory: &Path, address: &str) -> Result<PathBuf, AddressError> {
    check_way(directory)?;
    let nodes = nodes_in(directory);
    if nodes.is_empty() && address == AUTO {
        return Err(AddressError::NoNode(directory.to_owned()));
    }
    let wanted = |node: &&PathBuf| address == AUTO || belongs_to(node, address);
    let mut found: Vec<_> = nodes.iter().filter(wanted).cloned().collect();
    match (found.pop(), found.is_empty()) {
        (Some(node), true) => Ok(node),
        (Some(last), false) => {
            found.push(last);
            let listed: Vec<_> = found.iter().map(|node| node.display().to_string()).collect();
            Err(AddressError::Several(listed.join(", ")))
        }
        (None, _) => {
            let (address, directory) = (address.to_owned(), directory.to_owned());
            Err(AddressError::NotThatCluster { address, directory })
        }
    }
}

/// The directories, this one or inside it, in which a node listens or has listened.
fn nodes_in(directory: &Path) -> Vec<PathBuf> {
    let inside = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = std::iter::once(directory.to_owned()).chain(inside).take(NODES_MAX);
    let mut nodes: Vec<_> = all.filter(|path| path.join(SOCKET).exists()).collect();
    nodes.sort();
    nodes
}

/// Whether the node belongs to the cluster that is meant by this address, however it is spelt.
fn belongs_to(node: &Path, address: &str) -> bool {
    let text = std::fs::read_to_string(node.join(ADDRESS_FILE)).unwrap_or_default();
    let mut known = text.lines().map(str::trim);
    if known.clone().any(|known| known == address) {
        return true;
    }
    let meant: Vec<SocketAddr> = address.to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    known.any(|known| known.parse().is_ok_and(|known| meant.contains(&known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(directory: &Path, name: &str, address: &str) -> PathBuf {
        let path = directory.join(name);
        std::fs::create_dir_all(&path).expect("made");
        std::fs::write(path.join(SOCKET), "").expect("written");
        std::fs::write(path.join(ADDRESS_FILE), format!("{address}\n")).expect("written");
        path
    }

    #[test]
    fn a_node_is_found_by_what_its_address_says() {
        let directory = tempfile::tempdir().expect("a directory");
        let base = directory.path();
        assert_eq!(find_in(base, AUTO), Err(AddressError::NoNode(base.to_owned())));
        assert!(matches!(find_in(base, "10.0.0.1:6379"), Err(AddressError::NotThatCluster { .. })));
        let one = node(base, "one", "10.0.0.1:6379");
        assert_eq!(find_in(base, AUTO), Ok(one.clone()));
        let two = node(base, "two", "10.0.0.2:6379");
        assert!(matches!(find_in(base, AUTO), Err(AddressError::Several(_))));
        assert_eq!(find_in(base, "10.0.0.2:6379"), Ok(two));
        assert_eq!(find_in(base, "10.0.0.1:6379"), Ok(one));
        assert!(matches!(find_in(base, "10.0.0.3:6379"), Err(AddressError::NotThatCluster { .. })));
        let three = node(base, "three", "127.0.0.1:6379\nhead.invalid:6379");
        for spelling in ["localhost:6379", "127.0.0.1:06379", "head.invalid:6379"] {
            assert_eq!(find_in(base, spelling), Ok(three.clone()), "{spelling}");
        }
        assert!(matches!(find_in(base, "localhost:6380"), Err(AddressError::NotThatCluster { .. })));
    }

    #[test]
    fn the_default_directory_itself_may_be_the_nodes() {
        let directory = tempfile::tempdir().expect("a directory");
        let here = node(directory.path(), "", "10.0.0.1:1");
        assert_eq!(find_in(directory.path(), AUTO).map(|found| found.join("")), Ok(here.join("")));
        let above = directory.path().join("above");
        let inside = node(&above, "node", "10.0.0.1:1");
        assert_eq!(find_local(above.to_str().expect("a text")), Ok(inside));
        assert_eq!(find_local("/some/where"), Ok(PathBuf::from("/some/where")));
    }
}
