//! Links and paths in Markdown that name files of the tree lead somewhere.

use super::Problem;
use super::source::File;

/// What the paths begin with that the documents name.
const FOLDERS: &[&str] = &["benches/", "crates/", "docs/", "examples/", "python/", "scenarios/", "xtask/"];

/// Checks one file; `exists` says whether a path from the root leads to something.
pub(super) fn check(file: &File, exists: impl Fn(&str) -> bool) -> Vec<Problem> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let mut in_code = false;
    for (index, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in targets(line) {
            let path = resolve(&file.path, target);
            if !path.is_some_and(|path| path.is_empty() || exists(&path)) {
                problems.push(Problem::at_line(
                    file,
                    index + 1,
                    format!("the link to `{target}` leads nowhere"),
                ));
            }
        }
        for path in paths(line).filter(|path| !exists(path)) {
            problems.push(Problem::at_line(file, index + 1, format!("there is no `{path}`")));
        }
    }
    problems
}

/// The relative targets of the links in a line, without the part after `#`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let ends = line.match_indices("](").map(|(start, opening)| &line[start + opening.len()..]);
    let targets = ends.filter_map(|rest| rest.split([')', ' ', '#']).next());
    targets.filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"))
}

/// The paths from the root that a line names between backticks; patterns such as `crates/*` are none.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    let is_path = |text: &&str| FOLDERS.iter().any(|folder| text.starts_with(folder));
    quoted.filter(is_path).filter(|text| !text.contains([' ', '*', '{', '<', ':']))
}

/// The path from the root that `target` means in the file at `path`; `None` if it leads out of the tree.
fn resolve(path: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => path.split('/').collect(),
    };
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Vec<String> {
        let exists = |path: &str| ["README.md", "docs/rust.md", "docs", "crates/api/src"].contains(&path);
        check(&File::new("docs/guide.md", text), exists).into_iter().map(|problem| problem.place).collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "[a](rust.md) and [b](../README.md#top \"title\")\n[c](https://example.org/x) [d](#here) [e](/docs/)\n\
                    ```rust\nlet x = list[0](missing.md);\n```\n";
        assert_eq!(places(text), Vec::<String>::new());
    }

    #[test]
    fn named_paths_exist() {
        assert!(
            places("`crates/api/src` and `docs/rust.md`, but crates/x, `crates/*` and `a crates/y`\n")
                .is_empty()
        );
        assert_eq!(places("so\n`crates/nothing.rs`\n"), ["docs/guide.md:2"]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(
            places("fine\n[a](missing.md)\n[b](../docs/x.md) [c](../../README.md)\n"),
            ["docs/guide.md:2", "docs/guide.md:3", "docs/guide.md:3"]
        );
    }
}
