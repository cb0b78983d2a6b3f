//! Another key for the authority of a cluster that goes on: `aktis rotate`.
//!
//! In three stages, each of which all members have taken over before the next begins: both keys are trusted and the old one signs;
//! both are trusted and the new one signs; the new one alone is trusted. So any two members trust each other at any time. A stage
//! that was begun is on disk, and the next command, or the next life of the control process, goes on from there.

use super::renewal::OwnCertificate;
use super::{Shared, trust};
use crate::admin::Refusal;
use aktis_io::{Authority, IdentityError};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the members may take for a stage.
const STAGE_PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Gives how many members have certificates of the new key.
pub(super) fn rotate(shared: &Shared, own: &OwnCertificate, place: &Path) -> Result<u32, Refusal> {
    let Some(_alone) = own.rotating.try_lock() else {
        return Err(Refusal::new("the keys are being rotated already").with_hint("wait for its end"));
    };
    stage(shared, own, place, Authority::begin_rotation)?;
    stage(shared, own, place, Authority::promote_next)?;
    trust::rotate_tokens(shared, &own.authority, place)?;
    let count = stage(shared, own, place, Authority::end_rotation)?;
    let (_, written) = shared.decide(|head, _, out| head.on_authority_rotated(count, out));
    trust::wait_for(&written)?;
    Ok(count)
}

/// Takes a step, and waits until all members have taken it too.
fn stage(
    shared: &Shared,
    own: &OwnCertificate,
    place: &Path,
    step: impl FnOnce(&Authority, &Path) -> Result<(), IdentityError>,
) -> Result<u32, Refusal> {
    let refused = |error: &dyn std::fmt::Display| Refusal::new(format!("the keys are not rotated: {error}"));
    step(&own.authority, place).map_err(|error| refused(&error))?;
    own.renew().map_err(|error| refused(&error))?;
    let serial = own.authority.serial();
    let ((), _) = shared.decide(|head, _, out| head.on_authorities_changed(serial, out));
    let deadline = Instant::now() + STAGE_PATIENCE;
    loop {
        let (unused, used) = shared.shell.lock().authorities_unused();
        let Some(node) = unused.first() else { return Ok(used) };
        if Instant::now() > deadline {
            let text = format!(
                "the keys are not rotated yet: {} nodes, node {node} first, have not taken the next step within {} seconds",
                unused.len(),
                STAGE_PATIENCE.as_secs()
            );
            return Err(Refusal::new(text).with_hint(
                "`aktis rotate` goes on from here; a node that does not answer can be put out by `aktis nodes expel`",
            ));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
