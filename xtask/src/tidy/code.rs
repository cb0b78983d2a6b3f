//! Rust files: where `unsafe` may stand, nothing unfinished, not too long, and a first line that says what it is.

use super::Problem;
use super::source::{File, lines_with};

/// Folders that may use `unsafe`; every block has its reason beside it, which clippy checks.
const UNSAFE_FOLDERS: &[&str] = &["crates/store/", "crates/python/"];

/// Other files that may, how often, and why.
const UNSAFE_FILES: &[(&str, usize, &str)] = &[
    (
        "crates/runtime/src/worker/entry.rs",
        1,
        "a link section is the only way to enter worker mode before `main` does",
    ),
    (
        "crates/simulate/src/dispatch.rs",
        1,
        "calls what is compiled for newer processors, after asking whether this is one",
    ),
];

const LINES_MAX: usize = 700;

const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!", "#[ignore"];

/// Checks one file.
pub(super) fn check(file: &File) -> Vec<Problem> {
    if !file.is_rust() {
        return Vec::new();
    }
    let mut problems = check_unsafe(file);
    problems.extend(check_finished(file));
    problems.extend(check_length(file));
    problems.extend(check_first_line(file));
    problems
}

fn check_unsafe(file: &File) -> Vec<Problem> {
    if UNSAFE_FOLDERS.iter().any(|folder| file.path.starts_with(folder)) {
        return Vec::new();
    }
    let allowed = UNSAFE_FILES.iter().find(|(path, ..)| *path == file.path).map_or(0, |(_, uses, _)| *uses);
    let problem = |line| {
        let message =
            "`unsafe` outside of store\nhint: find a safe way, or put it behind a safe function of store";
        Problem::at_line(file, line, message)
    };
    lines_with(&file.code, "unsafe").into_iter().skip(allowed).map(problem).collect()
}

/// Finds allowances that nobody uses any more.
pub(super) fn check_allowances(files: &[File]) -> Vec<Problem> {
    let used = |path: &str| {
        let file = files.iter().find(|file| file.path == path);
        file.map_or(0, |file| lines_with(&file.code, "unsafe").len())
    };
    let unused = UNSAFE_FILES.iter().filter(|(path, uses, _)| used(path) < *uses);
    let problem = |(path, uses, why): &(&str, usize, &str)| Problem {
        place: "xtask/src/tidy/code.rs".to_owned(),
        message: format!(
            "{path} may use `unsafe` {uses} times ({why}), and does not\nhint: take it off the list"
        ),
    };
    unused.map(problem).collect()
}

fn check_finished(file: &File) -> Vec<Problem> {
    let find = |word: &&str| -> Vec<Problem> {
        let problem = |line| Problem::at_line(file, line, format!("`{word}` is unfinished work"));
        lines_with(&file.code, word).into_iter().map(problem).collect()
    };
    UNFINISHED.iter().flat_map(find).collect()
}

fn check_length(file: &File) -> Option<Problem> {
    let lines = file.text.lines().count();
    let message = format!("{lines} lines, and {LINES_MAX} are the most\nhint: one noun per file");
    (lines > LINES_MAX).then(|| Problem::in_file(file, message))
}

/// Programs that must not compile, or must, are fixtures and not modules: they lie in folders below `tests`.
fn check_first_line(file: &File) -> Option<Problem> {
    let is_fixture = file.path.split_once("/tests/").is_some_and(|(_, rest)| rest.contains('/'));
    let documented = file.text.strip_prefix("//! ").is_some_and(|rest| !rest.starts_with('\n'));
    let message = "the first line does not say what the file is for\nhint: begin it with `//! `";
    (!documented && !is_fixture).then(|| Problem::at_line(file, 1, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> String {
        check(&File::new(path, text)).iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn plain_code_passes() {
        let text =
            "//! A thing.\n\n// unsafe, todo! and dbg! in words only\n#![deny(unsafe_code)]\nfn a() {}\n";
        assert_eq!(messages("crates/api/src/a.rs", text), "");
    }

    #[test]
    fn unsafe_belongs_to_store() {
        let text = "//! A thing.\n\nunsafe fn a() {}\n";
        assert_eq!(messages("crates/store/src/a.rs", text), "");
        assert!(messages("crates/api/src/a.rs", text).starts_with("crates/api/src/a.rs:3: `unsafe` outside"));
    }

    #[test]
    fn an_allowance_is_for_so_many_uses_and_not_for_ever() {
        let (path, uses, _) = UNSAFE_FILES[0];
        let text = |uses: usize| format!("//! A thing.\n{}", "#[unsafe(no_mangle)]\n".repeat(uses));
        assert_eq!(messages(path, &text(uses)), "");
        assert!(messages(path, &text(uses + 1)).contains("`unsafe` outside"));
        let used: Vec<File> =
            UNSAFE_FILES.iter().map(|(path, uses, _)| File::new(path, &text(*uses))).collect();
        assert_eq!(check_allowances(&used), []);
        assert_eq!(check_allowances(&[File::new(path, &text(0))]).len(), UNSAFE_FILES.len());
    }

    #[test]
    fn unfinished_work_is_found() {
        for word in ["todo!()", "unimplemented!(\"later\")", "dbg!(x)", "#[ignore]", "#[ignore = \"slow\"]"] {
            let shown = messages("crates/api/src/a.rs", &format!("//! A thing.\n{word}\n"));
            assert!(shown.contains("a.rs:2: ") && shown.contains("unfinished"), "{word}: {shown}");
        }
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!(messages("crates/api/src/a.rs", &"//! A line.\n".repeat(LINES_MAX)), "");
        assert!(
            messages("crates/api/src/a.rs", &"//! A line.\n".repeat(LINES_MAX + 1)).contains("701 lines")
        );
    }

    #[test]
    fn the_first_line_says_what_a_file_is_for() {
        for text in ["fn a() {}\n", "//!\n//! Late.\n", "\n//! Late.\n", ""] {
            assert!(messages("crates/api/src/a.rs", text).contains("first line"), "{text:?}");
        }
        assert_eq!(messages("crates/api/tests/compile_fail/a.rs", "fn a() {}\n"), "");
        assert!(messages("crates/api/tests/a.rs", "fn a() {}\n").contains("first line"));
    }
}
