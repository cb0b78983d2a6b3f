//! Who a node or driver is: a certificate that the cluster's authority has signed, and its key.
//!
//! Invariants:
//! 1. The key never leaves the process and the private directory that it is kept in.
//! 2. The certificate says one node id and one role, and nothing else that anybody goes by.

use crate::authority::{PUBLIC_KEY_BYTES, is_authority};
use crate::files;
use aktis_protocol::{ClusterId, NodeId, SessionId, ids::ParseIdError};
use rcgen::{KeyPair, PKCS_ED25519};
use ring::digest;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// DER of a SubjectPublicKeyInfo of an Ed25519 key (RFC 8410), up to the key itself.
const ED25519_KEY_HEADER: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

const KEY_FILE: &str = "identity.key";
const CERTIFICATE_FILE: &str = "identity.crt";
/// Of the authority that has signed the certificate.
const AUTHORITY_FILE: &str = "authority.crt";
/// Of another one that is trusted, while the cluster changes from one to the other.
const OTHER_AUTHORITY_FILE: &str = "other.crt";
/// A cluster changes from one authority to another, and not to two.
const AUTHORITIES_MAX: usize = 2;

/// Why an authority or identity cannot be made, kept or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The disk refused.
    #[error("{path}: {error}", path = path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Others than the user can read it.
    #[error("{path} can be read or changed by others\nhint: chmod {private:o} {path}", path = path.display())]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// The mode that it should have.
        private: u32,
    },
    /// There is an authority already.
    #[error("there is a cluster in {path} already\nhint: start the head again on it, or choose another directory", path = .0.display())]
    Exists(PathBuf),
    /// The file is not what its name says.
    #[error("{path} is not {expected}\nhint: it is damaged, or from another version of aktis", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
    },
    /// A certificate could not be made.
    #[error("no certificate could be made: {0}")]
    Signing(String),
}

impl IdentityError {
    pub(crate) fn file(path: &Path, error: io::Error) -> Self {
        Self::File { path: path.to_owned(), error }
    }
}

/// What the bearer of a certificate is in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// A daemon: it may be dialled, and runs tasks.
    Node,
    /// A program that uses the cluster from outside: it may dial nodes.
    Driver,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "node",
            Self::Driver => "driver",
        })
    }
}

/// The name in a certificate: who its bearer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) node: NodeId,
    pub(crate) role: Role,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.aktis", self.node, self.role)
    }
}

impl std::str::FromStr for Name {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let (node, rest) = text.split_once('.').ok_or(ParseIdError)?;
        let role = match rest {
            "node.aktis" => Role::Node,
            "driver.aktis" => Role::Driver,
            _ => return Err(ParseIdError),
        };
        Ok(Self { node: node.parse()?, role })
    }
}

/// The one name in a certificate that rustls has verified; `None` if it has another number of names, or other ones.
pub(crate) fn name_in(certificate: &CertificateDer<'_>) -> Option<Name> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut names = certificate.valid_dns_names();
    let name = names.next()?.parse().ok()?;
    names.next().is_none().then_some(name)
}

/// The Ed25519 key that a certificate is for; `None` if it is for a key of another kind, which no authority signs.
pub(crate) fn public_key_in(certificate: &CertificateDer<'_>) -> Option<[u8; PUBLIC_KEY_BYTES]> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let info = certificate.subject_public_key_info();
    info.strip_prefix(&ED25519_KEY_HEADER)?.try_into().ok()
}

/// The SHA-256 of an authority's certificate: what a joining node knows the cluster by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub(crate) [u8; 32]);

impl Fingerprint {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        let hash = digest::digest(&digest::SHA256, certificate);
        Self(hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    /// The cluster that the authority makes.
    pub fn cluster(&self) -> ClusterId {
        let word = |at: usize| u64::from_be_bytes(self.0[at..at + 8].try_into().expect("eight bytes"));
        ClusterId::from_words([word(0), word(8)])
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({}…)", self.cluster())
    }
}

/// A random id for a new node or driver.
pub fn random_node_id() -> NodeId {
    NodeId::of_session(SessionId(random_word()))
}

pub(crate) fn random_word() -> u64 {
    u64::from_le_bytes(random_bytes())
}

/// Bytes of the system's random source.
///
/// # Panics
///
/// If the system has none: nothing here is safe without it.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes[filled..], flags))
            .expect("the system has random numbers");
    }
    bytes
}

