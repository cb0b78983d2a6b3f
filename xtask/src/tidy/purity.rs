//! `logic` decides and does nothing else: no clock, no thread, no random hashing, no I/O.

use super::Problem;
use super::source::{File, has_word, lines_with};

const LOGIC: &str = "crates/logic/src/";

/// What must not stand in `logic`, and what to do instead.
const FORBIDDEN: &[(&str, &str)] = &[
    ("std::time", "the time is an argument of `step`"),
    ("Instant", "the time is an argument of `step`"),
    ("SystemTime", "the time is an argument of `step`"),
    ("std::thread", "a machine has one caller at a time"),
    ("thread_local", "state belongs into the machine"),
    ("rand", "derive it from ids and counters, or take it as an input"),
    ("RandomState", "use a BTreeMap, or a hasher with a fixed seed"),
    ("std::net", "order an effect"),
    ("std::fs", "order an effect"),
    ("std::io", "order an effect"),
    ("std::env", "take it in the configuration"),
    ("std::process", "order an effect"),
    ("print!", "order an effect, or return text"),
    ("println!", "order an effect, or return text"),
    ("eprint!", "order an effect, or return text"),
    ("eprintln!", "order an effect, or return text"),
    ("std::{", "write one `use std::...` per line, so that this check can read it"),
];

/// Hashers that give the same order in every run.
const FIXED_HASHERS: &[&str] = &["FixedState", "BuildHasherDefault"];

/// Finds what a deterministic machine must not use.
pub(super) fn check(file: &File) -> Vec<Problem> {
    if !file.path.starts_with(LOGIC) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (word, instead) in FORBIDDEN {
        for line in lines_with(&file.code, word) {
            let message = format!("`{word}` has no place in logic\nhint: {instead}");
            problems.push(Problem::at_line(file, line, message));
        }
    }
    for (index, line) in file.code.lines().enumerate() {
        let hashes = has_word(line, "HashMap") || has_word(line, "HashSet");
        if hashes && !FIXED_HASHERS.iter().any(|hasher| line.contains(hasher)) {
            let message = "a hash table with random order has no place in logic\n\
                           hint: use a BTreeMap, or name one type with a fixed hasher and use that";
            problems.push(Problem::at_line(file, index + 1, message));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(path: &str, text: &str) -> Vec<String> {
        check(&File::new(path, text)).into_iter().map(|problem| problem.place).collect()
    }

    #[test]
    fn pure_code_passes() {
        let text = "//! No std::time and no HashMap here.\nuse std::collections::BTreeMap;\n\
                    type Table<K, V> = std::collections::HashMap<K, V, FixedState>;\n\
                    fn brand() -> &'static str { \"std::fs\" }\n";
        assert_eq!(places("crates/logic/src/queue.rs", text), Vec::<String>::new());
    }

    #[test]
    fn each_forbidden_thing_is_found() {
        for (word, _) in FORBIDDEN {
            assert!(!places("crates/logic/src/a.rs", &format!("//! A.\n{word}\n")).is_empty(), "{word}");
        }
        let text = "//! A.\n\nlet seen = HashSet::new();\n";
        assert_eq!(places("crates/logic/src/a.rs", text), ["crates/logic/src/a.rs:3"]);
    }

    #[test]
    fn other_crates_may() {
        assert!(places("crates/node/src/a.rs", "use std::time::Instant;\n").is_empty());
    }
}
