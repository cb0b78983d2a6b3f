//! A machine that was a node of the cluster comes back without a token: its certificate shows that it was let in.
//!
//! It gets a certificate for another id. What the node before has left behind, on other nodes and in the control store, has
//! that node's id; nothing of it is taken for something of the new one.

use crate::control::RETURN_GREETING;
use aktis_io::{
    DialError, Endpoint, EndpointEvents, EndpointOptions, Frames, Identity, Link, LinkEnd, LinkEvents, Peer,
    WireError,
};
use aktis_protocol::NodeId;
use aktis_protocol::control::decode;
use aktis_protocol::member::FromControl;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// The file beside the certificate with the id of the control process.
const CONTROL_FILE: &str = "control";

/// Why a machine cannot come back by its certificate.
#[derive(Debug)]
pub(crate) enum ReturnError {
    /// The control process does not answer: it may do so later.
    Away(String),
    /// The connection failed. A certificate that has expired may look so, and a control process that ends.
    Broken(String),
    /// It will not work later either.
    Refused(String),
}

/// Keeps the id of the control process, which a machine that comes back dials.
pub(crate) fn keep_control(place: &Path, control: NodeId) -> io::Result<()> {
    std::fs::write(place.join(CONTROL_FILE), format!("{control}\n"))
}

/// The id of the control process, if this machine was a node before.
pub(crate) fn control_in(place: &Path) -> Option<NodeId> {
    std::fs::read_to_string(place.join(CONTROL_FILE)).ok()?.trim().parse().ok()
}

/// The address of this machine from which it reaches another one. Nothing is sent for that.
pub(crate) fn address_towards(other: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match other {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(other)?;
    Ok(socket.local_addr()?.ip())
}

/// Shows the certificate to the control process, and gets another identity.
pub(crate) fn come_back(
    identity: &Identity,
    (control, address): (NodeId, SocketAddr),
    from: IpAddr,
    patience: Duration,
) -> Result<Identity, ReturnError> {
    let refused = |error: &dyn std::fmt::Display| ReturnError::Refused(error.to_string());
    let public_key = identity.public_key().map_err(|error| refused(&error))?;
    let local = SocketAddr::new(from, 0);
    let endpoint = Endpoint::bind(local, identity.clone(), Arc::new(Nobody), EndpointOptions::default());
    let endpoint = endpoint.map_err(|error| refused(&error))?;
    let (said, heard) = channel();
    let greeting = [RETURN_GREETING, &public_key].concat();
    let dialled = endpoint.dial(control, address, greeting, |_| Box::new(Ears(said)));
    let link = dialled.map_err(|error| match error {
        DialError::Wire(WireError::Tls(_)) | DialError::Refused(_) => refused(&error),
        DialError::Wire(ref wire) if is_absence(wire) => ReturnError::Away(error.to_string()),
        error => ReturnError::Broken(error.to_string()),
    })?;
    let answer = heard.recv_timeout(patience);
    link.close("it has its certificate");
    match answer {
        Ok(FromControl::Certified { certificate, authorities, .. }) => identity
            .reissued(certificate, authorities)
            .ok_or_else(|| ReturnError::Refused("the new certificate cannot be read".to_owned())),
        Ok(_) => Err(ReturnError::Refused("it has said something else".to_owned())),
        Err(_) => Err(ReturnError::Broken("it has said nothing".to_owned())),
    }
}

/// Whether an error means that nobody listens there, or that there is no way to it.
fn is_absence(error: &WireError) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    let is_away = |error: &io::Error| {
        matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable | TimedOut)
    };
    match error {
        WireError::Late => true,
        WireError::System(error) => is_away(error),
        _ => false,
    }
}

struct Nobody;

impl EndpointEvents for Nobody {
    fn on_link(&self, _: &Peer, _: &[u8], _: &Link) -> Result<Box<dyn LinkEvents>, String> {
        Err("this node has not come back yet".to_owned())
    }
}

struct Ears(Sender<FromControl>);

impl LinkEvents for Ears {
    fn on_frames(&mut self, frames: Frames<'_>) {
        for message in frames.filter_map(|frame| decode(frame).ok()) {
            let _ = self.0.send(message);
        }
    }

    fn on_closed(&mut self, _: &LinkEnd) {}
}
