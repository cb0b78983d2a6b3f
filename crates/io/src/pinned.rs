//! Connections between processes that know the fingerprints of each other's certificates, and trust nothing else.
//!
//! Each process signs its certificate itself. Its fingerprint reaches the others through a channel that they trust.
//!
//! Invariants:
//! 1. A stream has a certificate at both ends whose fingerprint the other end expects.
//! 2. The key never leaves the process.

use crate::authority::{common_name, new_key, new_serial, set_lifetime, signing};
use crate::identity::{Fingerprint, IdentityError};
use crate::tls::{VERSIONS, cryptography, refuse_old_version, verify_signature};
use crate::wire::{Wire, WireError, left_until};
use rcgen::CertificateParams;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, ServerConfig, ServerConnection,
    SignatureScheme,
};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The name in every such certificate; nobody goes by it.
const NAME: &str = "pinned.aktis";
/// How long a certificate is good: longer than any process lives.
const LIFETIME: Duration = Duration::from_secs(3650 * 24 * 60 * 60);
/// Bytes that are encrypted before they are sent.
const WRITE_BYTES: usize = 64 << 10;
/// The longest wait for a socket before the caller is asked whether to go on.
const SLICE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// A key, and a certificate that it has signed itself.
pub struct PinnedIdentity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

impl PinnedIdentity {
    /// Makes a new key and its certificate.
    pub fn new() -> Result<Self, IdentityError> {
        let key = new_key()?;
        let mut parameters = CertificateParams::new([NAME.to_owned()]).map_err(signing)?;
        parameters.distinguished_name = common_name("aktis");
        parameters.serial_number = Some(new_serial());
        set_lifetime(&mut parameters, LIFETIME);
        let certificate = parameters.self_signed(&key).map_err(signing)?.der().clone();
        Ok(Self { certificate, key: key.serialized_der().to_vec().into() })
    }

    /// The SHA-256 of the certificate.
    pub fn fingerprint(&self) -> [u8; 32] {
        Fingerprint::of(&self.certificate).0
    }

    /// Dials the process that has the certificate with this fingerprint.
    pub fn connect(
        &self,
        address: SocketAddr,
        fingerprint: [u8; 32],
        deadline: Instant,
    ) -> Result<PinnedStream, WireError> {
        let socket = match TcpStream::connect_timeout(&address, left_until(deadline)?) {
            Ok(socket) => socket,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(WireError::Late),
            Err(error) => return Err(error.into()),
        };
        let verifier = Arc::new(Expected(vec![fingerprint]));
        let builder = ClientConfig::builder_with_provider(cryptography()).with_protocol_versions(VERSIONS)?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut configuration = builder.with_client_auth_cert(self.chain(), self.private_key())?;
        configuration.resumption = Resumption::disabled();
        configuration.enable_sni = false;
        let name = ServerName::try_from(NAME).expect("it is a name");
        let tls = ClientConnection::new(Arc::new(configuration), name)?;
        Ok(PinnedStream { wire: Wire::start(socket, tls.into(), deadline)? })
    }

    /// Is dialled by a process that has one of these fingerprints; which one.
    pub fn accept(
        &self,
        socket: TcpStream,
        fingerprints: &[[u8; 32]],
        deadline: Instant,
    ) -> Result<(PinnedStream, [u8; 32]), WireError> {
        let verifier = Arc::new(Expected(fingerprints.to_vec()));
        let builder = ServerConfig::builder_with_provider(cryptography()).with_protocol_versions(VERSIONS)?;
        let builder = builder.with_client_cert_verifier(verifier);
        let mut configuration = builder.with_single_cert(self.chain(), self.private_key())?;
        configuration.send_tls13_tickets = 0;
        configuration.session_storage = Arc::new(NoServerSessionStorage {});
        let tls = ServerConnection::new(Arc::new(configuration))?;
        let wire = Wire::start(socket, tls.into(), deadline)?;
        let Fingerprint(peer) = wire.peer_fingerprint().ok_or(WireError::Name)?;
        Ok((PinnedStream { wire }, peer))
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone()]
    }

    fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.clone_key())
    }
}

