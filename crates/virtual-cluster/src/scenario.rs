//! Stories about a node, one command per line: `scenarios/*.txt`, and how they are run.
//!
//! A line is a command with words, `key=value` options and, at its end, `by PROCESS` to say who does it
//! (the driver if nobody is named). `#` begins a comment. After each command, everything that it caused
//! is carried out. Processes are called `driver`, `worker` (the shared one), `isolated` (the youngest of
//! these), `worker:NAME` and `isolated:NAME`
//! (those of a program), what they were called when they attached, or `p3` by place. CONTRIBUTING.md shows how to write one; `commands` and `expectations` list
//! all that can be said.

mod commands;
mod expectations;
mod line;
mod stage;

use line::Line;
use stage::Stage;

/// Runs a story. The error names the line.
pub fn run(name: &str, text: &str) -> Result<(), String> {
    let mut stage = Stage::default();
    for (number, source) in text.lines().enumerate() {
        let at = |message: String| format!("{name}:{}: {message}\n    {}", number + 1, source.trim());
        let Some(line) = Line::parse(source).map_err(at)? else { continue };
        match line.command() {
            "expect" => stage.expect(&line).map_err(at)?,
            _ => stage.perform(&line).map_err(at)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn a_wrong_expectation_is_reported_with_its_line() {
        let error = run("story", "node cpus=2\n\nexpect process worker alive").unwrap_err();
        assert!(error.starts_with("story:3: expected alive, found starting"), "{error}");
    }

    #[test]
    fn unknown_words_are_errors() {
        for wrong in ["dance", "node cpus=many", "put a", "node cpus=1\nexpect joy", "put \"a 1K"] {
            assert!(run("story", wrong).is_err(), "{wrong}");
        }
    }
}
