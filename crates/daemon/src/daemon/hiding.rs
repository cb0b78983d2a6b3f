//! Whether tasks on the head's machine see the directory of the control process, with the keys of the cluster in it.

use super::{DaemonConfig, DaemonError};
use crate::control::control_directory;
use aktis_node::journal;
use aktis_store::Hidden;

/// When workers on the head's machine are kept from the control process's directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HideControl {
    /// If the system lets this process do that.
    #[default]
    Auto,
    /// Always: else the node does not start.
    Always,
    /// Never.
    Never,
}

/// What workers of this daemon must not see: on other machines than the head's, nothing.
pub(super) fn hidden(config: &DaemonConfig) -> Result<Option<Hidden>, DaemonError> {
    let place = control_directory(&config.directory);
    if config.hide_control == HideControl::Never || !place.exists() {
        return Ok(None);
    }
    match Hidden::new(&place) {
        Ok(hidden) => Ok(Some(hidden)),
        Err(source) if config.hide_control == HideControl::Always => {
            Err(DaemonError::HideControl { place, source })
        }
        Err(error) => {
            journal::warn(format_args!(
                "tasks on this machine can read the keys of the cluster in {}: \
                 the system refuses a mount namespace without them: {error}\n\
                 hint: start the head of a cluster that several people use with --cpus 0",
                place.display()
            ));
            Ok(None)
        }
    }
}
