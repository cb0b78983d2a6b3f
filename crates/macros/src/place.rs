//! Whether a function is inside an impl or a trait. A macro gets the tokens of the function alone, so this reads the
//! source up to the attribute. Where the source cannot be read, the compiler refuses the generated type instead.

use std::iter::Peekable;
use std::str::Chars;

/// Words that may stand before `impl` or `trait`.
const MODIFIERS: [&str; 6] = ["pub", "unsafe", "default", "const", "auto", "crate"];

/// Whether the attribute at `line` and `column`, both counted from 1, is on the function `name` in an impl or trait.
pub(crate) fn is_associated(source: &str, line: usize, column: usize, name: &str) -> bool {
    let Some(offset) = offset_of(source, line, column) else { return false };
    let (before, after) = source.split_at(offset);
    after.starts_with('#') && declares(after, name) && Scopes::default().innermost_is_impl(before)
}

/// The byte at a line and column.
fn offset_of(source: &str, line: usize, column: usize) -> Option<usize> {
    let start: usize = source.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let mut characters = source[start..].char_indices();
    characters.nth(column.checked_sub(1)?).map(|(offset, _)| start + offset)
}

/// Whether the first function in the text has this name.
fn declares(text: &str, name: &str) -> bool {
    let mut words =
        text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '#').filter(|word| !word.is_empty());
    words.any(|word| word == "fn") && words.next() == Some(name)
}

/// The braces that are open.
#[derive(Default)]
struct Scopes {
    /// Whether each is the body of an impl or trait, and how many parentheses are open around it.
    open: Vec<(bool, usize)>,
    /// Parentheses and brackets that are open inside the innermost brace.
    depth: usize,
    /// The first word of the current item or statement that is no modifier.
    head: Option<String>,
}

impl Scopes {
    /// Whether the text ends directly in the body of an impl or trait; not if it ends in a comment or literal.
    fn innermost_is_impl(mut self, text: &str) -> bool {
        let mut rest = text.chars().peekable();
        while let Some(character) = rest.next() {
            let complete = match character {
                '/' if rest.peek() == Some(&'/') => rest.any(|c| c == '\n'),
                '/' if rest.peek() == Some(&'*') => skip_comment(&mut rest),
                '"' => skip_string(&mut rest),
                '\'' => skip_quote(&mut rest),
                c if c.is_alphabetic() || c == '_' => self.word(c, &mut rest),
                c => {
                    self.punctuation(c);
                    true
                }
            };
            if !complete {
                return false;
            }
        }
        self.depth == 0 && self.open.last().is_some_and(|(is_impl, _)| *is_impl)
    }

    fn punctuation(&mut self, character: char) {
        match character {
            '{' => {
                let is_impl = matches!(self.head.as_deref(), Some("impl" | "trait"));
                self.open.push((is_impl && self.depth == 0, self.depth));
                (self.depth, self.head) = (0, None);
            }
            '}' => {
                self.depth = self.open.pop().map_or(0, |(_, depth)| depth);
                self.head = None;
            }
            '(' | '[' => self.depth += 1,
            ')' | ']' => self.depth = self.depth.saturating_sub(1),
            ';' if self.depth == 0 => self.head = None,
            _ => {}
        }
    }

    /// Takes a word, or a literal that begins like one.
    fn word(&mut self, first: char, rest: &mut Peekable<Chars<'_>>) -> bool {
        let mut word = String::from(first);
        while let Some(next) = rest.next_if(|c| c.is_alphanumeric() || *c == '_') {
            word.push(next);
        }
        if matches!(word.as_str(), "r" | "br" | "cr") && matches!(rest.peek(), Some('"' | '#')) {
            return skip_raw(rest);
        }
        if self.depth == 0 && self.head.is_none() && !MODIFIERS.contains(&word.as_str()) {
            self.head = Some(word);
        }
        true
    }
}

