//! Joining a cluster: a token for a certificate.
//!
//! The machine that joins knows the head by the fingerprint in the token, and makes its own key, which it keeps. The
//! head knows it by the secret in the token, chooses its id, and signs.
//!
//! Invariant: a token gives no certificate for an id that anybody has or had. So a certificate's id stands for one key.

use crate::authority::{Authority, Certified, new_key};
use crate::frame::Kind;
use crate::hello::{Hello, JoinAnswer, JoinRequest, Refusal};
use crate::identity::{Identity, IdentityError, Role, random_node_id};
use crate::tls;
use crate::token::Token;
use crate::wire::{Wire, WireError};
use aktis_protocol::member::PublicKey;
use aktis_protocol::trust::TokenId;
use aktis_protocol::{NodeId, limits};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a machine could not join.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// There is nobody, or nobody who answers.
    #[error(
        "no connection to {address}: {error}\nhint: is the head running, and can this machine reach that address?"
    )]
    Wire {
        /// Where the head should be.
        address: SocketAddr,
        /// What happened.
        error: WireError,
    },
    /// Somebody answers who is not the head of the token's cluster.
    #[error(
        "{address} is not the head of the cluster that the token is for\n\
         hint: use the token that this head has printed"
    )]
    Stranger {
        /// Who should be the head.
        address: SocketAddr,
    },
    /// The head said no.
    #[error("{0}\nhint: `aktis token` on the head's machine prints a new token")]
    Refused(Refusal),
    /// The certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// What a machine has that has joined.
#[derive(Debug)]
pub struct Joined {
    /// Who it is from now on.
    pub identity: Identity,
    /// The head's node.
    pub head: NodeId,
    /// The address of this machine from which it reaches the head.
    pub from: IpAddr,
}

/// Somebody who wants to join, and has a token of this cluster that has not expired.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer {
    /// The token.
    pub token: TokenId,
    /// Who it is to be: an id that the head has just made.
    pub node: NodeId,
    /// What it is to be.
    pub role: Role,
    /// The key that its certificate will be for.
    pub public_key: PublicKey,
    /// Where it comes from.
    pub address: SocketAddr,
}

/// Has a say in who joins.
pub trait Admission: Send + Sync {
    /// Lets somebody in, or says why not.
    fn admit(&self, newcomer: &Newcomer) -> Result<(), Refusal>;
}

/// Lets in whoever has a good token.
#[derive(Clone, Copy, Debug)]
pub struct AdmitAll;

impl Admission for AdmitAll {
    fn admit(&self, _newcomer: &Newcomer) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Where others can join: only the head's endpoint has it.
#[derive(Clone)]
pub struct Door {
    /// Checks tokens, and signs.
    pub authority: Arc<Authority>,
    /// Has a say.
    pub admission: Arc<dyn Admission>,
}

impl Door {
    /// Signs, or says why not.
    pub(crate) fn answer(
        &self,
        request: &JoinRequest,
        from: SocketAddr,
        head: NodeId,
    ) -> Result<Vec<u8>, Refusal> {
        self.authority.check_secret(&request.secret).map_err(Refusal::Token)?;
        let JoinRequest { secret, role, public_key } = *request;
        let newcomer =
            Newcomer { token: secret.id(), node: random_node_id(), role, public_key, address: from };
        self.admission.admit(&newcomer)?;
        let certified = self.authority.certify(newcomer.node, role, public_key);
        let Certified { certificate, authorities, .. } =
            certified.map_err(|error| Refusal::Other(error.to_string()))?;
        let answer = JoinAnswer { certificate, authorities, head };
        Ok(postcard::to_stdvec(&answer).expect("an answer can be encoded"))
    }
}

/// Joins the cluster whose head is at `address`, which chooses the id. Takes no longer than `patience`.
pub fn join(address: SocketAddr, token: &Token, role: Role, patience: Duration) -> Result<Joined, JoinError> {
    let deadline = Instant::now() + patience;
    let on_wire = |error| match error {
        WireError::Tls(rustls::Error::InvalidCertificate(_)) => JoinError::Stranger { address },
        error => JoinError::Wire { address, error },
    };
    let unreadable = || JoinError::Wire { address, error: WireError::Unexpected };
    let key = new_key()?;
    let public_key = key.public_key_raw().try_into().expect("the key is of the kind that we make");
    let request = JoinRequest { secret: token.secret, role, public_key };
    let configuration = tls::join_client(token.fingerprint)?;
    let mut wire = Wire::connect(address, &configuration, tls::door_name(), deadline).map_err(on_wire)?;
    let local = wire.socket().local_addr();
    let from = local.map_err(|error| on_wire(WireError::from(error)))?.ip();
    wire.send_frame(Kind::Hello, &Hello::Join(request).encode(), deadline).map_err(on_wire)?;
    let answer = match wire.receive_frame(limits::STRANGER_FRAME_BYTES_MAX, deadline).map_err(on_wire)? {
        (Kind::Welcome, payload) => payload,
        (Kind::Refused, payload) => return Err(JoinError::Refused(Refusal::decode(&payload))),
        _ => return Err(unreadable()),
    };
    let JoinAnswer { certificate, authorities, head } =
        postcard::from_bytes(&answer).map_err(|_| unreadable())?;
    let key = key.serialized_der().to_vec();
    let authorities = authorities.into_iter().map(Into::into).collect();
    let identity = Identity::new(certificate.into(), key.into(), authorities).ok_or_else(unreadable)?;
    if identity.role() != role || identity.cluster() != token.fingerprint.cluster() {
        return Err(unreadable());
    }
    Ok(Joined { identity, head, from })
}
