//! Puts lines together from the pieces in which they are printed.
//!
//! A carriage return lets the line be written over, as progress bars do: only its last form is a line, and one of its
//! forms now and then, so that a long wait shows progress.

use std::time::{Duration, Instant};

/// A longer line is cut into pieces.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;
/// How often a line that is written over again and again is shown.
const PROGRESS: Duration = Duration::from_secs(1);

/// The line that is being printed.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    partial: Vec<u8>,
    /// When it was shown last, or first written over, if it is one that is written over.
    shown_at: Option<Instant>,
}

impl Lines {
    /// Whether the next byte begins a line.
    pub(crate) fn is_empty(&self) -> bool {
        self.partial.is_empty()
    }

    /// Takes in words, and gives the lines that are complete.
    pub(crate) fn take_in(&mut self, words: &[u8], now: Instant, mut on_line: impl FnMut(&[u8])) {
        for piece in words.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if self.partial.last() == Some(&b'\n') {
                self.partial.pop();
                self.finish(&mut on_line);
            } else {
                self.write_over(now, &mut on_line);
                if self.partial.len() > LINE_BYTES_MAX {
                    on_line(&self.partial);
                    self.partial.clear();
                }
            }
        }
    }

    /// Gives what there is of the last line.
    pub(crate) fn finish(&mut self, mut on_line: impl FnMut(&[u8])) {
        self.shown_at = None;
        let line = self.partial.strip_suffix(b"\r").unwrap_or(&self.partial);
        let last = last_form(line);
        // A bar that was wiped off leaves nothing to show.
        if last.len() == line.len() || !is_blank(last) {
            on_line(last);
        }
        self.partial.clear();
    }

    /// Forgets what was written over, after it was shown if it is time to.
    fn write_over(&mut self, now: Instant, on_line: &mut impl FnMut(&[u8])) {
        // A return at the end may be the first half of an end of line.
        let Some((_, before)) = self.partial.split_last() else { return };
        let Some(at) = before.iter().rposition(|byte| *byte == b'\r') else { return };
        let shown = last_form(&self.partial[..at]);
        let since = *self.shown_at.get_or_insert(now);
        if now.saturating_duration_since(since) >= PROGRESS && !is_blank(shown) {
            on_line(shown);
            self.shown_at = Some(now);
        }
        self.partial.drain(..=at);
    }
}

/// What is seen of a line that was written over.
fn last_form(line: &[u8]) -> &[u8] {
    line.rsplit(|byte| *byte == b'\r').next().unwrap_or_default()
}

fn is_blank(text: &[u8]) -> bool {
    text.iter().all(|byte| *byte == b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(pieces: &[(u64, &str)]) -> Vec<String> {
        let began = Instant::now();
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for (milliseconds, piece) in pieces {
            let now = began + Duration::from_millis(*milliseconds);
            lines.take_in(piece.as_bytes(), now, |line| {
                found.push(String::from_utf8_lossy(line).into_owned())
            });
        }
        if !lines.is_empty() {
            lines.finish(|line| found.push(String::from_utf8_lossy(line).into_owned()));
        }
        found
    }

    #[test]
    fn lines_come_whole_and_in_order() {
        assert_eq!(lines_of(&[(0, "a\nb"), (0, "c\n\nd")]), ["a", "bc", "", "d"]);
        assert_eq!(lines_of(&[(0, "a\r\nb\r"), (0, "\nc")]), ["a", "b", "c"]);
    }

    #[test]
    fn of_a_progress_bar_the_last_form_is_a_line() {
        assert_eq!(
            lines_of(&[(0, "\r  0%"), (10, "\r 50%"), (20, "\r100%\n"), (30, "done\n")]),
            ["100%", "done"]
        );
        assert_eq!(lines_of(&[(0, "10%\r20%\r30%\r\n")]), ["30%"]);
        assert_eq!(lines_of(&[(0, "\r 50%"), (0, "\r    \r"), (0, "after\n")]), ["after"]);
        assert_eq!(lines_of(&[(0, "\r 50%\r     \n")]), [""; 0], "wiped off");
    }

    #[test]
    fn a_long_progress_bar_is_shown_now_and_then() {
        let forms: Vec<(u64, String)> = (0..25).map(|step| (step * 100, format!("\r{step}"))).collect();
        let forms: Vec<(u64, &str)> = forms.iter().map(|(at, text)| (*at, text.as_str())).collect();
        assert_eq!(lines_of(&forms), ["9", "19", "24"]);
    }

    #[test]
    fn an_endless_line_is_cut() {
        let text = "x".repeat(LINE_BYTES_MAX);
        let lines = lines_of(&[(0, &text), (0, "yz"), (0, "\n")]);
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [LINE_BYTES_MAX + 2, 0]);
    }
}
