//! Python files: a first line that says what each is, not too long, and one door to the native module.

use super::Problem;
use super::source::File;

const LINES_MAX: usize = 700;

/// The one file that imports the native module; all others import from it.
const DOOR: &str = "python/aktis/_engine.py";

/// Libraries stand on the public API, and do not import from there. Where one has a part in Rust, this file imports it.
const LIBRARY_DOORS: &[&str] = &["python/aktis/collective/_door.py", "python/aktis/simulate/_builtin.py"];

/// Libraries: what they import of `aktis` is public, apart from their doors.
const LIBRARIES: &[&str] = &[
    "python/aktis/collective/",
    "python/aktis/dag/",
    "python/aktis/rl/",
    "python/aktis/simulate/",
    "python/aktis/train/",
    "python/aktis/tune/",
];

/// Checks one file.
pub(super) fn check(file: &File) -> Vec<Problem> {
    if !file.path.ends_with(".py") {
        return Vec::new();
    }
    let mut problems = check_door(file);
    problems.extend(check_library(file));
    problems.extend(check_first_line(file));
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        let message = format!("{lines} lines, and {LINES_MAX} are the most\nhint: one noun per file");
        problems.push(Problem::in_file(file, message));
    }
    problems
}

fn check_door(file: &File) -> Vec<Problem> {
    let is_door = file.path == DOOR || LIBRARY_DOORS.contains(&file.path.as_str());
    if !file.path.starts_with("python/aktis/") || is_door {
        return Vec::new();
    }
    let imports = |line: &str| {
        let line = line.trim_start();
        let is_import = line.starts_with("import ") || line.starts_with("from ");
        // What comes through the door may be called by the same name.
        is_import
            && !line.contains("_engine import")
            && line.split([' ', '.', ',']).any(|word| word == "_native")
    };
    let message = format!("the native module is imported by {DOOR} only\nhint: import from `aktis._engine`");
    let numbered = file.text.lines().enumerate().filter(|(_, line)| imports(line));
    numbered.map(|(index, _)| Problem::at_line(file, index + 1, message.clone())).collect()
}

fn check_library(file: &File) -> Vec<Problem> {
    let is_door = LIBRARY_DOORS.contains(&file.path.as_str());
    if is_door || !LIBRARIES.iter().any(|library| file.path.starts_with(library)) {
        return Vec::new();
    }
    let imports = |line: &str| {
        let line = line.trim_start();
        let is_import = line.starts_with("import ") || line.starts_with("from ");
        is_import && (line.contains("aktis._") || line.starts_with("from aktis import _"))
    };
    let message =
        "a library stands on the public API\nhint: import from `aktis`, or make public what is missing";
    let numbered = file.text.lines().enumerate().filter(|(_, line)| imports(line));
    numbered.map(|(index, _)| Problem::at_line(file, index + 1, message)).collect()
}

fn check_first_line(file: &File) -> Option<Problem> {
    let mut lines = file.text.lines().skip_while(|line| line.starts_with("#!"));
    let documentation = lines.next().and_then(|line| line.trim_start_matches('r').strip_prefix("\"\"\""));
    let documented = documentation.is_some_and(|text| !text.trim().is_empty());
    let message = "the first line does not say what the file is for\nhint: begin it with a docstring";
    (!documented).then(|| Problem::at_line(file, 1, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> String {
        check(&File::new(path, text)).iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn plain_files_pass() {
        assert_eq!(
            messages(
                "python/aktis/a.py",
                "\"\"\"A thing.\"\"\"\n\nfrom aktis._engine import native as _native\n"
            ),
            ""
        );
        assert_eq!(messages("examples/python/a.py", "#!/usr/bin/env python3\n\"\"\"A thing.\"\"\"\n"), "");
        assert_eq!(messages("python/aktis/a.pyi", "import b\n"), "");
    }

    #[test]
    fn the_native_module_has_one_door() {
        for line in ["from aktis import _native", "    from ._native import put", "import aktis._native as n"]
        {
            let text = format!("\"\"\"A thing.\"\"\"\n{line}\n");
            assert!(
                messages("python/aktis/a.py", &text).starts_with("python/aktis/a.py:2: the native"),
                "{line}"
            );
            assert_eq!(messages(DOOR, &text), "");
            assert!(LIBRARY_DOORS.iter().all(|door| messages(door, &text).is_empty()));
            assert_eq!(messages("python/tests/test_a.py", &text), "");
        }
    }

    #[test]
    fn libraries_import_what_is_public() {
        for line in
            ["from aktis._engine import native", "    import aktis._session as s", "from aktis import _ids"]
        {
            let text = format!("\"\"\"A thing.\"\"\"\n{line}\n");
            assert!(messages("python/aktis/train/a.py", &text).contains("public API"), "{line}");
            assert!(!messages("python/aktis/util/a.py", &text).contains("public API"), "{line}");
        }
        let own = "\"\"\"A thing.\"\"\"\nfrom aktis.train._loop import go\nfrom aktis import put\n";
        assert_eq!(messages("python/aktis/train/a.py", own), "");
    }

    #[test]
    fn the_first_line_says_what_a_file_is_for() {
        for text in ["", "import a\n", "\"\"\"\nLate.\n\"\"\"\n", "# A thing.\n"] {
            assert!(messages("python/aktis/a.py", text).contains("first line"), "{text:?}");
        }
    }

    #[test]
    fn long_files_are_found() {
        let text = |lines: usize| "\"\"\"A line.\"\"\"\n".repeat(lines);
        assert_eq!(messages("python/aktis/a.py", &text(LINES_MAX)), "");
        assert!(messages("python/aktis/a.py", &text(LINES_MAX + 1)).contains("701 lines"));
    }
}
