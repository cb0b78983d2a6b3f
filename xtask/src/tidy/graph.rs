//! Which crate uses which: as ARCHITECTURE.md says, and nothing heavier than it says.
//!
//! The document has the graph in a fenced block that begins with three backticks and `crate-graph`, one line
//! per crate: `runtime: logic node protocol store`. Dependencies for tests only are not in it.

use super::Problem;
use std::collections::{BTreeMap, BTreeSet};

/// The arguments with which cargo prints what [`Dependencies::parse`] reads.
pub(super) const CARGO_TREE: &[&str] =
    &["tree", "--quiet", "--workspace", "--edges", "normal,build", "--prefix", "depth", "--format", " {p}"];

type Graph = BTreeMap<String, BTreeSet<String>>;

/// All packages, by name, and what each uses directly.
#[derive(Debug, Default)]
pub(super) struct Dependencies {
    uses: Graph,
    /// Packages of the workspace, and the names of their folders.
    folders: BTreeMap<String, String>,
}

impl Dependencies {
    /// Reads lines of depth, name, version and more: `1 aktis-store v0.1.0 (path)`. A package that was printed
    /// before comes without what it uses.
    pub(super) fn parse(text: &str) -> Self {
        let mut dependencies = Self::default();
        let mut above: Vec<String> = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let Some((Ok(depth), Some(name))) =
                words.next().map(|depth| (depth.parse::<usize>(), words.next()))
            else {
                continue;
            };
            above.truncate(depth);
            if let Some(user) = above.last() {
                dependencies.uses.entry(user.clone()).or_default().insert(name.to_owned());
            } else {
                let folder = words.rev().find_map(|word| word.strip_prefix("(/")?.strip_suffix(')'));
                let folder = folder.and_then(|path| path.rsplit('/').next()).unwrap_or(name);
                dependencies.folders.insert(name.to_owned(), folder.to_owned());
            }
            above.push(name.to_owned());
        }
        dependencies
    }

    /// The graph inside the workspace, by folder.
    fn inside(&self) -> Graph {
        let folder_of = |name: &String| self.folders.get(name).cloned();
        let uses = |name| self.uses.get(name).into_iter().flatten().filter_map(folder_of).collect();
        self.folders.iter().map(|(name, folder)| (folder.clone(), uses(name))).collect()
    }

    /// All that `package` uses, directly or not.
    fn closure(&self, package: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&str> = vec![package];
        while let Some(user) = open.pop() {
            for used in self.uses.get(user).into_iter().flatten() {
                if reached.insert(used.as_str()) {
                    open.push(used);
                }
            }
        }
        reached
    }
}

/// Compares with the document, and looks for what must not be reached from where.
pub(super) fn check(dependencies: &Dependencies, architecture: &str) -> Vec<Problem> {
    let mut problems = compare(&dependencies.inside(), architecture);
    for (package, folder) in &dependencies.folders {
        let reached = dependencies.closure(package);
        let problem = |message: &str| Problem {
            place: format!("crates/{folder}/Cargo.toml"),
            message: message.to_owned(),
        };
        let above_io = package == "aktis-io" || reached.contains("aktis-io");
        if reached.contains("tokio") && !above_io {
            problems.push(problem(
                "it uses tokio, and lies below `io`\nhint: `cargo tree -i tokio` shows through what",
            ));
        }
        if reached.contains("pyo3") && folder != "python" {
            problems.push(problem("it uses pyo3\nhint: only `python` may; put the conversion there"));
        }
    }
    problems
}

fn compare(actual: &Graph, architecture: &str) -> Vec<Problem> {
    let problem = |message: String| vec![Problem { place: "ARCHITECTURE.md".to_owned(), message }];
    let Some(written) = written_graph(architecture) else {
        return problem(
            "there is no crate graph\nhint: it is a fenced block that begins with ```crate-graph".to_owned(),
        );
    };
    if *actual == written {
        return Vec::new();
    }
    let mut message = "the crate graph is not that of the Cargo.toml files".to_owned();
    for (sign, graph, other) in [('-', &written, actual), ('+', actual, &written)] {
        for (folder, uses) in graph {
            let Some(known) = other.get(folder) else {
                message += &format!("\n  {sign} {}", line_of(folder, uses));
                continue;
            };
            for used in uses.difference(known) {
                message += &format!("\n  {sign} {folder}: {used}");
            }
        }
    }
    message += "\nhint: - is only in the document, + only in Cargo.toml; change the one that is wrong, downward arrows only";
    problem(message)
}

fn line_of(folder: &str, uses: &BTreeSet<String>) -> String {
    uses.iter().fold(format!("{folder}:"), |line, used| format!("{line} {used}"))
}

fn written_graph(architecture: &str) -> Option<Graph> {
    let mut lines = architecture.lines().skip_while(|line| line.trim() != "```crate-graph");
    lines.next()?;
    let lines = lines.take_while(|line| !line.starts_with("```"));
    let crates = lines.filter_map(|line| line.split_once(':'));
    Some(
        crates
            .map(|(name, uses)| {
                (name.trim().to_owned(), uses.split_whitespace().map(str::to_owned).collect())
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "\
0 aktis v0.1.0 (/somewhere/crates/api)
1 aktis-macros v0.1.0 (proc-macro) (/somewhere/crates/macros)
2 syn v3.0.0
1 aktis-logic v0.1.0 (/somewhere/crates/logic)

0 aktis-logic v0.1.0 (/somewhere/crates/logic) (*)

0 aktis-macros v0.1.0 (proc-macro) (/somewhere/crates/macros) (*)
";
    const DOCUMENT: &str = "# Title\n```crate-graph\napi: logic macros\nlogic:\nmacros:\n```\nmore: text\n";

    fn problems(tree: &str, document: &str) -> String {
        let problems = check(&Dependencies::parse(tree), document);
        problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_same_graph_passes() {
        assert_eq!(problems(TREE, DOCUMENT), "");
    }

    #[test]
    fn differences_are_shown_with_their_side() {
        let shown = problems(TREE, "```crate-graph\napi: macros store\nlogic:\nstore: logic\n```");
        for expected in ["- api: store", "+ api: logic", "- store: logic", "+ macros:", "hint:"] {
            assert!(shown.contains(expected), "{expected} is not in\n{shown}");
        }
        assert!(problems(TREE, "# No graph").contains("there is no crate graph"));
    }

    #[test]
    fn tokio_belongs_to_io_and_above() {
        let document = "```crate-graph\nlogic:\n```";
        let below = "0 aktis-logic v0.1.0 (/s/crates/logic)\n1 hyper v1.0.0\n2 tokio v1.0.0\n";
        assert!(problems(below, document).contains("crates/logic/Cargo.toml: it uses tokio"));
        let document = "```crate-graph\nio:\ndaemon: io\n```";
        let above = "0 aktis-daemon v0.1.0 (/s/crates/daemon)\n1 aktis-io v0.1.0 (/s/crates/io)\n2 tokio v1.0.0\n\n\
                     0 aktis-io v0.1.0 (/s/crates/io) (*)\n";
        assert_eq!(problems(above, document), "");
    }

    #[test]
    fn pyo3_belongs_to_python() {
        let uses = |folder: &str| format!("0 aktis-{folder} v0.1.0 (/s/crates/{folder})\n1 pyo3 v0.30.0\n");
        assert_eq!(problems(&uses("python"), "```crate-graph\npython:\n```"), "");
        assert!(problems(&uses("libs"), "```crate-graph\nlibs:\n```").contains("it uses pyo3"));
    }
}
