//! Markdown is wrapped at 110 columns, so that a change of one sentence is a change of few lines.

use super::Problem;
use super::source::File;

const COLUMNS_MAX: usize = 110;

/// Checks one file: all lines but those of code, tables, headings and quotations.
pub(super) fn check(file: &File) -> Vec<Problem> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let mut in_code = false;
    for (index, line) in file.text.lines().enumerate() {
        let content = line.trim_start();
        if content.starts_with("```") {
            in_code = !in_code;
        }
        if in_code || content.starts_with(['|', '#', '!', '>', '<']) || line.chars().count() <= COLUMNS_MAX {
            continue;
        }
        if can_be_broken(content) {
            let message = format!("the line is longer than {COLUMNS_MAX} columns");
            problems.push(Problem::at_line(file, index + 1, message));
        }
    }
    problems
}

/// Whether there is a space outside of code and of the targets of links, other than that of a list's mark.
fn can_be_broken(content: &str) -> bool {
    let text = content.split_once(' ').filter(|(mark, _)| is_mark(mark)).map_or(content, |(_, text)| text);
    let outside_code = text.split('`').step_by(2);
    let mut outside = outside_code.flat_map(|part| {
        part.split("](").enumerate().map(|(index, piece)| match index {
            0 => piece,
            _ => piece.split_once(')').map_or("", |(_, after)| after),
        })
    });
    outside.any(|piece| piece.contains(' '))
}

fn is_mark(word: &str) -> bool {
    let number = word.strip_suffix('.').unwrap_or_default();
    matches!(word, "-" | "*") || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Vec<String> {
        check(&File::new("docs/guide.md", text)).into_iter().map(|problem| problem.place).collect()
    }

    #[test]
    fn long_lines_that_can_be_broken_are_found() {
        let word = "x".repeat(COLUMNS_MAX - 2);
        assert_eq!(
            places(&format!("a {word}\nb c {word}\n- d {word}\n")),
            ["docs/guide.md:2", "docs/guide.md:3"]
        );
        assert_eq!(places(&format!("a {}\n", "ü".repeat(COLUMNS_MAX - 2))), Vec::<String>::new());
    }

    #[test]
    fn lines_that_cannot_be_broken_pass() {
        let word = "x".repeat(COLUMNS_MAX);
        let code = format!("```text\na {word}\n```\n");
        let table = format!("| a | {word} |\n# a {word}\n");
        let whole = format!("- {word}\n1. `a {word}`\n[{word}](b \"c d\")\n");
        assert_eq!(places(&(code + &table + &whole)), Vec::<String>::new());
    }

    #[test]
    fn other_files_may_be_wider() {
        let text = format!("a {}\n", "x ".repeat(COLUMNS_MAX));
        assert!(check(&File::new("a.txt", &text)).is_empty());
    }
}
