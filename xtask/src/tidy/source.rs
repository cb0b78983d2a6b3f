//! The files that the checks look at, and Rust code without its comments and literals.

use std::path::Path;

/// A text file of the tree.
pub(super) struct File {
    /// Its path from the root, with `/` between the parts.
    pub(super) path: String,
    /// What is in it.
    pub(super) text: String,
    /// For Rust, the text with comments and the insides of literals blanked out; else empty.
    pub(super) code: String,
}

impl File {
    pub(super) fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") { code_of(text) } else { String::new() };
        Self { path: path.to_owned(), text: text.to_owned(), code }
    }

    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

const EXTENSIONS: &[&str] =
    &["rs", "md", "toml", "txt", "sh", "py", "pyi", "yml", "yaml", "json", "html", "css", "js", "stderr"];
const HIDDEN_FOLDERS: &[&str] = &[".cargo", ".ci", ".config", ".github"];
const SKIPPED_FOLDERS: &[&str] = &["target", "node_modules", "__pycache__"];

/// All text files below `root` that belong to the project, in order of path.
pub(super) fn read_tree(root: &Path) -> std::io::Result<Vec<File>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                if belongs(&path) {
                    folders.push(path);
                }
            } else if is_text(&path) && entry.file_type()?.is_file() {
                let relative = path.strip_prefix(root).expect("it was found below the root");
                let relative = relative.to_string_lossy().replace('\\', "/");
                files.push(File::new(&relative, &String::from_utf8_lossy(&std::fs::read(&path)?)));
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn belongs(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let hidden = name.starts_with('.') && !HIDDEN_FOLDERS.contains(&&*name);
    // Cargo and others mark what can be made again with this file.
    !hidden && !SKIPPED_FOLDERS.contains(&&*name) && !folder.join("CACHEDIR.TAG").exists()
}

fn is_text(file: &Path) -> bool {
    match file.extension() {
        Some(extension) => EXTENSIONS.iter().any(|known| extension == *known),
        None => file.ends_with(".ci/run"),
    }
}

/// The numbers of the lines of `code` in which `pattern` stands as a word of its own.
pub(super) fn lines_with(code: &str, pattern: &str) -> Vec<usize> {
    let numbered = code.lines().enumerate();
    numbered.filter(|(_, line)| has_word(line, pattern)).map(|(index, _)| index + 1).collect()
}

/// Whether `pattern` stands in `line`, and not as a part of a longer name.
pub(super) fn has_word(line: &str, pattern: &str) -> bool {
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    let open_start = !pattern.starts_with(is_name);
    let open_end = !pattern.ends_with(is_name);
    line.match_indices(pattern).any(|(start, found)| {
        (open_start || !line[..start].ends_with(is_name))
            && (open_end || !line[start + found.len()..].starts_with(is_name))
    })
}

/// Rust code with comments and the insides of literals replaced by spaces; lines stay where they are.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let after_name = code.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let blanked = match character {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment_length(rest),
            '"' => quoted_length(rest, '"'),
            '\'' => character_length(rest),
            'r' | 'b' | 'c' if !after_name => raw_string_length(rest),
            _ => 0,
        };
        let (literal, remaining) = rest.split_at(blanked.max(character.len_utf8()));
        if blanked == 0 {
            code.push(character);
        } else {
            code.extend(literal.chars().map(|character| if character == '\n' { '\n' } else { ' ' }));
        }
        rest = remaining;
    }
    code
}

/// Block comments nest.
fn block_comment_length(text: &str) -> usize {
    let mut depth = 0;
    let mut position = 0;
    while position < text.len() {
        let rest = &text.as_bytes()[position..];
        if rest.starts_with(b"/*") {
            depth += 1;
            position += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            position += 2;
            if depth == 0 {
                return position;
            }
        } else {
            position += 1;
        }
    }
    text.len()
}

/// The length of a literal between two `quote`s, with escapes.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (position, character) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if character == '\\' {
            escaped = true;
        } else if character == quote {
            return position + 1;
        }
    }
    text.len()
}

/// The length of a character literal; 0 for a lifetime.
fn character_length(text: &str) -> usize {
    let mut inside = text[1..].chars();
    match (inside.next(), inside.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted_length(text, '\''),
        _ => 0,
    }
}

/// The length of a literal such as `r#"..."#` or `br"..."`; 0 if it is none.
fn raw_string_length(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("br").or(text.strip_prefix("cr")).or(text.strip_prefix('r')) else {
        return 0;
    };
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    if !rest[hashes..].starts_with('"') {
        return 0;
    }
    let start = text.len() - rest.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    text[start..].find(&end).map_or(text.len(), |length| start + length + end.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let text = "a // one\n/* two /* three\n */ */ b \"four \\\" \nfive\" c r#\"six\"\"# d 'e' '\\'' f<'g> b\"seven\" br\"\\\" h";
        let code = code_of(text);
        let words: Vec<_> = code.split_whitespace().collect();
        assert_eq!(words, ["a", "b", "c", "d", "f<'g>", "b", "h"]);
        assert_eq!(code.lines().count(), text.lines().count());
        assert_eq!(lines_with(&code, "b"), [3, 4]);
    }

    #[test]
    fn words_are_not_found_inside_longer_names() {
        assert!(has_word("use std::time::Duration;", "std::time"));
        assert!(!has_word("use std::timers;", "std::time"));
        assert!(!has_word("let unsafe_code = 1;", "unsafe"));
        assert!(has_word("#[ignore = \"slow\"]", "#[ignore"));
    }

    #[test]
    fn folders_that_are_made_again_are_left_out() {
        assert!(belongs(Path::new("crates/api")));
        assert!(belongs(Path::new(".ci")));
        assert!(!belongs(Path::new(".git")));
        assert!(!belongs(Path::new("target")));
        assert!(is_text(Path::new(".ci/run")) && !is_text(Path::new("Cargo.lock")));
    }
}
