//! The files of the control process; where each lies is said above.

use super::{ControlConfig, ControlError};
use crate::directory::{self, Directory, Tenant};
use aktis_io::{Authority, Endpoint, EndpointError, Identity, Role, random_node_id};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where it listens, if nothing is said.
const PORT: u16 = 6388;
/// How long an address may be taken on which it has listened before: those who dialled it may still hold it.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(3);
const ADDRESS_AGAIN: Duration = Duration::from_millis(50);
const ADDRESS_FILE: &str = "address";

/// The directory of a control process, in that of its machine's daemon.
pub fn control_directory(daemon: &Path) -> PathBuf {
    daemon.join("control")
}

/// A directory that this process has claimed.
pub(super) struct Files(Directory);

impl Files {
    pub(super) fn claim(daemon: &Path) -> Result<Self, ControlError> {
        directory::prepare(daemon)?;
        Ok(Self(Directory::claim_for(&control_directory(daemon), Tenant::Control)?))
    }

    pub(super) fn into_directory(self) -> Directory {
        self.0
    }

    pub(super) fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }

    /// Where the keys of the authority are.
    pub(super) fn authority_directory(&self) -> PathBuf {
        self.0.path().join("authority")
    }

    /// The cluster's authority, which is made with the cluster.
    pub(super) fn authority(&self) -> Result<Authority, ControlError> {
        let place = self.authority_directory();
        match Authority::is_in(&place) {
            true => Ok(Authority::open(&place)?),
            false => Ok(Authority::create(&place)?),
        }
    }

    /// Where the control process's own identity is kept.
    pub(super) fn identity_directory(&self) -> PathBuf {
        self.0.path().join("identity")
    }

    /// The control process's own identity: its id stays, its key and certificate are made anew at each start.
    pub(super) fn identity(&self, authority: &Authority) -> Result<Identity, ControlError> {
        let place = self.identity_directory();
        let node = match Identity::load(&place) {
            Ok(identity) => identity.node(),
            // It was never written, or not to its end.
            Err(_) if !self.address_path().exists() => random_node_id(),
            Err(error) => return Err(error.into()),
        };
        let identity = authority.issue(node, Role::Node)?;
        identity.save(&place)?;
        Ok(identity)
    }

    /// Listens: where it is told to, or has listened before, or at the usual port, or any other if that is taken.
    pub(super) fn listen(
        &self,
        wanted: Option<SocketAddr>,
        bind: impl Fn(SocketAddr) -> Result<Endpoint, ControlError>,
    ) -> Result<Endpoint, ControlError> {
        let local = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let endpoint = match (self.address_before(wanted)?, wanted) {
            (Some(before), _) => listen_again(before, bind)?,
            (None, Some(wanted)) => bind(wanted)?,
            (None, None) => match bind(local(PORT)) {
                Err(ControlError::Endpoint(EndpointError::Listen { .. })) => bind(local(0))?,
                bound => bound?,
            },
        };
        let (path, draft) = (self.address_path(), self.0.path().join("address.new"));
        let written = std::fs::write(&draft, format!("{}\n", endpoint.address()))
            .and_then(|()| std::fs::rename(&draft, &path));
        written.map_err(directory::system("write", &path))?;
        Ok(endpoint)
    }

    fn address_path(&self) -> PathBuf {
        self.0.path().join(ADDRESS_FILE)
    }

    /// Where it has listened before, unless another address is wanted now.
    fn address_before(&self, wanted: Option<SocketAddr>) -> Result<Option<SocketAddr>, ControlError> {
        let path = self.address_path();
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(directory::system("read", &path))?,
        };
        let before: Option<SocketAddr> = text.trim().parse().ok();
        let serves = |before: &SocketAddr| match wanted {
            None => true,
            Some(wanted) => wanted == *before || wanted.port() == 0 && wanted.ip() == before.ip(),
        };
        Ok(before.filter(serves))
    }
}

fn listen_again(
    address: SocketAddr,
    bind: impl Fn(SocketAddr) -> Result<Endpoint, ControlError>,
) -> Result<Endpoint, ControlError> {
    let deadline = Instant::now() + ADDRESS_PATIENCE;
    loop {
        match bind(address) {
            Err(ControlError::Endpoint(source @ EndpointError::Listen { .. })) => {
                if Instant::now() > deadline {
                    return Err(ControlError::Moved { address, source });
                }
                std::thread::sleep(ADDRESS_AGAIN);
            }
            bound => return bound,
        }
    }
}

impl ControlConfig {
    /// Whether a control process has been in the directory before.
    pub fn is_begun(directory: &Path) -> bool {
        control_directory(directory).join(ADDRESS_FILE).exists()
    }
}
