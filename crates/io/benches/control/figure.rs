//! A figure: what was measured, and what is wanted.

use crate::Failure;

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) measured: f64,
    pub(crate) unit: String,
    pub(crate) wanted: Bound,
    /// More about the measurement, in words.
    pub(crate) detail: String,
}

/// What is asked of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    Nothing,
    AtLeast(f64),
    AtMost(f64),
}

impl Figure {
    pub(crate) fn new(name: &str, measured: f64, unit: &str, wanted: Bound, detail: String) -> Self {
        Self { name: name.to_owned(), measured, unit: unit.to_owned(), wanted, detail }
    }

    /// As the process of a row hands it over.
    pub(crate) fn to_line(&self) -> String {
        let (kind, bound) = match self.wanted {
            Bound::Nothing => ("nothing", 0.0),
            Bound::AtLeast(bound) => ("at least", bound),
            Bound::AtMost(bound) => ("at most", bound),
        };
        let Self { name, measured, unit, detail, .. } = self;
        format!("{name}\t{measured}\t{unit}\t{kind}\t{bound}\t{detail}")
    }

    pub(crate) fn from_line(line: &str) -> Result<Self, Failure> {
        let cells: Vec<&str> = line.split('\t').collect();
        let [name, measured, unit, kind, bound, detail] = cells[..] else {
            return Err(format!("not a figure: {line}").into());
        };
        let bound = bound.parse()?;
        let wanted = match kind {
            "at least" => Bound::AtLeast(bound),
            "at most" => Bound::AtMost(bound),
            _ => Bound::Nothing,
        };
        Ok(Self::new(name, measured.parse()?, unit, wanted, detail.to_owned()))
    }

    fn mark(&self) -> &'static str {
        match self.wanted {
            Bound::Nothing => "",
            Bound::AtLeast(bound) if self.measured >= bound => "ok",
            Bound::AtMost(bound) if self.measured <= bound => "ok",
            _ => "MISSED",
        }
    }

    fn wanted_text(&self) -> String {
        match self.wanted {
            Bound::Nothing => String::new(),
            Bound::AtLeast(bound) => format!(">= {}", number(bound)),
            Bound::AtMost(bound) => format!("<= {}", number(bound)),
        }
    }

    /// For programs: an object in a line. Names, units and details are our own words, without quotes.
    pub(crate) fn to_json(&self) -> String {
        let wanted = match self.wanted {
            Bound::Nothing => String::new(),
            Bound::AtLeast(bound) => format!(",\"wanted\":{{\"at_least\":{bound}}}"),
            Bound::AtMost(bound) => format!(",\"wanted\":{{\"at_most\":{bound}}}"),
        };
        let Self { name, measured, unit, detail, .. } = self;
        let mark = self.mark();
        format!(
            "{{\"figure\":\"{name}\",\"measured\":{measured},\"unit\":\"{unit}\"{wanted},\"mark\":\"{mark}\",\
             \"remarks\":\"{detail}\"}}\n"
        )
    }
}

/// The figures for people.
pub(crate) fn table(figures: &[Figure]) -> String {
    let mut lines = vec![["figure", "measured", "unit", "wanted", "", "remarks"].map(str::to_owned)];
    lines.extend(figures.iter().map(|figure| {
        let Figure { name, measured, unit, detail, .. } = figure.clone();
        [name, number(measured), unit, figure.wanted_text(), figure.mark().to_owned(), detail]
    }));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let row = |line: &[String; 6]| {
        let cell = |(text, width): (&String, &usize)| format!("{text:<width$}");
        line.iter().zip(&widths).map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// A number with as many digits as mean something, and thousands apart.
fn number(value: f64) -> String {
    if value.abs() < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
