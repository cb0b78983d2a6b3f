//! A match on what a machine is told or orders names every variant: a new one must not be passed over.

use super::Problem;
use super::source::{File, has_word};

/// What machines are told and order, and what crosses links.
const ENUMS: &[&str] = &[
    "ControlClientEffect",
    "ControlClientInput",
    "Frame",
    "FromControl",
    "FromPlacer",
    "HeadEffect",
    "HeadInput",
    "LocalEvent",
    "NodeEffect",
    "NodeInput",
    "PlacerEffect",
    "PlacerInput",
    "ShardEffect",
    "ShardInput",
    "SubmitterEffect",
    "ToControl",
    "ToNode",
    "ToPlacer",
];

/// Checks one file.
pub(super) fn check(file: &File) -> Vec<Problem> {
    let is_test = file.path.ends_with("/tests.rs") || file.path.contains("/tests/");
    if !file.is_rust() || !file.path.starts_with("crates/") || is_test {
        return Vec::new();
    }
    let lines: Vec<&str> = file.code.lines().collect();
    let is_catch_all = |line: &str| line.trim() == "_ => {}";
    let places = (0..lines.len()).filter(|place| is_catch_all(lines[*place]));
    let problem = |place: usize| {
        let name = enum_of_arms(&lines[..place], indent(lines[place]))?;
        let message = format!(
            "this arm passes over variants of `{name}`\nhint: name them, so that a new one is noticed"
        );
        Some(Problem::at_line(file, place + 1, message))
    };
    places.filter_map(problem).collect()
}

/// The machine's enum that the arms with this indentation match on, if it is one.
fn enum_of_arms(before: &[&str], indentation: usize) -> Option<&'static str> {
    let arms = before.iter().rev().take_while(|line| line.trim().is_empty() || indent(line) >= indentation);
    let mut patterns = arms.filter(|line| indent(line) == indentation);
    patterns.find_map(|line| {
        let pattern = line.split("=>").next().unwrap_or_default();
        ENUMS.iter().copied().find(|name| pattern.contains("::") && has_word(pattern, name))
    })
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(code: &str) -> usize {
        check(&File::new("crates/node/src/a.rs", code)).len()
    }

    #[test]
    fn a_match_on_orders_of_a_machine_names_all_of_them() {
        let orders =
            "match effect {\n    NodeEffect::Send { to } => {\n        go(to);\n    }\n    _ => {}\n}\n";
        assert_eq!(problems(orders), 1);
        let inner = "match effect {\n    NodeEffect::Send { to } => match to {\n        A => b(),\n        _ => {}\n    },\n}\n";
        assert_eq!(problems(inner), 0, "what is matched inside is something else");
        assert_eq!(problems("match state {\n    State::Begun => go(),\n    _ => {}\n}\n"), 0);
        let made = "match state {\n    State::Begun => send(ToNode::Started),\n    _ => {}\n}\n";
        assert_eq!(problems(made), 0, "it is made in an arm, and not matched on");
    }
}
