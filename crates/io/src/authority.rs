//! The cluster's authority: signs the certificates of its nodes and drivers, and makes and checks join tokens.
//!
//! Invariants:
//! 1. Its keys lie in files that only the user can read, in a directory that only the user can enter.
//! 2. There is no table of tokens here: whether one is ours and has not expired is computed from it and a key.

use crate::files;
use crate::identity::{Fingerprint, Identity, IdentityError, Name, Role, random_bytes};
use crate::token::{Secret, Token, TokenRefused};
use aktis_protocol::{ClusterId, NodeId};
use parking_lot::RwLock;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SignatureAlgorithm,
};
use ring::hmac;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const KEY_FILE: &str = "authority.key";
const CERTIFICATE_FILE: &str = "authority.crt";
const TOKEN_KEY_FILE: &str = "token.key";
const TOKEN_KEY_BYTES: usize = 32;

/// Bytes of a public key (Ed25519).
pub const PUBLIC_KEY_BYTES: usize = 32;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long an authority's certificate is good.
const AUTHORITY_LIFETIME: Duration = DAY.saturating_mul(3650);
/// How long the certificate of a node or driver is good, if nothing else is said. Nodes renew theirs; one that cannot for as
/// long, because its head is away, needs a token to come back.
const CERTIFICATE_LIFETIME: Duration = DAY;
/// Certificates begin so much in the past: the clocks of machines differ.
const CLOCK_DIFFERENCE: Duration = DAY;

/// The name in the certificate that joining nodes are shown. No node has it, so no node can pose as the head.
pub(crate) const DOOR_NAME: &str = "join.aktis";

/// Signs for one cluster. Only the head has it.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    token_key: RwLock<hmac::Key>,
    /// How long the certificates are good that it signs.
    lifetime: Duration,
}

impl Authority {
    /// Makes the authority of a new cluster, in `directory`.
    pub fn create(directory: &Path) -> Result<Self, IdentityError> {
        files::create_private_directory(directory)?;
        let certificate_path = directory.join(CERTIFICATE_FILE);
        if Self::is_in(directory) {
            return Err(IdentityError::Exists(directory.to_owned()));
        }
        let key = new_key()?;
        let mut parameters = authority_parameters();
        parameters.serial_number = Some(new_serial());
        set_lifetime(&mut parameters, AUTHORITY_LIFETIME);
        let certificate = parameters.self_signed(&key).map_err(signing)?.der().clone();
        let token_key: [u8; TOKEN_KEY_BYTES] = random_bytes();
        files::write_private(&directory.join(KEY_FILE), key.serialized_der())?;
        files::write_private(&directory.join(TOKEN_KEY_FILE), &token_key)?;
        // Last, because it says that there is an authority: whoever is killed before can begin again.
        files::write_private(&certificate_path, &certificate)?;
        Ok(Self::new(key, certificate, &token_key))
    }

    /// Whether an authority was made in `directory`.
    pub fn is_in(directory: &Path) -> bool {
        directory.join(CERTIFICATE_FILE).exists()
    }