/// The certificate and key of one node or driver, and the authorities that it trusts.
pub struct Identity {
    name: Name,
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    /// First the one that has signed the certificate.
    authorities: Vec<CertificateDer<'static>>,
}

impl Identity {
    pub(crate) fn new(
        certificate: CertificateDer<'static>,
        key: PrivatePkcs8KeyDer<'static>,
        authorities: Vec<CertificateDer<'static>>,
    ) -> Option<Self> {
        let is_usable =
            (1..=AUTHORITIES_MAX).contains(&authorities.len()) && authorities.iter().all(is_authority);
        let name = name_in(&certificate)?;
        is_usable.then_some(Self { name, certificate, key, authorities })
    }

    /// Reads what [`save`](Self::save) has written.
    pub fn load(directory: &Path) -> Result<Self, IdentityError> {
        let key = files::read_private(&directory.join(KEY_FILE))?;
        let certificate = files::read(&directory.join(CERTIFICATE_FILE))?;
        let mut authorities = vec![files::read(&directory.join(AUTHORITY_FILE))?.into()];
        if directory.join(OTHER_AUTHORITY_FILE).exists() {
            authorities.push(files::read(&directory.join(OTHER_AUTHORITY_FILE))?.into());
        }
        Self::new(certificate.into(), key.into(), authorities).ok_or_else(|| IdentityError::Unreadable {
            path: directory.join(CERTIFICATE_FILE),
            expected: "the certificate of a node or driver",
        })
    }

    /// Writes it into a directory that only the user can enter, which is made if it is not there.
    pub fn save(&self, directory: &Path) -> Result<(), IdentityError> {
        files::create_private_directory(directory)?;
        files::write_private(&directory.join(KEY_FILE), self.key.secret_pkcs8_der())?;
        // When the two change places, and this is cut off in between, the new one must be on disk: it alone stays trusted.
        files::write_private(&directory.join(AUTHORITY_FILE), &self.authorities[0])?;
        match self.authorities.get(1) {
            Some(other) => files::write_private(&directory.join(OTHER_AUTHORITY_FILE), other)?,
            None => files::remove(&directory.join(OTHER_AUTHORITY_FILE))?,
        }
        files::write_private(&directory.join(CERTIFICATE_FILE), &self.certificate)
    }

    /// The same one with another certificate for its key, and other authorities; `None` if that is not for the same name.
    pub fn renewed(&self, certificate: Vec<u8>, authorities: Vec<Vec<u8>>) -> Option<Self> {
        self.with(certificate, authorities).filter(|other| other.name == self.name)
    }

    fn with(&self, certificate: Vec<u8>, authorities: Vec<Vec<u8>>) -> Option<Self> {
        let authorities = authorities.into_iter().map(CertificateDer::from).collect();
        Self::new(certificate.into(), self.key.clone_key(), authorities)
    }

    /// The same key with a certificate for another id; `None` if that is none for the same role.
    pub fn reissued(&self, certificate: Vec<u8>, authorities: Vec<Vec<u8>>) -> Option<Self> {
        self.with(certificate, authorities).filter(|other| other.name.role == self.name.role)
    }

    /// The public half of its key.
    pub fn public_key(&self) -> Result<[u8; PUBLIC_KEY_BYTES], IdentityError> {
        let signing = |error: rcgen::Error| IdentityError::Signing(error.to_string());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&self.key, &PKCS_ED25519).map_err(signing)?;
        let wrong = |_| IdentityError::Signing("its key is of another kind".to_owned());
        key.public_key_raw().try_into().map_err(wrong)
    }

    /// Whose it is.
    pub fn node(&self) -> NodeId {
        self.name.node
    }

    /// What it is for.
    pub fn role(&self) -> Role {
        self.name.role
    }

    /// The cluster that it belongs to.
    pub fn cluster(&self) -> ClusterId {
        Fingerprint::of(&self.authorities[0]).cluster()
    }

    pub(crate) fn authorities(&self) -> &[CertificateDer<'static>] {
        &self.authorities
    }

    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone()]
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.clone_key())
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self {
            name: self.name,
            certificate: self.certificate.clone(),
            key: self.key.clone_key(),
            authorities: self.authorities.clone(),
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({} of {})", self.name, self.cluster())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let node = random_node_id();
        for role in [Role::Node, Role::Driver] {
            let name = Name { node, role };
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        for text in ["", "node.aktis", "join.aktis", "x.node.aktis", &format!("{node}.node.other")] {
            assert!(text.parse::<Name>().is_err(), "{text}");
        }
    }
}
