//! What a daemon says when it is ready: to the command that waits for it, and by that to people and programs.

use crate::failed::Failed;
use crate::record::Record;
use crate::rows;
use aktis_daemon::directory::LOG_NAME;
use aktis_protocol::NodeId;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub(crate) node: NodeId,
    pub(crate) directory: PathBuf,
    /// Where the node listens; none if it was there before.
    pub(crate) address: Option<SocketAddr>,
    /// What only a head has.
    pub(crate) control: Option<Head>,
}

/// The control process, and how to join it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    /// How long the token is good.
    pub(crate) token_seconds: u64,
}

impl Greeting {
    /// One line, for the command that waits.
    pub(crate) fn to_line(&self) -> String {
        serde_json::to_string(self).expect("text and numbers") + "\n"
    }

    /// What [`Self::to_line`] has written.
    pub(crate) fn from_line(line: &str) -> Result<Self, Failed> {
        serde_json::from_str(line)
            .map_err(|error| Failed::Background(format!("the daemon is ready and says {error}")))
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let reach = |address: &SocketAddr| {
            if address.ip().is_loopback() { ", which only this machine can reach" } else { "" }
        };
        let mut words = format!("node {} runs in {}", rows::short(self.node), self.directory.display());
        let _ = match &self.address {
            Some(address) => write!(words, "\nit listens on {address}{}\n", reach(address)),
            None => writeln!(words, ", and has gone on"),
        };
        if let Some(Head { address, token, token_seconds }) = &self.control {
            let _ = write!(
                words,
                "the control process listens on {address}{}\n\
                 to add machines within {} hours, run there:\n  aktis start --address {address} --token {token}\n",
                reach(address),
                token_seconds / 3600
            );
        }
        words
    }

    /// For programs.
    pub(crate) fn record(&self, pid: u32) -> Record {
        let control = self.control.as_ref();
        Record::default()
            .field("node", self.node.to_string())
            .field("directory", self.directory.to_string_lossy())
            .field("pid", pid)
            .field("log", self.directory.join(LOG_NAME).to_string_lossy())
            .field("address", self.address.map(|address| address.to_string()))
            .field("control_address", control.map(|head| head.address.to_string()))
            .field("token", control.map(|head| head.token.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_survives_its_line() {
        let greeting = Greeting {
            node: NodeId::from_words([1, 2]),
            directory: "/run/a b".into(),
            address: None,
            control: Some(Head {
                address: "10.0.0.1:6388".parse().unwrap(),
                token: "t".into(),
                token_seconds: 3600,
            }),
        };
        let line = greeting.to_line();
        assert_eq!(line.lines().count(), 1);
        assert_eq!(Greeting::from_line(&line).unwrap(), greeting);
        assert!(
            greeting.text().contains(", and has gone on\nthe control process listens on 10.0.0.1:6388\n")
        );
        assert!(Greeting::from_line("ready").is_err());
    }
}