    /// The authority that was made in `directory`.
    pub fn open(directory: &Path) -> Result<Self, IdentityError> {
        let unreadable =
            |file: &str, expected| IdentityError::Unreadable { path: directory.join(file), expected };
        let certificate = CertificateDer::from(files::read(&directory.join(CERTIFICATE_FILE))?);
        let key = PrivatePkcs8KeyDer::from(files::read_private(&directory.join(KEY_FILE))?);
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ED25519)
            .map_err(|_| unreadable(KEY_FILE, "the key of an authority"))?;
        webpki::anchor_from_trusted_cert(&certificate)
            .map_err(|_| unreadable(CERTIFICATE_FILE, "the certificate of an authority"))?;
        let token_key = files::read_private(&directory.join(TOKEN_KEY_FILE))?;
        if token_key.len() != TOKEN_KEY_BYTES {
            return Err(unreadable(TOKEN_KEY_FILE, "the key of join tokens"));
        }
        Ok(Self::new(key, certificate, &token_key))
    }

    fn new(key: KeyPair, certificate: CertificateDer<'static>, token_key: &[u8]) -> Self {
        Self {
            issuer: Issuer::new(authority_parameters(), key),
            certificate,
            token_key: RwLock::new(token_key_of(token_key)),
            lifetime: CERTIFICATE_LIFETIME,
        }
    }

    /// The same authority; certificates that it signs from now on are good for so long.
    pub fn with_lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// How long certificates are good that it signs.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// What joining nodes know the cluster by.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.fingerprint().cluster()
    }

    /// A new key, and a certificate for it.
    pub fn issue(&self, node: NodeId, role: Role) -> Result<Identity, IdentityError> {
        let key = new_key()?;
        let certificate = self.sign(&key, Name { node, role }.to_string())?;
        Ok(self.identity(certificate, &key))
    }

    /// A certificate for a key of another machine, which shows that it has the key whenever it uses the certificate.
    pub fn certify(
        &self,
        node: NodeId,
        role: Role,
        public_key: [u8; PUBLIC_KEY_BYTES],
    ) -> Result<Vec<u8>, IdentityError> {
        let certificate = self.sign(&PublicKey(public_key), Name { node, role }.to_string())?;
        Ok(certificate.to_vec())
    }

    /// The key and certificate that joining nodes are shown.
    pub(crate) fn issue_door(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivatePkcs8KeyDer<'static>), IdentityError> {
        let key = new_key()?;
        let certificate = self.sign(&key, DOOR_NAME.to_owned())?;
        Ok((vec![certificate, self.certificate.clone()], key.serialized_der().to_vec().into()))
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    fn identity(&self, certificate: CertificateDer<'static>, key: &KeyPair) -> Identity {
        let key = key.serialized_der().to_vec().into();
        Identity::new(certificate, key, self.certificate.clone()).expect("the name is one of ours")
    }

    fn sign(&self, key: &impl PublicKeyData, name: String) -> Result<CertificateDer<'static>, IdentityError> {
        let mut parameters = CertificateParams::new([name]).map_err(signing)?;
        parameters.distinguished_name = common_name("aktis");
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        parameters.serial_number = Some(new_serial());
        set_lifetime(&mut parameters, self.lifetime);
        Ok(parameters.signed_by(key, &self.issuer).map_err(signing)?.der().clone())
    }

    /// A token with which nodes can join until `lifetime` has passed.
    pub fn token(&self, lifetime: Duration) -> Token {
        Token {
            fingerprint: self.fingerprint(),
            secret: Secret::new(&self.token_key.read(), SystemTime::now() + lifetime),
        }
    }

    /// Whether a token is of this authority, and still good.
    pub fn check(&self, token: &Token) -> Result<(), TokenRefused> {
        self.check_secret(&token.secret)
    }

    pub(crate) fn check_secret(&self, secret: &Secret) -> Result<(), TokenRefused> {
        secret.check(&self.token_key.read(), SystemTime::now())
    }

    /// Makes another key for tokens, in the authority's `directory`. No token that was made before is good from then on.
    pub fn rotate_token_key(&self, directory: &Path) -> Result<(), IdentityError> {
        let bytes: [u8; TOKEN_KEY_BYTES] = random_bytes();
        let mut key = self.token_key.write();
        files::write_private(&directory.join(TOKEN_KEY_FILE), &bytes)?;
        *key = token_key_of(&bytes);
        Ok(())
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({})", self.cluster())
    }
}

fn token_key_of(bytes: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, bytes)
}

/// The public half of a key that another machine has.
struct PublicKey([u8; PUBLIC_KEY_BYTES]);

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

pub(crate) fn new_key() -> Result<KeyPair, IdentityError> {
    KeyPair::generate_for(&PKCS_ED25519).map_err(signing)
}

pub(crate) fn signing(error: rcgen::Error) -> IdentityError {
    IdentityError::Signing(error.to_string())
}

pub(crate) fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// The parts of the authority's certificate that those it signs refer to: the same whenever it is opened.
fn authority_parameters() -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = common_name("aktis cluster authority");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    parameters
}

pub(crate) fn new_serial() -> rcgen::SerialNumber {
    let mut bytes: [u8; 16] = random_bytes();
    // Positive, and without a leading zero.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    rcgen::SerialNumber::from_slice(&bytes)
}

pub(crate) fn set_lifetime(parameters: &mut CertificateParams, lifetime: Duration) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    parameters.not_before = epoch + now.saturating_sub(CLOCK_DIFFERENCE);
    // The last second counts.
    parameters.not_after = epoch + (now + lifetime).saturating_sub(Duration::from_secs(1));
}
