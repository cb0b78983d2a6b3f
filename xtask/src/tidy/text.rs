//! Every text file: no path of somebody's own machine, no space at the end of a line.

use super::Problem;
use super::source::File;

/// Beginnings of paths that exist on one machine only; in two parts, or this file would break its own rule.
const PRIVATE_PATHS: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("C:", "\\Users"),
];

/// Checks one file.
pub(super) fn check(file: &File) -> Vec<Problem> {
    // What a compiler prints is compared letter by letter, spaces and all.
    let is_output = file.path.ends_with(".stderr");
    let mut problems = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        if let Some(path) = PRIVATE_PATHS.iter().find(|path| has_path(line, path)) {
            let message =
                format!("`{path}` exists on somebody's own machine only\nhint: use a relative path");
            problems.push(Problem::at_line(file, index + 1, message));
        }
        if line.ends_with(char::is_whitespace) && !is_output {
            problems.push(Problem::at_line(file, index + 1, "space at the end of the line"));
        }
    }
    problems
}

/// Whether a path that begins with `path` is in `line`, and not only one that has it further inside.
fn has_path(line: &str, path: &str) -> bool {
    let inside = |character: char| character.is_alphanumeric() || "._-~/}$>".contains(character);
    line.match_indices(path).any(|(start, _)| !line[..start].ends_with(inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(path: &str, text: &str) -> Vec<String> {
        check(&File::new(path, text)).into_iter().map(|problem| problem.place).collect()
    }

    #[test]
    fn clean_text_passes() {
        let text = format!("See docs{}a.md and $HOME{}b.\n\n", PRIVATE_PATHS[3], PRIVATE_PATHS[0]);
        assert!(places("a.md", &text).is_empty());
    }

    #[test]
    fn private_paths_are_found() {
        for path in PRIVATE_PATHS {
            assert_eq!(places("a.toml", &format!("\nlog = \"{path}me/log\"\n")), ["a.toml:2"]);
        }
    }

    #[test]
    fn trailing_space_is_found() {
        assert_eq!(places("a.md", "one\ntwo \nthree\t\n"), ["a.md:2", "a.md:3"]);
        assert!(places("a.stderr", "one \n").is_empty());
    }
}
