//! What the project is built from: under which licences, and from where.
//!
//! Known advisories are another matter: `cargo xtask test` asks `cargo audit` for them where that is installed.

use super::Problem;

/// The arguments with which cargo prints what [`check_licences`] reads.
pub(super) const CARGO_LICENCES: &[&str] = &[
    "tree",
    "--quiet",
    "--workspace",
    "--edges",
    "normal,build,dev",
    "--prefix",
    "none",
    "--format",
    "{p}|{l}",
];

/// Licences that go together with the project's own, Apache-2.0.
const LICENCES: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// The only registry that packages come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Packages whose licence is none of those above: lines of a package, a bar, and an expression of licences.
pub(super) fn check_licences(tree: &str) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    for line in tree.lines() {
        let Some((package, licence)) = line.split_once('|') else { continue };
        // A package that was printed before has a star behind it.
        let licence = licence.trim_end_matches("(*)").trim();
        let place = package.split(" (").next().unwrap_or(package).trim().to_owned();
        if !is_allowed(licence) && problems.iter().all(|problem| problem.place != place) {
            let message = match licence {
                "" => "its manifest names no licence".to_owned(),
                licence => {
                    format!("its licence is {licence}, which `xtask/src/tidy/supply.rs` does not allow")
                }
            };
            problems.push(Problem { place, message });
        }
    }
    problems
}

/// Whether an expression of licences leaves a choice that is allowed. `AND` binds closer than `OR`.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.trim();
    if let Some((first, rest)) = split(expression, &[" OR ", "/"]) {
        return is_allowed(first) || is_allowed(rest);
    }
    if let Some((first, rest)) = split(expression, &[" AND "]) {
        return is_allowed(first) && is_allowed(rest);
    }
    match expression.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => is_allowed(inner),
        None => LICENCES.contains(&expression),
    }
}

/// The parts before and after the first operator that is in no parentheses.
fn split<'a>(expression: &'a str, operators: &[&str]) -> Option<(&'a str, &'a str)> {
    let mut depth = 0;
    for (place, character) in expression.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        let rest = &expression[place..];
        if depth == 0
            && let Some(operator) = operators.iter().find(|operator| rest.starts_with(**operator))
        {
            return Some((&expression[..place], &rest[operator.len()..]));
        }
    }
    None
}

/// Packages of `Cargo.lock` that come from elsewhere than the registry, or without the checksum of their content.
pub(super) fn check_sources(lock: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |name: &str| {
            let start = format!("{name} = \"");
            package.lines().find_map(|line| line.strip_prefix(&start)?.strip_suffix('"'))
        };
        // Those without a source are the project's own.
        let Some(source) = value("source") else { continue };
        let what = match value("checksum") {
            _ if source != REGISTRY => format!("comes from {source}, not from crates.io"),
            None => "has no checksum".to_owned(),
            Some(_) => continue,
        };
        let message = format!("{} {}", value("name").unwrap_or("a package"), what);
        problems.push(Problem { place: "Cargo.lock".to_owned(), message });
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_allowed_choice_is_enough_and_all_of_several_terms_are_needed() {
        for (expression, allowed) in [
            ("MIT", true),
            ("MIT OR GPL-3.0-only", true),
            ("Unlicense/MIT", true),
            ("GPL-3.0-only", false),
            ("MIT AND GPL-3.0-only", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(GPL-3.0-only OR MIT) AND (AGPL-3.0-only)", false),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true),
            ("", false),
        ] {
            assert_eq!(is_allowed(expression), allowed, "{expression}");
        }
        let tree =
            "a v1.0.0|MIT\nb v2.0.0 (proc-macro)|GPL-2.0\nb v2.0.0 (proc-macro)|GPL-2.0 (*)\nc v1.0.0|\n";
        let places: Vec<String> = check_licences(tree).into_iter().map(|problem| problem.place).collect();
        assert_eq!(places, ["b v2.0.0", "c v1.0.0"]);
    }

    #[test]
    fn packages_come_from_the_registry_with_a_checksum() {
        let package = |source: &str| format!("[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n{source}\n");
        let registry = format!("source = \"{REGISTRY}\"\n");
        let fine = package("") + &package(&(registry.clone() + "checksum = \"00\""));
        assert_eq!(check_sources(&fine), []);
        for source in [registry, "source = \"git+https://example.com/a#1\"\nchecksum = \"00\"".to_owned()] {
            assert_eq!(check_sources(&package(&source)).len(), 1, "{source}");
        }
    }
}