/// An encrypted stream of bytes. Whoever waits is asked again and again whether to go on.
pub struct PinnedStream {
    wire: Wire,
}

impl PinnedStream {
    /// Sends all of `bytes`. `go_on` is asked while the other side takes nothing; if it refuses, the error is
    /// [`WireError::Late`], and the stream is of no use any more.
    pub fn send(&mut self, bytes: &[u8], mut go_on: impl FnMut() -> bool) -> Result<(), WireError> {
        for part in bytes.chunks(WRITE_BYTES) {
            self.wire.write(part)?;
            while !self.wire.flush()? {
                wait(self.wire.socket(), PollFlags::OUT, &mut go_on)?;
            }
        }
        Ok(())
    }

    /// Fills `target`. `go_on` is asked as in [`send`](Self::send).
    pub fn receive(&mut self, target: &mut [u8], mut go_on: impl FnMut() -> bool) -> Result<(), WireError> {
        self.wire.receive_with(target, |socket| wait(socket, PollFlags::IN, &mut go_on))
    }

    /// Whether something has come that [`receive`](Self::receive) has not taken, or the other side has closed the stream.
    pub fn is_ready(&self) -> bool {
        !self.wire.plaintext.is_empty() || poll(self.wire.socket(), PollFlags::IN, &Timespec::default())
    }

    /// The socket, to wait for it together with others.
    pub fn socket(&self) -> &TcpStream {
        self.wire.socket()
    }
}

fn poll(socket: &TcpStream, what: PollFlags, timeout: &Timespec) -> bool {
    matches!(rustix::event::poll(&mut [PollFd::new(socket, what)], Some(timeout)), Ok(1..))
}

fn wait(socket: &TcpStream, what: PollFlags, go_on: &mut impl FnMut() -> bool) -> Result<(), WireError> {
    while !poll(socket, what, &SLICE) {
        if !go_on() {
            return Err(WireError::Late);
        }
    }
    Ok(())
}

/// Accepts the certificates with these fingerprints.
#[derive(Debug)]
struct Expected(Vec<[u8; 32]>);

impl Expected {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let Fingerprint(shown) = Fingerprint::of(certificate);
        let is_expected = self.0.contains(&shown);
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        if is_expected { Ok(()) } else { Err(unknown) }
    }
}

impl ServerCertVerifier for Expected {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(refuse_old_version())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        cryptography().signature_verification_algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Expected {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(refuse_old_version())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        cryptography().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn meet(expected_by_dialler: bool, expected_by_dialled: bool) -> (bool, bool) {
        let (dialler, dialled, stranger) = (identity(), identity(), identity());
        let pick = |real: &PinnedIdentity, expected| if expected { real } else { &stranger }.fingerprint();
        let (server, client) = (pick(&dialled, expected_by_dialler), pick(&dialler, expected_by_dialled));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let deadline = Instant::now() + PATIENCE;
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| {
                let (socket, _) = listener.accept().expect("a dialler");
                let (mut stream, peer) = dialled.accept(socket, &[client], deadline).ok()?;
                stream.send(b"hello", || true).ok()?;
                (peer == client).then_some(())
            });
            let mut heard = [0; 5];
            let stream = dialler.connect(address, server, deadline);
            let received = stream.and_then(|mut stream| stream.receive(&mut heard, || true));
            (received.is_ok() && heard == *b"hello", accepted.join().expect("no panic").is_some())
        })
    }

    fn identity() -> PinnedIdentity {
        PinnedIdentity::new().expect("an identity")
    }

    #[test]
    fn both_ends_show_the_certificate_that_the_other_expects() {
        assert_eq!(meet(true, true), (true, true));
        assert_eq!(meet(false, true), (false, false));
        assert_eq!(meet(true, false), (false, false));
    }
}
