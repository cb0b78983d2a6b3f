//! Somebody who does not play by the rules: raw sockets, and TLS that believes everything.

use aktis_io::Identity;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// The header and payload of a frame, whatever they are.
pub fn frame(length: u32, kind: u8, payload: &[u8]) -> Vec<u8> {
    [&length.to_le_bytes(), &[kind][..], payload].concat()
}

/// The kinds of frames that the tests know by number.
pub const HELLO: u8 = 3;
pub const REFUSED: u8 = 5;

/// The beginning of every hello: the magic number, and a version.
pub fn hello(version: u32, body: &[u8]) -> Vec<u8> {
    let payload = [&b"aktis\r\n\0"[..], &version.to_le_bytes(), body].concat();
    frame(payload.len() as u32, HELLO, &payload)
}

/// Dials with TLS, with some protocol and somebody's certificate, or none.
pub fn dial(address: SocketAddr, protocol: &[u8], identity: Option<&Identity>) -> Stream {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13]);
    let builder =
        builder.expect("TLS").dangerous().with_custom_certificate_verifier(Arc::new(Believer(provider)));
    let mut configuration = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let directory = tempfile::tempdir().expect("a directory");
            let place = directory.path().join("identity");
            identity.save(&place).expect("saved");
            let read = |file| std::fs::read(place.join(file)).expect("it is there");
            let key = PrivateKeyDer::Pkcs8(read("identity.key").into());
            builder.with_client_auth_cert(vec![read("identity.crt").into()], key).expect("a certificate")
        }
    };
    configuration.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("whoever.example").expect("a name");
    let connection = ClientConnection::new(Arc::new(configuration), name).expect("a connection");
    StreamOwned::new(connection, TcpStream::connect(address).expect("somebody listens"))
}

/// Sends `bytes`, and gives all that comes back until the other side closes the connection.
pub fn provoke(mut stream: impl Read + Write, bytes: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    if stream.write_all(bytes).and_then(|()| stream.flush()).is_ok() {
        // However it is closed is good.
        let _ = stream.read_to_end(&mut answer);
    }
    answer
}

/// Believes every certificate.
#[derive(Debug)]
struct Believer(Arc<CryptoProvider>);

impl ServerCertVerifier for Believer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
