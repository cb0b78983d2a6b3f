//! Why something has no place, in words, from the state that decides it.

use super::Placer;
use super::choice::NoPlace;
use super::nodes::Known;
use aktis_protocol::placement::{Demand, rules_text};
use aktis_protocol::{Amount, Resources, Strategy};

impl Placer {
    /// Why none of these nodes, the only ones that a demand may go to, can take it.
    pub(super) fn no_place(&self, demand: &Demand, eligible: &[&Known]) -> NoPlace {
        let which = match &demand.strategy {
            Strategy::Default | Strategy::Spread | Strategy::Node { soft: true, .. } => String::new(),
            Strategy::Node { node, soft: false } => format!(" that is {node}"),
            Strategy::Labels { hard, .. } => format!(" with {}", rules_text(hard)),
        };
        if let Some(place) = demand.group {
            return NoPlace::TooLarge(self.group_place_text(place, &demand.needs, &which));
        }
        if eligible.is_empty() {
            let text = format!("the cluster has no node{which}");
            return match demand.strategy {
                Strategy::Node { node, soft: false } if !self.awaited.contains(&node) => {
                    NoPlace::Missing(text)
                }
                _ => NoPlace::TooLarge(text),
            };
        }
        let totals: Vec<&Resources> = eligible.iter().map(|known| &known.info.resources).collect();
        match infeasible_text(&demand.needs, &totals, &which) {
            Some(text) => NoPlace::TooLarge(text),
            None => NoPlace::Occupied(format!(
                "actors and placement groups have so much that no node{which} can free {}",
                demand.needs
            )),
        }
    }
}

/// Why nothing that needs this fits into any of these; `None` if it does.
pub(super) fn infeasible_text(needs: &Resources, totals: &[&Resources], which: &str) -> Option<String> {
    if totals.iter().any(|total| total.covers(needs)) {
        return None;
    }
    let largest = |name: &str| totals.iter().map(|total| total.get(name)).max().unwrap_or(Amount::ZERO);
    let short: Vec<(&str, Amount)> = needs.iter().filter(|(name, amount)| largest(name) < *amount).collect();
    if short.is_empty() {
        let nearest =
            totals.iter().map(|total| (lacking(needs, total), *total)).min_by_key(|(count, _)| *count);
        let nearest = nearest.map_or(Resources::none(), |(_, total)| total.clone());
        return Some(format!("no node{which} has {needs} together; the nearest has {nearest}"));
    }
    let wants: Vec<String> = short.iter().map(|(name, amount)| format!("{amount} {name}")).collect();
    let has: Vec<String> = short.iter().map(|(name, _)| format!("{} {name}", largest(name))).collect();
    Some(format!("no node{which} has {}; the largest has {}", wants.join(", "), has.join(", ")))
}

/// Of how many resources there is not enough.
fn lacking(needs: &Resources, total: &Resources) -> usize {
    needs.iter().filter(|(name, amount)| total.get(name) < *amount).count()
}