/// Skips a comment after its `/`, with those inside; whether it ends.
fn skip_comment(rest: &mut Peekable<Chars<'_>>) -> bool {
    rest.next();
    let mut depth = 1;
    while depth > 0 {
        match (rest.next(), rest.peek()) {
            (Some('/'), Some('*')) => depth += usize::from(rest.next().is_some()),
            (Some('*'), Some('/')) => depth -= usize::from(rest.next().is_some()),
            (Some(_), _) => {}
            (None, _) => return false,
        }
    }
    true
}

/// Skips a string after its `"`; whether it ends.
fn skip_string(rest: &mut Peekable<Chars<'_>>) -> bool {
    while let Some(character) = rest.next() {
        match character {
            '\\' => drop(rest.next()),
            '"' => return true,
            _ => {}
        }
    }
    false
}

/// Skips a raw string after its `r`; whether it ends. A raw identifier is no string.
fn skip_raw(rest: &mut Peekable<Chars<'_>>) -> bool {
    let mut marks = 0;
    while rest.next_if_eq(&'#').is_some() {
        marks += 1;
    }
    if rest.next_if_eq(&'"').is_none() {
        return true;
    }
    while rest.any(|c| c == '"') {
        let mut left = marks;
        while left > 0 && rest.next_if_eq(&'#').is_some() {
            left -= 1;
        }
        if left == 0 {
            return true;
        }
    }
    false
}

/// Skips a character after its `'`; whether it ends. A lifetime is no character.
fn skip_quote(rest: &mut Peekable<Chars<'_>>) -> bool {
    if rest.next_if_eq(&'\\').is_some() {
        rest.next();
        return rest.any(|c| c == '\'');
    }
    let mut ahead = rest.clone();
    if ahead.next().is_some() && ahead.next() == Some('\'') {
        rest.nth(1);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::is_associated;

    /// Asks for the attribute that is marked with `@`, on the function `f`.
    fn asked(marked: &str) -> bool {
        let (before, after) = marked.split_once('@').expect("a mark");
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
        is_associated(&format!("{before}{after}"), line, column, "f")
    }

    #[test]
    fn functions_of_impls_and_traits_are_found() {
        for marked in [
            "impl X {\n    @#[remote]\n    fn f() {}\n}",
            "impl<T: Fn(u8) -> [u8; 2]> X<T> where T: Y {\n @#[remote(cpus = 2)]\n pub fn f(x: u8) -> u8 { x }",
            "#[doc = \"}\"] pub unsafe trait Y: Z { const A: u8 = 1; @#[remote] fn f() {} }",
            "mod a { fn g() { let x = ('{', '\\'', \"}\\\"\", r#\"}\"#, 'a'); }\n impl X { /* } /* } */ */ @#[remote] fn f() {} } }",
            "fn g<'a>(x: &'a u8) {}\nimpl X {\n // }\n fn h() { if true { 1 } else { 2 }; }\n    @#[remote]\n async fn f() {}",
            "macro_rules! m { () => { impl X { @#[remote] fn f() {} } } }",
        ] {
            assert!(asked(marked), "{marked}");
        }
    }

    #[test]
    fn functions_of_modules_and_bodies_are_not() {
        for marked in [
            "@#[remote]\nfn f() {}",
            "impl X { fn g() {} }\nmod a {\n    @#[remote]\n    fn f() {}\n}",
            "impl X {\n    fn g() {\n        @#[remote]\n        fn f() {}\n    }\n}",
            "fn g() -> impl Fn() {\n    @#[remote]\n    fn f() {}\n}",
            "impl X {\n    /// ```\n    /// @#[remote]\n    /// fn f() {}\n    /// ```\n    fn g() {}\n}",
            "impl X {\n    const A: &str = \"\n @#[remote]\n fn f() {}\";\n}",
            "impl X {\n    @#[remote]\n    fn other() {}\n}",
            "struct X { r#impl: u8 }\nmod trait_ { @#[remote] fn f() {} }",
        ] {
            assert!(!asked(marked), "{marked}");
        }
    }

    #[test]
    fn places_that_are_not_in_the_source_are_not() {
        assert!(!is_associated("", 1, 1, "f"));
        assert!(!is_associated("impl X {\n", 7, 3, "f"));
        assert!(!is_associated("impl X { fn f() {} }", 0, 0, "f"));
    }
}
