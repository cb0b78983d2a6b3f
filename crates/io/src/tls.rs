//! What is agreed on before the first byte of ours: TLS 1.3, what the connection is for, and who shows what.
//!
//! Invariants:
//! 1. A connection for links or objects has a certificate of this cluster's authority at both ends.
//! 2. Whoever dials a node gets that node: its id is in the name that its certificate must have.
//! 3. Whoever joins shows no certificate, and gets no other service.

use crate::authority::{Authority, DOOR_NAME};
use crate::identity::{Fingerprint, Identity, IdentityError, Name};
use parking_lot::RwLock;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};
use std::sync::{Arc, OnceLock};

pub(crate) static VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// What a connection is for; the two ends agree on it in the TLS handshake (ALPN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// A link.
    Link,
    /// Parts of objects.
    Bulk,
    /// A certificate for a machine that has none.
    Join,
}

impl Service {
    const ALL: [Self; 3] = [Self::Link, Self::Bulk, Self::Join];

    fn protocol(self) -> &'static [u8] {
        match self {
            Self::Link => b"aktis/1",
            Self::Bulk => b"aktis-bulk/1",
            Self::Join => b"aktis-join/1",
        }
    }

    /// The service that one of these protocols is.
    pub(crate) fn among<'a>(protocols: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut known =
            protocols.filter_map(|name| Self::ALL.into_iter().find(|service| service.protocol() == name));
        known.next()
    }
}

/// The cryptography: AES-128 first, since machines have instructions for it.
pub(crate) fn cryptography() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let build = || {
        let mut provider = provider::default_provider();
        provider.cipher_suites = vec![
            provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
            provider::cipher_suite::TLS13_AES_256_GCM_SHA384,
            provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ];
        Arc::new(provider)
    };
    Arc::clone(PROVIDER.get_or_init(build))
}

/// How this node dials and is dialled.
pub(crate) struct Configurations {
    link_client: Arc<ClientConfig>,
    bulk_client: Arc<ClientConfig>,
    link_server: Arc<ServerConfig>,
    bulk_server: Arc<ServerConfig>,
    join_server: Option<Arc<ServerConfig>>,
}

impl Configurations {
    /// Those of `identity`; with an authority, others can join here.
    pub(crate) fn new(identity: &Identity, authority: Option<&Authority>) -> Result<Self, IdentityError> {
        let client = |service| client(identity, service).map_err(setup);
        let server = |service| server(identity, service).map_err(setup);
        Ok(Self {
            link_client: client(Service::Link)?,
            bulk_client: client(Service::Bulk)?,
            link_server: server(Service::Link)?,
            bulk_server: server(Service::Bulk)?,
            join_server: authority.map(join_server).transpose()?,
        })
    }

    /// How to dial for `service`.
    pub(crate) fn client(&self, service: Service) -> &Arc<ClientConfig> {
        match service {
            Service::Bulk => &self.bulk_client,
            Service::Link | Service::Join => &self.link_client,
        }
    }

    /// How to be dialled for `service`; `None` if this node does not have it.
    pub(crate) fn server(&self, service: Service) -> Option<&Arc<ServerConfig>> {
        match service {
            Service::Link => Some(&self.link_server),
            Service::Bulk => Some(&self.bulk_server),
            Service::Join => self.join_server.as_ref(),
        }
    }
}

/// The configurations of an endpoint, which change when its certificate is renewed. Connections that there are go on.
pub(crate) struct Current(RwLock<Arc<Configurations>>);

impl Current {
    pub(crate) fn new(configurations: Configurations) -> Self {
        Self(RwLock::new(Arc::new(configurations)))
    }

    pub(crate) fn get(&self) -> Arc<Configurations> {
        Arc::clone(&self.0.read())
    }

    pub(crate) fn set(&self, configurations: Configurations) {
        *self.0.write() = Arc::new(configurations);
    }
}

fn setup(error: impl std::fmt::Display) -> IdentityError {
    IdentityError::Signing(format!("TLS does not accept the identity: {error}"))
}

fn roots(authorities: &[CertificateDer<'static>]) -> Result<Arc<RootCertStore>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    authorities.iter().try_for_each(|authority| roots.add(authority.clone()))?;
    Ok(Arc::new(roots))
}

fn client(identity: &Identity, service: Service) -> Result<Arc<ClientConfig>, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(cryptography()).with_protocol_versions(VERSIONS)?;
    let builder = builder.with_root_certificates(roots(identity.authorities())?);
    let configuration = builder.with_client_auth_cert(identity.chain(), identity.key())?;
    Ok(finish_client(configuration, service))
}

