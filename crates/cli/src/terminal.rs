//! What people see of texts that others have chosen: names, errors, lines of output. Nothing of it gives orders to a
//! terminal, or changes the order in which letters are shown.

use std::io::{self, Write};

/// What begins orders to a terminal.
const ESCAPE: char = '\x1b';

/// Whether a character does something else than to be seen: moves the cursor, begins orders, or turns the direction of
/// what follows (so that a name reads as another one).
fn is_order(character: char) -> bool {
    let turns = matches!(character,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let parts_lines = matches!(character, '\u{2028}' | '\u{2029}');
    character.is_control() || turns || parts_lines
}

/// Writes an order out, so that it can be seen.
fn push_written(text: &mut String, character: char) {
    *text += &match u32::from(character) {
        number @ 0..=0xff => format!("\\x{number:02x}"),
        number => format!("\\u{{{number:x}}}"),
    };
}

/// The text in one line, with all orders written out.
pub(crate) fn one_line(text: &str) -> String {
    cleaned(text, |_| false)
}

/// The text, with all orders written out but those that end lines.
pub(crate) fn lines(text: &str) -> String {
    cleaned(text, |character| character == '\n')
}

fn cleaned(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for character in text.chars() {
        match is_order(character) && !stays(character) {
            true => push_written(&mut cleaned, character),
            false => cleaned.push(character),
        }
    }
    cleaned
}

/// A line that a process has printed. Tabs and colours stay.
pub(crate) fn printed_line(text: &str) -> String {
    let mut tamed = String::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let length = match colour(rest) {
            Some(colour) => {
                tamed += colour;
                colour.len()
            }
            None => {
                match is_order(character) && character != '\t' {
                    true => push_written(&mut tamed, character),
                    false => tamed.push(character),
                }
                character.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    // Colours end with the line.
    if tamed.contains(ESCAPE) {
        tamed += "\x1b[0m";
    }
    tamed
}

/// What sets the colour of characters, at the beginning of the text.
fn colour(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix(ESCAPE)?.strip_prefix('[')?;
    let end = parameters.find(|character: char| !character.is_ascii_digit() && character != ';')?;
    parameters[end..].starts_with('m').then(|| &text[..text.len() - parameters.len() + end + 1])
}

/// Passes text on with all orders written out but those that end lines. Text that is written in pieces has its orders in
/// one of them: each is one character, and pieces that end inside of a character wait for the rest.
pub(crate) struct Clean<W> {
    output: W,
    /// The beginning of a character.
    rest: Vec<u8>,
}

impl<W: Write> Clean<W> {
    pub(crate) fn new(output: W) -> Self {
        Self { output, rest: Vec::new() }
    }
}

impl<W: Write> Write for Clean<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Ok(_) => self.rest.len(),
            // It ends inside of a character; elsewhere it is no text, which is shown as such.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => self.rest.len(),
        };
        let text = lines(&String::from_utf8_lossy(&self.rest[..whole]));
        self.rest.drain(..whole);
        self.output.write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts that try to do something to whoever looks at them.
    const HOSTILE: &[&str] = &[
        "evil\x1b]0;PWNED\x1b\\",
        "\x1b[2J\x1b[31mred",
        "over\rwritten",
        "bell\x07 and backspace\x08\x08\x08",
        "C1 \u{9b}31m \u{90}q\u{9c}",
        "delete\x7f",
        "null\0",
        "gnp.\u{202e}exe.txt",
        "\u{2066}isolate\u{2069} \u{200f}mark \u{061c}",
        "line\u{2028}paragraph\u{2029}",
    ];

    #[test]
    fn no_hostile_text_gives_orders() {
        for text in HOSTILE {
            for shown in [one_line(text), lines(text)] {
                assert!(!shown.chars().any(is_order), "{text:?}: {shown:?}");
                assert!(shown.contains("\\x") || shown.contains("\\u{"), "it can be seen: {shown:?}");
            }
            let mut written = Clean::new(Vec::new());
            // In pieces that end inside of characters.
            text.as_bytes().chunks(1).for_each(|piece| written.write_all(piece).expect("written"));
            assert_eq!(String::from_utf8(written.output).expect("text"), lines(text));
        }
        assert_eq!(one_line("two\nrows"), "two\\x0arows");
        assert_eq!(lines("two\nrows"), "two\nrows");
        assert_eq!(one_line("größe 大きさ 👩‍🔧"), "größe 大きさ 👩‍🔧", "other texts stay as they are");
    }

    #[test]
    fn a_terminal_gets_no_orders_but_colours() {
        for (text, tamed) in [
            ("a\tplain ünicode line", "a\tplain ünicode line"),
            ("\x1b]0;title\x07\x1b[2Jgone", "\\x1b]0;title\\x07\\x1b[2Jgone"),
            ("over\rwritten \u{9b}31m", "over\\x0dwritten \\x9b31m"),
            ("\x1b[1;31mred", "\x1b[1;31mred\x1b[0m"),
            ("\x1b[?25l\x1b[31", "\\x1b[?25l\\x1b[31"),
            ("\x1b", "\\x1b"),
            ("\u{202e}txt", "\\u{202e}txt"),
        ] {
            assert_eq!(printed_line(text), tamed, "{text:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_do_not_stop_what_follows() {
        let mut written = Clean::new(Vec::new());
        written.write_all(b"a\xffb\n").expect("written");
        assert_eq!(String::from_utf8(written.output).expect("text"), "a\u{fffd}b\n");
    }
}
