//! What people and programs read: the table, and the file.

use crate::figure::{Bound, Figure, Mark};
use std::fmt::Write;

const HEADINGS: [&str; 8] = ["figure", "measured", "unit", "at least", "goal", "", "of the limit", "remarks"];
/// Columns of numbers, which stand at the right.
const NUMBERS: [usize; 3] = [1, 3, 4];

/// The figures for people.
pub(crate) fn table(figures: &[Figure]) -> String {
    let lines: Vec<[String; 8]> =
        std::iter::once(HEADINGS.map(str::to_owned)).chain(figures.iter().map(cells)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        text.push_str(padded(line, &widths).trim_end());
        text.push('\n');
        if index == 0 {
            let rule: Vec<_> = widths.iter().map(|width| "-".repeat(*width)).collect();
            text.push_str(rule.join("  ").trim_end());
            text.push('\n');
        }
    }
    let count = |mark| figures.iter().filter(|figure| figure.mark() == mark).count();
    let (goals, reached, missed) = (count(Mark::Goal), count(Mark::Reached), count(Mark::Missed));
    let _ = write!(text, "\n{} of {} reached", goals + reached, goals + reached + missed);
    let _ = write!(text, ", {goals} of them with the goal; {missed} missed");
    text
}

fn padded(line: &[String; 8], widths: &[usize; 8]) -> String {
    let cell = |(column, text): (usize, &String)| {
        let width = widths[column];
        if NUMBERS.contains(&column) { format!("{text:>width$}") } else { format!("{text:<width$}") }
    };
    line.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ")
}

fn cells(figure: &Figure) -> [String; 8] {
    let bound = |bound: &Option<Bound>| match bound {
        Some(Bound::AtLeast(value)) => number(*value),
        Some(Bound::AtMost(value)) => format!("<= {}", number(*value)),
        None => String::new(),
    };
    let limit = figure.limit.as_ref().map_or_else(String::new, |limit| {
        let ratio = figure.measured / limit.measured;
        format!("{ratio:.2} x {} {} ({})", number(limit.measured), figure.unit.text(), limit.name)
    });
    [
        figure.name.clone(),
        number(figure.measured),
        figure.unit.text().to_owned(),
        bound(&figure.wanted),
        bound(&figure.goal),
        figure.mark().text().to_owned(),
        limit,
        figure.detail.clone(),
    ]
}

/// A number with as many digits as mean something, and thousands apart.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 => return grouped(value.round()),
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    if value < 0.0 {
        text.push('-');
    }
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The figures for programs: one JSON object in each line.
pub(crate) fn json_lines(figures: &[Figure]) -> String {
    let mut text = String::new();
    for figure in figures {
        let _ = write!(text, "{{\"figure\":{},\"measured\":{}", quoted(&figure.name), figure.measured);
        let _ = write!(text, ",\"unit\":{}", quoted(figure.unit.text()));
        for (name, bound) in [("wanted", figure.wanted), ("goal", figure.goal)] {
            let _ = match bound {
                Some(Bound::AtLeast(value)) => write!(text, ",\"{name}\":{{\"at_least\":{value}}}"),
                Some(Bound::AtMost(value)) => write!(text, ",\"{name}\":{{\"at_most\":{value}}}"),
                None => Ok(()),
            };
        }
        if let Some(limit) = &figure.limit {
            let (name, measured) = (quoted(&limit.name), limit.measured);
            let _ = write!(text, ",\"limit\":{{\"name\":{name},\"measured\":{measured}}}");
        }
        let (mark, detail) = (quoted(figure.mark().text()), quoted(&figure.detail));
        let _ = writeln!(text, ",\"mark\":{mark},\"remarks\":{detail}}}");
    }
    text
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
