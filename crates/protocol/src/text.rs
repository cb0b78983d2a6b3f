//! Text for people: names, errors and output that users choose, shown so that nothing in them commands a terminal, changes
//! the order of letters or begins a line of its own; and times.
//!
//! Invariant: the result of every function here but [`lines`] is one line, and has no character for which [`is_order`] is
//! true, except the colours that [`printed_line`] is told to keep.

/// The character that begins orders to a terminal.
const ESCAPE: char = '\x1b';
const SECONDS_OF_DAY: u64 = 86_400;

/// Whether a character does something else than to be seen: moves the cursor, begins orders, parts lines, or turns the
/// direction of the letters that follow, so that a name reads as another one.
pub fn is_order(character: char) -> bool {
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
pub fn one_line(text: &str) -> String {
    cleaned(text, |_| false)
}

/// The text, with all orders written out but those that end lines.
pub fn lines(text: &str) -> String {
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

/// A line that a process has printed. Tabs stay, and colours if `colours`.
pub fn printed_line(text: &str, colours: bool) -> String {
    let mut tamed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let length = match colour(rest).filter(|_| colours) {
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

/// The order at the beginning of the text, if it sets the colour of characters.
fn colour(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix(ESCAPE)?.strip_prefix('[')?;
    let end = parameters.find(|character: char| !character.is_ascii_digit() && character != ';')?;
    parameters[end..].starts_with('m').then(|| &text[..text.len() - parameters.len() + end + 1])
}

/// A JSON document with the orders in its strings as escapes of JSON; lines between its parts stay.
pub fn json(document: &str) -> String {
    let mut escaped = String::with_capacity(document.len());
    for character in document.chars() {
        match is_order(character) && character != '\n' {
            true => escaped += &format!("\\u{:04x}", u32::from(character)),
            false => escaped.push(character),
        }
    }
    escaped
}

/// A time, from milliseconds since 1970: `2026-11-18T08:44:01.123Z`, as of RFC 3339.
pub fn rfc3339(unix_milliseconds: u64) -> String {
    let (seconds, milliseconds) = (unix_milliseconds / 1000, unix_milliseconds % 1000);
    let (year, month, day) = date(seconds / SECONDS_OF_DAY);
    let of_day = seconds % SECONDS_OF_DAY;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// The same backwards, in milliseconds since 1970. The time of the day, its seconds and their fraction may be left out; it
/// is of UTC, with `Z` or without.
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    let (day, time) = text.split_once(['T', 't', ' ']).unwrap_or((text, "00:00"));
    let numbers = |text: &str, parting: char| -> Option<Vec<u64>> {
        text.split(parting).map(|part| part.parse().ok()).collect()
    };
    let [year, month, of_month] = numbers(day, '-')?[..] else { return None };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let (hour, minute, second) = match numbers(time, ':')?[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let is_time =
        hour < 24 && minute < 60 && second < 60 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if !is_time || !(1970..=9999).contains(&year) || fraction.is_empty() {
        return None;
    }
    // The day is the one among those of its year whose date is this.
    let first = (year - 1970) * 365;
    let days = (first..first + 366 * 9).find(|days| date(*days) == (year, month, of_month))?;
    let milliseconds: u64 = format!("{fraction:0<3}")[..3].parse().ok()?;
    Some(((days * 24 + hour) * 3600 + minute * 60 + second) * 1000 + milliseconds)
}

/// The date so many days after 1 January 1970. Years are counted from March, so that a leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    // From 1 March of the year 0; 146,097 days are 400 years.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts that try to do something to their readers.
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
            for shown in [one_line(text), lines(text), printed_line(text, false)] {
                assert!(!shown.chars().any(is_order), "{text:?}: {shown:?}");
                assert!(shown.contains("\\x") || shown.contains("\\u{"), "it can be seen: {shown:?}");
            }
            let document = json(&format!("\"{text}\""));
            assert!(!document.chars().any(is_order), "{document:?}");
        }
        assert_eq!(one_line("two\nrows"), "two\\x0arows");
        assert_eq!(printed_line("two\nrows", true), "two\\x0arows");
        assert_eq!(lines("two\nrows"), "two\nrows");
        assert_eq!(one_line("größe 大きさ 👩‍🔧"), "größe 大きさ 👩‍🔧", "other texts stay as they are");
        assert_eq!(json("[\n\"\u{9b}\u{202e}\"]"), "[\n\"\\u009b\\u202e\"]");
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
            assert_eq!(printed_line(text, true), tamed, "{text:?}");
        }
        assert_eq!(printed_line("\x1b[31mred", false), "\\x1b[31mred");
    }

    #[test]
    fn times_are_dates_of_the_calendar() {
        for (unix_milliseconds, time) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (1_700_000_000_000, "2023-11-14T22:13:20.000Z"),
            (1_790_000_000_123, "2026-09-21T14:13:20.123Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(unix_milliseconds), time);
            assert_eq!(parse_rfc3339(time), Some(unix_milliseconds));
        }
        for (text, parsed) in [
            ("2023-11-14T22:13Z", Some(1_699_999_980_000)),
            ("2023-11-14 22:13:20.5", Some(1_700_000_000_500)),
            ("2023-11-14", Some(1_699_920_000_000)),
            ("2023-02-29", None),
            ("2023-11-14T24:00Z", None),
            ("2023-11-14T22:13:20+01:00", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(parse_rfc3339(text), parsed, "{text}");
        }
    }
}
