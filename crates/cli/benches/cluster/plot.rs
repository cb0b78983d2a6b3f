//! Lines over sizes, both on logarithmic scales, as an SVG file.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 60.0;

/// One line of the plot.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) colour: &'static str,
    /// Across, and up; both above zero.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A plot, until it is drawn.
pub(crate) struct Plot {
    pub(crate) title: String,
    /// What is across, and the names of the marks there.
    pub(crate) across: &'static str,
    pub(crate) marks: Vec<(f64, String)>,
    /// What is up.
    pub(crate) up: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// Powers of ten around some values.
struct Decades {
    first: i32,
    last: i32,
}

impl Decades {
    fn around(values: impl Iterator<Item = f64> + Clone) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min).log10().floor() as i32;
        let most = values.fold(0.0, f64::max).log10().ceil() as i32;
        Self { first: least, last: most.max(least + 1) }
    }

    /// Where a value lies, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        (value.log10() - f64::from(self.first)) / f64::from(self.last - self.first)
    }
}

impl Plot {
    /// The file.
    pub(crate) fn to_svg(&self) -> String {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let (across, up) =
            (Decades::around(points.clone().map(|p| p.0)), Decades::around(points.map(|p| p.1)));
        let x = |value: f64| LEFT + across.place(value) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - up.place(value) * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let mut text = |x: f64, y: f64, anchor: &str, words: &str| {
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
        };
        text(LEFT, TOP - 18.0, "start", &self.title);
        text((LEFT + right) / 2.0, HEIGHT - 16.0, "middle", self.across);
        text(LEFT - 8.0, TOP - 2.0, "end", self.up);
        for (value, name) in &self.marks {
            text(x(*value), bottom + 20.0, "middle", name);
        }
        for decade in up.first..=up.last {
            let value = 10_f64.powi(decade);
            text(LEFT - 8.0, y(value) + 16.0, "end", &crate::report::number(value));
        }
        for line in &self.lines {
            if let Some(last) = line.points.last() {
                text(x(last.0) + 10.0, y(last.1) + 4.0, "start", line.name);
            }
        }
        for decade in up.first..=up.last {
            let height = y(10_f64.powi(decade));
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {height:.1}H{right}\" stroke=\"#ccc\" stroke-width=\"1\" fill=\"none\"/>"
            );
        }
        for Line { colour, points, .. } in &self.lines {
            let path: Vec<_> = points.iter().map(|p| format!("{:.1} {:.1}", x(p.0), y(p.1))).collect();
            let path = path.join("L");
            let _ =
                writeln!(svg, "<path d=\"M{path}\" stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\"/>");
            for point in points {
                let (x, y) = (x(point.0), y(point.1));
                let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>");
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}
