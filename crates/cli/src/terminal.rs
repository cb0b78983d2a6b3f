//! The way of all output to its reader: whatever is written here gives no orders to a terminal.

use aktis_protocol::text;
use std::io::{self, Write};

/// Passes text on with all orders written out but those that end lines. Text that is written in pieces has its orders in
/// one of them: each is one character, and pieces that end inside of a character wait for the rest.
pub(crate) struct Screen<W> {
    output: W,
    /// The beginning of a character.
    rest: Vec<u8>,
}

impl<W: Write> Screen<W> {
    pub(crate) fn new(output: W) -> Self {
        Self { output, rest: Vec::new() }
    }

    /// Writes a line that a process has printed; see [`text::printed_line`].
    pub(crate) fn printed_line(&mut self, line: &str, colours: bool) -> io::Result<()> {
        writeln!(self.output, "{}", text::printed_line(line, colours))
    }
}

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Ok(_) => self.rest.len(),
            // It ends inside of a character; elsewhere it is no text, which is shown as such.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => self.rest.len(),
        };
        let text = text::lines(&String::from_utf8_lossy(&self.rest[..whole]));
        self.rest.drain(..whole);
        self.output.write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// Says something besides the answer, on the standard error.
pub(crate) fn note(text: &str) {
    // If the standard error is closed, nobody can be told of that.
    let _ = writeln!(io::stderr(), "{}", text::lines(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_pieces_is_cleaned_as_a_whole() {
        let text = "gnp.\u{202e}exe \u{9b}31m\x1b[2J größe\n";
        let mut written = Screen::new(Vec::new());
        // In pieces that end inside of characters.
        text.as_bytes().chunks(1).for_each(|piece| written.write_all(piece).expect("written"));
        assert_eq!(String::from_utf8(written.output).expect("text"), text::lines(text));
    }

    #[test]
    fn bytes_that_are_no_text_do_not_stop_what_follows() {
        let mut written = Screen::new(Vec::new());
        written.write_all(b"a\xffb\n").expect("written");
        assert_eq!(String::from_utf8(written.output).expect("text"), "a\u{fffd}b\n");
    }
}
