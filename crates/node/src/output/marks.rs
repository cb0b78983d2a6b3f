//! Takes the marks out of what a worker has printed.

use aktis_protocol::output::{MARK_END, MARK_START, NAME_BYTES_MAX};

/// A part of what was printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// Words.
    Words(&'a [u8]),
    /// From here on, words are printed in this name; without one, in nobody's.
    Name(&'a [u8]),
}

/// Finds marks, also when they come in pieces.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// What may be the beginning of a mark.
    held: Vec<u8>,
}

/// What begins with the byte that marks begin with.
enum Found<'a> {
    /// A mark: its name, and what comes after it.
    Mark(&'a [u8], &'a [u8]),
    /// Perhaps one: more must come.
    Unclear,
    Words,
}

impl Marks {
    /// Takes bytes apart.
    pub(crate) fn split(&mut self, bytes: &[u8], mut on_part: impl FnMut(Part<'_>)) {
        let held = std::mem::take(&mut self.held);
        let joined;
        let mut rest = if held.is_empty() {
            bytes
        } else {
            joined = [&held, bytes].concat();
            &joined
        };
        // Where to look for the next mark: what comes before is words.
        let mut from = 0;
        while let Some(found) = rest[from..].iter().position(|byte| *byte == MARK_START[0]) {
            let at = from + found;
            match look_at(&rest[at..]) {
                Found::Words => from = at + 1,
                Found::Unclear => {
                    words(&rest[..at], &mut on_part);
                    self.held = rest[at..].to_vec();
                    return;
                }
                Found::Mark(name, after) => {
                    words(&rest[..at], &mut on_part);
                    on_part(Part::Name(name));
                    (rest, from) = (after, 0);
                }
            }
        }
        words(rest, &mut on_part);
    }

    /// What is left when nothing more comes: it was no mark.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

fn words(bytes: &[u8], on_part: &mut impl FnMut(Part<'_>)) {
    if !bytes.is_empty() {
        on_part(Part::Words(bytes));
    }
}

fn look_at(bytes: &[u8]) -> Found<'_> {
    let Some(after_start) = bytes.strip_prefix(MARK_START) else {
        return if MARK_START.starts_with(bytes) { Found::Unclear } else { Found::Words };
    };
    let name_and_end = &after_start[..after_start.len().min(NAME_BYTES_MAX + 1)];
    match name_and_end.iter().position(|byte| *byte == MARK_END || *byte == MARK_START[0]) {
        Some(end) if name_and_end[end] == MARK_END => {
            Found::Mark(&after_start[..end], &after_start[end + 1..])
        }
        None if name_and_end.len() <= NAME_BYTES_MAX => Found::Unclear,
        _ => Found::Words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::output::mark;

    /// The words with the name before each of them.
    fn read(pieces: &[&[u8]]) -> String {
        let mut marks = Marks::default();
        let mut text = Vec::new();
        for piece in pieces {
            marks.split(piece, |part| match part {
                Part::Words(words) => text.extend_from_slice(words),
                Part::Name(name) => text.extend([b"<", name, b">"].concat()),
            });
        }
        text.extend(marks.finish());
        String::from_utf8_lossy(&text).into_owned()
    }

    #[test]
    fn marks_are_found_wherever_the_bytes_are_cut() {
        let bytes = [b"a\x1eb".to_vec(), mark("f"), b"words\n".to_vec(), mark(""), b"c".to_vec()].concat();
        let whole = read(&[&bytes]);
        assert_eq!(whole, "a\x1eb<f>words\n<>c");
        for at in 0..bytes.len() {
            let (left, right) = bytes.split_at(at);
            assert_eq!(read(&[left, right]), whole, "cut at {at}");
        }
        let bytewise: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&bytewise), whole);
    }

    #[test]
    fn what_only_looks_like_a_mark_is_words() {
        let endless = [MARK_START, &[b'x'; NAME_BYTES_MAX + 1], b"\x1f"].concat();
        assert_eq!(read(&[&endless]).into_bytes(), endless);
        let cut_off = [MARK_START, b"na", &mark("f"), b"w"].concat();
        assert_eq!(read(&[&cut_off]), "\x1eaktis:na<f>w");
        assert_eq!(read(&[b"end \x1eakt"]), "end \x1eakt");
    }
}
