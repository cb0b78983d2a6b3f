//! The cluster's authority: signs the certificates of its nodes and drivers, and makes and checks join tokens.
//!
//! Invariants:
//! 1. Its keys lie in files that only the user can read, in a directory that only the user can enter.
//! 2. There is no table of tokens here: whether one is ours and has not expired is computed from it and a key.
//! 3. A rotation of its key goes through the stages `Next` and `Old`, each of which is on disk before it counts. In both, two
//!    certificates of authorities are trusted: a node of either stage and a node of the stage before or after trust each other.

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
/// The key that signs after the present one.
const NEXT_KEY_FILE: &str = "next.key";
const NEXT_CERTIFICATE_FILE: &str = "next.crt";
/// What is still trusted, and signs no more.
const OLD_CERTIFICATE_FILE: &str = "old.crt";
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
    keys: RwLock<Keys>,
    token_key: RwLock<hmac::Key>,
    /// How long the certificates are good that it signs.
    lifetime: Duration,
}

/// What the authority signs with, and what nodes of the cluster trust.
struct Keys {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    rotation: Option<Rotation>,
    /// How often this has changed since the authority was opened.
    serial: u64,
}

/// How far another key has come.
enum Rotation {
    /// It is trusted, and does not sign yet.
    Next { key: Box<KeyPair>, certificate: CertificateDer<'static> },
    /// It signs, and the one before, of this certificate, is still trusted.
    Old(CertificateDer<'static>),
}

impl Keys {
    fn new(key: KeyPair, certificate: CertificateDer<'static>, rotation: Option<Rotation>) -> Self {
        Self { issuer: Issuer::new(authority_parameters(), key), certificate, rotation, serial: 0 }
    }

    /// The certificates of authorities that are trusted; first the one of the key that signs.
    fn trusted(&self) -> Vec<CertificateDer<'static>> {
        let other = self
            .rotation
            .as_ref()
            .map(|(Rotation::Next { certificate, .. } | Rotation::Old(certificate))| certificate);
        [Some(&self.certificate), other].into_iter().flatten().cloned().collect()
    }

    fn sign(
        &self,
        key: &impl PublicKeyData,
        name: String,
        lifetime: Duration,
    ) -> Result<CertificateDer<'static>, IdentityError> {
        let mut parameters = CertificateParams::new([name]).map_err(signing)?;
        parameters.distinguished_name = common_name("aktis");
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        parameters.serial_number = Some(new_serial());
        set_lifetime(&mut parameters, lifetime);
        Ok(parameters.signed_by(key, &self.issuer).map_err(signing)?.der().clone())
    }
}

/// A certificate for the key of another machine, and what that machine trusts from then on.
#[derive(Clone, Debug)]
pub struct Certified {
    /// The certificate.
    pub certificate: Vec<u8>,
    /// The certificates of the authorities to trust.
    pub authorities: Vec<Vec<u8>>,
    /// Of which change of the authority that is.
    pub serial: u64,
}

impl Authority {
    /// Makes the authority of a new cluster, in `directory`.
    pub fn create(directory: &Path) -> Result<Self, IdentityError> {
        files::create_private_directory(directory)?;
        let certificate_path = directory.join(CERTIFICATE_FILE);
        if Self::is_in(directory) {
            return Err(IdentityError::Exists(directory.to_owned()));
        }
        let (key, certificate) = new_authority()?;
        let token_key: [u8; TOKEN_KEY_BYTES] = random_bytes();
        files::write_private(&directory.join(KEY_FILE), key.serialized_der())?;
        files::write_private(&directory.join(TOKEN_KEY_FILE), &token_key)?;
        // Last, because it says that there is an authority: whoever is killed before can begin again.
        files::write_private(&certificate_path, &certificate)?;
        Ok(Self::new(Keys::new(key, certificate, None), &token_key))
    }

    /// Whether an authority was made in `directory`.
    pub fn is_in(directory: &Path) -> bool {
        directory.join(CERTIFICATE_FILE).exists()
    }

