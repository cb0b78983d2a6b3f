//! Plain plots of studies, as SVG.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
/// Left, right, top and bottom of the area with the lines.
const AREA: [f64; 4] = [70.0, 470.0, 40.0, 340.0];
const COLOURS: [&str; 6] = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#555555"];

/// A plot with logarithmic axes.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// What is along the bottom.
    pub across: String,
    /// What is along the side.
    pub up: String,
    /// Lines, with their names: points from left to right.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Plot {
    /// The plot as a file's text.
    pub fn to_svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|(_, points)| points.iter().copied());
        let (xs, ys) = (span(points().map(|(x, _)| x)), span(points().map(|(_, y)| y)));
        let [left, right, top, bottom] = AREA;
        let x_of = |x: f64| left + share(x, xs) * (right - left);
        let y_of = |y: f64| bottom - share(y, ys) * (bottom - top);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        let mut text = |x: f64, y: f64, anchor: &str, words: &str| {
            let words = words.replace('&', "&amp;").replace('<', "&lt;");
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
        };
        text((left + right) / 2.0, 20.0, "middle", &self.title);
        text((left + right) / 2.0, HEIGHT - 20.0, "middle", &self.across);
        text(10.0, 36.0, "start", &self.up);
        for power in decades(xs) {
            text(x_of(power), bottom + 16.0, "middle", &label(power));
        }
        for power in decades(ys) {
            text(left - 6.0, y_of(power) + 4.0, "end", &label(power));
        }
        for (place, (name, _)) in self.lines.iter().enumerate() {
            text(right + 34.0, top + 16.0 + 18.0 * place as f64, "start", name);
        }
        for power in decades(ys) {
            let y = y_of(power);
            let _ = writeln!(
                svg,
                "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
            );
        }
        let _ = writeln!(svg, "<path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>");
        for (place, (_, points)) in self.lines.iter().enumerate() {
            let colour = COLOURS[place % COLOURS.len()];
            let path: Vec<String> =
                points.iter().map(|(x, y)| format!("{:.1} {:.1}", x_of(*x), y_of(*y))).collect();
            let _ = writeln!(
                svg,
                "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.join("L")
            );
            let y = top + 12.0 + 18.0 * place as f64;
            let (from, to) = (right + 10.0, right + 30.0);
            let _ = writeln!(
                svg,
                "<line x1=\"{from}\" x2=\"{to}\" y1=\"{y}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"2\"/>"
            );
        }
        svg + "</svg>\n"
    }
}

/// From the smallest to the largest, as logarithms; never nothing.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let logs: Vec<f64> = values.map(logarithm).collect();
    let low = logs.iter().copied().fold(f64::INFINITY, f64::min).floor();
    let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max).ceil();
    match low.is_finite() {
        true => (low, high.max(low + 1.0)),
        false => (0.0, 1.0),
    }
}

fn logarithm(value: f64) -> f64 {
    value.max(1e-6).log10()
}

fn share(value: f64, (low, high): (f64, f64)) -> f64 {
    (logarithm(value) - low) / (high - low)
}

fn decades((low, high): (f64, f64)) -> Vec<f64> {
    (low as i32..=high as i32).map(|power| 10f64.powi(power)).collect()
}

fn label(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{} M", value / 1e6),
        value if value >= 1e3 => format!("{} k", value / 1e3),
        value => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_each_line_and_every_decade() {
        let lines = vec![
            ("a".to_owned(), vec![(1.0, 10.0), (1000.0, 20.0)]),
            ("b < c".to_owned(), vec![(5.0, 90.0)]),
        ];
        let svg = Plot { title: "x".to_owned(), lines, ..Plot::default() }.to_svg();
        assert_eq!(svg.matches("stroke-width").count(), 4, "two lines, and two in the legend");
        assert!(svg.contains(">1 k<") && svg.contains(">100<") && svg.contains("b &lt; c"));
    }
}
