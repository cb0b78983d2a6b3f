//! How fast objects come from other nodes, where that was seen.

use aktis_protocol::placement::LinkRow;
use aktis_protocol::{NodeId, limits};
use std::collections::BTreeMap;
use std::time::Duration;

/// Objects that are smaller say more about latency than about speed.
const BYTES_MIN: u64 = 1 << 20;

/// See the module. In bytes per second; late ones count more.
#[derive(Default)]
pub(super) struct Speeds(BTreeMap<NodeId, u64>);

impl Speeds {
    /// An object has come.
    pub(super) fn note(&mut self, from: NodeId, bytes: u64, took: Duration) {
        if bytes < BYTES_MIN {
            return;
        }
        let seen = u128::from(bytes) * 1_000_000 / took.as_micros().max(1);
        let seen = u64::try_from(seen).unwrap_or(u64::MAX).max(1);
        if self.0.len() >= limits::REPORT_LINKS_MAX && !self.0.contains_key(&from) {
            self.0.pop_first();
        }
        let speed = self.0.entry(from).or_insert(seen);
        *speed = (*speed / 4) * 3 + seen / 4;
    }

    pub(super) fn rows(&self) -> Vec<LinkRow> {
        self.0.iter().map(|(&from, &bytes_per_second)| LinkRow { from, bytes_per_second }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_follow_what_is_seen_of_large_objects() {
        let node = NodeId::from_words([1, 0]);
        let mut speeds = Speeds::default();
        speeds.note(node, 1000, Duration::from_secs(1));
        assert!(speeds.rows().is_empty());
        speeds.note(node, 100 << 20, Duration::from_secs(1));
        assert_eq!(speeds.rows()[0].bytes_per_second, 100 << 20);
        for _ in 0..20 {
            speeds.note(node, 10 << 20, Duration::from_secs(1));
        }
        let speed = speeds.rows()[0].bytes_per_second;
        assert!((10 << 20..11 << 20).contains(&speed), "{speed}");
    }
}
