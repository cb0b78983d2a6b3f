//! What systemd is told of a service: that it is ready, and that it ends.
//!
//! `sd_notify` is a datagram to the socket that `NOTIFY_SOCKET` names, as documented in systemd's manual.

use aktis_daemon::journal;
use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

const VARIABLE: &str = "NOTIFY_SOCKET";

/// Tells it, if this process is a service that systemd has started.
pub(crate) fn tell(state: &str) {
    let Some(place) = std::env::var_os(VARIABLE).filter(|place| !place.is_empty()) else { return };
    if let Err(error) = send(&place, state) {
        journal::warn(format_args!("systemd cannot be told `{state}`: {error}"));
    }
}

fn send(place: &OsString, state: &str) -> io::Result<()> {
    let address = match place.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(place)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_reaches_the_socket_of_either_kind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let abstract_name = format!("aktis-notify-test-{}", std::process::id());
        for place in [path.clone().into_os_string(), format!("@{abstract_name}").into()] {
            let socket = match place.as_bytes()[0] {
                b'@' => SocketAddr::from_abstract_name(&abstract_name),
                _ => SocketAddr::from_pathname(&path),
            };
            let socket = UnixDatagram::bind_addr(&socket.unwrap()).unwrap();
            send(&place, "READY=1").unwrap();
            let mut told = [0; 16];
            let length = socket.recv(&mut told).unwrap();
            assert_eq!(&told[..length], b"READY=1");
        }
    }
}