    /// The authority that was made in `directory`.
    pub fn open(directory: &Path) -> Result<Self, IdentityError> {
        let unreadable =
            |file: &str, expected| IdentityError::Unreadable { path: directory.join(file), expected };
        finish_promotion(directory)?;
        let read_certificate = |file: &str| {
            let certificate = CertificateDer::from(files::read(&directory.join(file))?);
            match is_authority(&certificate) {
                true => Ok(certificate),
                false => Err(unreadable(file, "the certificate of an authority")),
            }
        };
        let read_key = |file: &str| {
            let key = PrivatePkcs8KeyDer::from(files::read_private(&directory.join(file))?);
            KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ED25519)
                .map_err(|_| unreadable(file, "the key of an authority"))
        };
        let rotation = match (has(directory, NEXT_CERTIFICATE_FILE), has(directory, OLD_CERTIFICATE_FILE)) {
            (true, _) => {
                let (key, certificate) = (read_key(NEXT_KEY_FILE)?, read_certificate(NEXT_CERTIFICATE_FILE)?);
                Some(Rotation::Next { key: Box::new(key), certificate })
            }
            (false, true) => Some(Rotation::Old(read_certificate(OLD_CERTIFICATE_FILE)?)),
            (false, false) => None,
        };
        let keys = Keys::new(read_key(KEY_FILE)?, read_certificate(CERTIFICATE_FILE)?, rotation);
        let token_key = files::read_private(&directory.join(TOKEN_KEY_FILE))?;
        if token_key.len() != TOKEN_KEY_BYTES {
            return Err(unreadable(TOKEN_KEY_FILE, "the key of join tokens"));
        }
        Ok(Self::new(keys, &token_key))
    }

    fn new(keys: Keys, token_key: &[u8]) -> Self {
        Self {
            keys: RwLock::new(keys),
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
        Fingerprint::of(&self.keys.read().certificate)
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.fingerprint().cluster()
    }

    /// A new key, and a certificate for it.
    pub fn issue(&self, node: NodeId, role: Role) -> Result<Identity, IdentityError> {
        let (key, keys) = (new_key()?, self.keys.read());
        let certificate = keys.sign(&key, Name { node, role }.to_string(), self.lifetime)?;
        let key = key.serialized_der().to_vec().into();
        Ok(Identity::new(certificate, key, keys.trusted()).expect("the name is one of ours"))
    }

    /// A certificate for a key of another machine, which shows that it has the key whenever it uses the certificate.
    pub fn certify(
        &self,
        node: NodeId,
        role: Role,
        public_key: [u8; PUBLIC_KEY_BYTES],
    ) -> Result<Certified, IdentityError> {
        let keys = self.keys.read();
        let certificate =
            keys.sign(&PublicKey(public_key), Name { node, role }.to_string(), self.lifetime)?;
        let authorities = keys.trusted().iter().map(|certificate| certificate.to_vec()).collect();
        Ok(Certified { certificate: certificate.to_vec(), authorities, serial: keys.serial })
    }

    /// The key and certificate that joining nodes are shown.
    pub(crate) fn issue_door(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivatePkcs8KeyDer<'static>), IdentityError> {
        let (key, keys) = (new_key()?, self.keys.read());
        let certificate = keys.sign(&key, DOOR_NAME.to_owned(), self.lifetime)?;
        Ok((vec![certificate, keys.certificate.clone()], key.serialized_der().to_vec().into()))
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

    /// How often what it signs with, or what is trusted, has changed since it was opened.
    pub fn serial(&self) -> u64 {
        self.keys.read().serial
    }

    /// Makes another key in the authority's `directory`, which is trusted from now on beside the present one and signs nothing
    /// yet. Nothing if a rotation was begun before, and not ended.
    pub fn begin_rotation(&self, directory: &Path) -> Result<(), IdentityError> {
        let mut keys = self.keys.write();
        if keys.rotation.is_none() {
            let (key, certificate) = new_authority()?;
            files::write_private(&directory.join(NEXT_KEY_FILE), key.serialized_der())?;
            files::write_private(&directory.join(NEXT_CERTIFICATE_FILE), &certificate)?;
            keys.rotation = Some(Rotation::Next { key: Box::new(key), certificate });
        }
        keys.serial += 1;
        Ok(())
    }

    /// From now on the other key signs, and the one before is still trusted. Tokens of the one before let nobody in any more.
    pub fn promote_next(&self, directory: &Path) -> Result<(), IdentityError> {
        let mut keys = self.keys.write();
        keys.serial += 1;
        match keys.rotation.take() {
            Some(Rotation::Next { key, certificate }) => {
                let promoted = files::write_private(&directory.join(OLD_CERTIFICATE_FILE), &keys.certificate)
                    .and_then(|()| finish_promotion(directory));
                if let Err(error) = promoted {
                    keys.rotation = Some(Rotation::Next { key, certificate });
                    return Err(error);
                }
                let old = std::mem::replace(&mut keys.certificate, certificate);
                keys.issuer = Issuer::new(authority_parameters(), *key);
                keys.rotation = Some(Rotation::Old(old));
            }
            rotation => keys.rotation = rotation,
        }
        Ok(())
    }

    /// What the key before has signed is good for nothing any more.
    pub fn end_rotation(&self, directory: &Path) -> Result<(), IdentityError> {
        let mut keys = self.keys.write();
        if let Some(Rotation::Old(_)) = keys.rotation {
            files::remove(&directory.join(OLD_CERTIFICATE_FILE))?;
            keys.rotation = None;
        }
        keys.serial += 1;
        Ok(())
    }
}

fn has(directory: &Path, file: &str) -> bool {
    directory.join(file).exists()
}

/// Puts the next key and certificate in their places, if that was begun: the certificate before lies beside by then.
fn finish_promotion(directory: &Path) -> Result<(), IdentityError> {
    if !has(directory, OLD_CERTIFICATE_FILE) {
        return Ok(());
    }
    for (next, place) in [(NEXT_KEY_FILE, KEY_FILE), (NEXT_CERTIFICATE_FILE, CERTIFICATE_FILE)] {
        if has(directory, next) {
            files::rename(&directory.join(next), &directory.join(place))?;
        }
    }
    Ok(())
}

/// Whether a certificate can be that of an authority.
pub(crate) fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    webpki::anchor_from_trusted_cert(certificate).is_ok()
}

/// A key, and a certificate for it that it has signed itself.
fn new_authority() -> Result<(KeyPair, CertificateDer<'static>), IdentityError> {
    let key = new_key()?;
    let mut parameters = authority_parameters();
    parameters.serial_number = Some(new_serial());
    set_lifetime(&mut parameters, AUTHORITY_LIFETIME);
    let certificate = parameters.self_signed(&key).map_err(signing)?.der().clone();
    Ok((key, certificate))
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
