//! Plots: named series over two axes, each linear or logarithmic. The legend is beside the picture,
//! so it hides no point.

use super::Error;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::ops::Range;

const WIDTH: u32 = 1000;
/// Least height; a longer legend increases it.
const HEIGHT: u32 = 600;
const LEGEND: u32 = 280;
/// Top of the legend, and the height of one of its lines.
const LEGEND_TOP: i32 = 60;
const LEGEND_LINE: i32 = 22;
const TEXT: &str = "sans-serif";

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Its part of the file's name; if it is empty, the file has the report's name.
    pub name: String,
    /// Title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Series in the order of the legend.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    label: String,
    log: bool,
}

impl Axis {
    /// Linear axis; it begins at zero.
    pub fn linear(label: &str) -> Self {
        Self { label: label.into(), log: false }
    }

    /// Logarithmic axis; values that are not positive are left out.
    pub fn log(label: &str) -> Self {
        Self { label: label.into(), log: true }
    }

    /// Range of all values, with some margin.
    fn range(&self, values: impl Iterator<Item = f64>) -> Range<f64> {
        let (low, high) = values
            .filter(|&value| self.shows(value))
            .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        match (low <= high, self.log) {
            (true, true) => low / 1.25..high * 1.25,
            (true, false) => low.min(0.0)..(high * 1.05).max(low + 1e-9),
            (false, true) => 1.0..10.0,
            (false, false) => 0.0..1.0,
        }
    }

    /// Most grid lines.
    fn labels(&self) -> usize {
        if self.log { 40 } else { 10 }
    }

    /// Label of a grid line; a logarithmic axis has room for 1, 2 and 5 of each decade only.
    fn text(&self, value: f64) -> String {
        let digit = (value / 10_f64.powf(value.log10().floor())).round() as u32;
        if self.log && ![1, 2, 5, 10].contains(&digit) { String::new() } else { short(value) }
    }

    fn shows(&self, value: f64) -> bool {
        value.is_finite() && (!self.log || value > 0.0)
    }
}

/// A series of points.
#[derive(Clone, Debug)]
pub struct Series {
    /// Text in the legend.
    pub name: String,
    /// Style of the points.
    pub style: Style,
    /// x and y.
    pub points: Vec<(f64, f64)>,
}

/// Style of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Points with a line through them: measurements of this project.
    Line,
    /// A dashed line: a target, a limit, or a plot of a paper.
    Dashed,
    /// Crosses without a line: figures that a paper states.
    Points,
}

impl Series {
    /// Creates a series.
    pub fn new(name: &str, style: Style, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), style, points }
    }
}

impl Plot {
    /// Draws the picture.
    ///
    /// # Errors
    ///
    /// [`Error::Plot`].
    pub fn svg(&self) -> Result<String, Error> {
        let all = || self.series.iter().flat_map(|series| &series.points);
        let x = self.x.range(all().map(|point| point.0));
        let y = self.y.range(all().map(|point| point.1));
        let drawn = match (self.x.log, self.y.log) {
            (false, false) => self.draw(x, y),
            (false, true) => self.draw(x, y.log_scale()),
            (true, false) => self.draw(x.log_scale(), y),
            (true, true) => self.draw(x.log_scale(), y.log_scale()),
        };
        drawn.map_err(|cause| Error::Plot { name: self.name.clone(), cause })
    }