fn finish_client(mut configuration: ClientConfig, service: Service) -> Arc<ClientConfig> {
    configuration.alpn_protocols = vec![service.protocol().to_vec()];
    configuration.resumption = Resumption::disabled();
    // The name is for the certificate alone: who dials whom is nobody else's business.
    configuration.enable_sni = false;
    Arc::new(configuration)
}

fn server(identity: &Identity, service: Service) -> Result<Arc<ServerConfig>, rustls::Error> {
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots(identity.authorities())?, cryptography());
    let verifier = verifier.build().map_err(|error| rustls::Error::General(error.to_string()))?;
    let builder = ServerConfig::builder_with_provider(cryptography()).with_protocol_versions(VERSIONS)?;
    let configuration =
        builder.with_client_cert_verifier(verifier).with_single_cert(identity.chain(), identity.key())?;
    Ok(finish_server(configuration, service))
}

fn join_server(authority: &Authority) -> Result<Arc<ServerConfig>, IdentityError> {
    let (chain, key) = authority.issue_door()?;
    let builder = ServerConfig::builder_with_provider(cryptography())
        .with_protocol_versions(VERSIONS)
        .map_err(setup)?;
    let configuration = builder.with_no_client_auth().with_single_cert(chain, PrivateKeyDer::Pkcs8(key));
    Ok(finish_server(configuration.map_err(setup)?, Service::Join))
}

fn finish_server(mut configuration: ServerConfig, service: Service) -> Arc<ServerConfig> {
    configuration.alpn_protocols = vec![service.protocol().to_vec()];
    configuration.send_tls13_tickets = 0;
    configuration.session_storage = Arc::new(NoServerSessionStorage {});
    Arc::new(configuration)
}

/// The name that the certificate of a node must have that is dialled.
pub(crate) fn server_name(name: Name) -> ServerName<'static> {
    ServerName::try_from(name.to_string()).expect("our names are names")
}

/// The name that the certificate of the head must have that is joined.
pub(crate) fn door_name() -> ServerName<'static> {
    ServerName::try_from(DOOR_NAME).expect("it is a name")
}

/// How to dial the head of a cluster of which only the fingerprint is known.
pub(crate) fn join_client(fingerprint: Fingerprint) -> Result<Arc<ClientConfig>, IdentityError> {
    let builder = ClientConfig::builder_with_provider(cryptography())
        .with_protocol_versions(VERSIONS)
        .map_err(setup)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Pinned(fingerprint)));
    Ok(finish_client(builder.with_no_client_auth(), Service::Join))
}

/// Accepts the one authority whose fingerprint is in the token, which comes with the certificate, and what it signed.
#[derive(Debug)]
struct Pinned(Fingerprint);

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let authority = intermediates.iter().find(|certificate| Fingerprint::of(certificate) == self.0);
        let Some(authority) = authority else {
            return Err(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer));
        };
        let roots = roots(&[authority.clone().into_owned()])?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, cryptography()).build();
        let verifier = verifier.map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
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

/// Checks what the other side has signed in the handshake.
pub(crate) fn verify_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let algorithms = &cryptography().signature_verification_algorithms;
    rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
}

/// Nothing older than TLS 1.3 is spoken.
pub(crate) fn refuse_old_version() -> rustls::Error {
    rustls::Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOfferedOrEnabled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Role, random_node_id};
    use crate::join::{JoinError, join};
    use crate::wire::Wire;
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A node has a certificate of the cluster, but not the one of the door.
    #[test]
    fn a_node_cannot_pose_as_the_head_and_collect_tokens() {
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::create(&directory.path().join("cluster")).expect("an authority");
        let node = authority.issue(random_node_id(), Role::Node).expect("an identity");
        let mut configurations = Configurations::new(&node, None).expect("configurations");
        let chain = [node.chain(), vec![node.authorities()[0].clone()]].concat();
        let builder = ServerConfig::builder_with_provider(cryptography()).with_protocol_versions(VERSIONS);
        let posing = builder.expect("TLS").with_no_client_auth().with_single_cert(chain, node.key());
        configurations.join_server = Some(finish_server(posing.expect("a configuration"), Service::Join));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let posing = std::thread::spawn(move || {
            let (socket, _) = listener.accept().expect("somebody joins");
            Wire::accept(socket, &configurations, Instant::now() + PATIENCE).map(|_| ())
        });
        let token = authority.token(PATIENCE);
        let joined = join(address, &token, Role::Node, PATIENCE);
        assert!(matches!(joined, Err(JoinError::Stranger { .. })), "{joined:?}");
        assert!(posing.join().expect("no panic").is_err(), "it gets no further than the handshake");
    }
}
