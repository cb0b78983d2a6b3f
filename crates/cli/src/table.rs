//! Tables for people: columns that are as wide as they must be, and numbers on the right.

use crate::record::Record;
use aktis_protocol::text;
use std::io::{self, Write};

/// Between two columns.
const GAP: &str = "  ";
/// Longer cells are cut: names and errors of users can be of any length, and ids are shorter.
const CELL_CHARACTERS_MAX: usize = 64;

/// Writes the rows below the headings of the first one.
pub(crate) fn write(output: &mut dyn Write, records: &[Record]) -> io::Result<()> {
    let Some(first) = records.first() else { return Ok(()) };
    let headings: Vec<&str> = first.columns().iter().map(|column| column.heading).collect();
    let cells: Vec<Vec<String>> = records
        .iter()
        .map(|record| record.columns().iter().map(|column| clean(&column.text)).collect())
        .collect();
    let width = |index: usize| {
        let cells = cells.iter().map(|row| row[index].chars().count());
        cells.chain([headings[index].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let numbers: Vec<bool> = (0..headings.len())
        .map(|index| records.iter().any(|record| record.columns()[index].is_number))
        .collect();
    let headings: Vec<String> = headings.into_iter().map(str::to_owned).collect();
    for row in std::iter::once(&headings).chain(&cells) {
        let mut line = String::new();
        for ((cell, width), number) in row.iter().zip(&widths).zip(&numbers) {
            let gap = if line.is_empty() { "" } else { GAP };
            line += &match number {
                true => format!("{gap}{cell:>width$}"),
                false => format!("{gap}{cell:<width$}"),
            };
        }
        writeln!(output, "{}", line.trim_end())?;
    }
    Ok(())
}

/// One line without what moves a terminal's cursor, and not too long.
fn clean(text: &str) -> String {
    let line = text::one_line(text.lines().next().unwrap_or_default());
    let mut characters = line.chars();
    let mut cell: String = characters.by_ref().take(CELL_CHARACTERS_MAX).collect();
    if characters.next().is_some() {
        cell.pop();
        cell.push('…');
    }
    if cell.is_empty() { "-".to_owned() } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_cells_are_tame() {
        let row =
            |name: &str, count: u64| Record::default().column("NAME", name).both("count", "COUNT", count);
        let records =
            [row("a", 7), row("\x1b[31mred\nsecond line", 1234), row(&"x".repeat(70), 0), row("", 5)];
        let mut written = Vec::new();
        write(&mut written, &records).expect("written");
        let cut = format!("{}…", "x".repeat(63));
        let expected = format!(
            "{:<64}  COUNT\n{:<64}      7\n{:<64}   1234\n{cut}      0\n{:<64}      5\n",
            "NAME", "a", "\\x1b[31mred", "-"
        );
        assert_eq!(String::from_utf8_lossy(&written), expected);
    }

    #[test]
    fn no_rows_are_no_table() {
        let mut written = Vec::new();
        write(&mut written, &[]).expect("written");
        assert_eq!(written, b"");
    }
}