    fn draw<X, Y>(&self, x: X, y: Y) -> Result<String, String>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut picture = String::new();
        {
            let legend = LEGEND_TOP + LEGEND_LINE * self.series.len() as i32;
            let size = (WIDTH, HEIGHT.max(legend as u32));
            let area = SVGBackend::with_string(&mut picture, size).into_drawing_area();
            area.fill(&WHITE).map_err(text)?;
            let (left, right) = area.split_horizontally((WIDTH - LEGEND) as i32);
            let mut chart = ChartBuilder::on(&left)
                .caption(&self.title, (TEXT, 20))
                .margin(12)
                .x_label_area_size(44)
                .y_label_area_size(70)
                .build_cartesian_2d(x, y)
                .map_err(text)?;
            chart
                .configure_mesh()
                .x_desc(&self.x.label)
                .y_desc(&self.y.label)
                .label_style((TEXT, 14))
                .max_light_lines(1)
                .light_line_style(BLACK.mix(0.05))
                .bold_line_style(BLACK.mix(0.15))
                .x_labels(self.x.labels())
                .y_labels(self.y.labels())
                .x_label_formatter(&|value| self.x.text(*value))
                .y_label_formatter(&|value| self.y.text(*value))
                .draw()
                .map_err(text)?;
            for (at, series) in self.series.iter().enumerate() {
                let shown = |point: &&(f64, f64)| self.x.shows(point.0) && self.y.shows(point.1);
                let points: Vec<_> = series.points.iter().filter(shown).copied().collect();
                let pen = color(at).stroke_width(2);
                match series.style {
                    Style::Line => {
                        chart.draw_series(LineSeries::new(points, pen).point_size(3)).map(drop)
                    }
                    Style::Dashed => {
                        chart.draw_series(DashedLineSeries::new(points, 8, 5, pen)).map(drop)
                    }
                    Style::Points => chart
                        .draw_series(points.into_iter().map(|at| Cross::new(at, 6, pen)))
                        .map(drop),
                }
                .map_err(text)?;
                key(&right, at as i32, series)?;
            }
            area.present().map_err(text)?;
        }
        Ok(picture)
    }
}

/// Draws one line of the legend.
fn key(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    line: i32,
    series: &Series,
) -> Result<(), String> {
    let y = LEGEND_TOP + LEGEND_LINE * line;
    let pen = color(line as usize).stroke_width(2);
    match series.style {
        Style::Line => area.draw(&PathElement::new([(6, y), (34, y)], pen)),
        Style::Dashed => area
            .draw(&PathElement::new([(6, y), (16, y)], pen))
            .and_then(|()| area.draw(&PathElement::new([(24, y), (34, y)], pen))),
        Style::Points => area.draw(&Cross::new((20, y), 6, pen)),
    }
    .map_err(text)?;
    area.draw(&Text::new(series.name.clone(), (42, y - 7), (TEXT, 14))).map_err(text)
}

/// Distinguishable colors on white; the list repeats after its last color.
fn color(at: usize) -> RGBColor {
    const COLORS: [u32; 16] = [
        0xe6194b, 0x3cb44b, 0x4363d8, 0xf58231, 0x911eb4, 0x2aa8a8, 0xd032c6, 0x7f8f00, 0x9a6324,
        0x800000, 0x556b2f, 0x000075, 0x808080, 0xb8860b, 0x111111, 0xc71585,
    ];
    let [_, red, green, blue] = COLORS[at % COLORS.len()].to_be_bytes();
    RGBColor(red, green, blue)
}

/// A number in the style of an axis: `500`, `65.5 M`, `0.25`.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let rounded = (scaled * 1000.0).round() / 1000.0;
    format!("{rounded}{unit}")
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(x: Axis, y: Axis) -> Plot {
        let points = vec![(0.0, 3.0), (500.0, f64::NAN), (500.0, 7.0), (65e6, 70.0)];
        let styles = [Style::Line, Style::Dashed, Style::Points];
        let series = styles.map(|style| Series::new(&format!("{style:?}"), style, points.clone()));
        Plot { name: "p".into(), title: "<&>".into(), x, y, series: series.into() }
    }

    #[test]
    fn every_kind_of_axis_can_be_drawn() {
        for x in [Axis::linear("x"), Axis::log("x")] {
            for y in [Axis::linear("y"), Axis::log("y")] {
                let svg = plot(x.clone(), y).svg().unwrap();
                for wanted in ["Line", "Dashed", "Points", "&lt;&amp;&gt;"] {
                    assert!(svg.contains(wanted), "{wanted} is not in {svg}");
                }
            }
        }
    }

    #[test]
    fn a_plot_of_nothing_is_drawn_too() {
        let empty = Plot { series: Vec::new(), ..plot(Axis::log("x"), Axis::linear("y")) };
        assert!(empty.svg().unwrap().contains("</svg>"));
    }

    #[test]
    fn a_logarithmic_axis_says_only_what_there_is_room_for() {
        let text = |axis: Axis| [1e3, 2e3, 3e3, 5e6, 7e6].map(|value| axis.text(value));
        assert_eq!(text(Axis::log("")), ["1000", "2000", "", "5 M", ""]);
        assert_eq!(text(Axis::linear("")), ["1000", "2000", "3000", "5 M", "7 M"]);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([500.0, 65.5e6, 0.25, 1e4].map(short), ["500", "65.5 M", "0.25", "10 k"]);
    }
}
