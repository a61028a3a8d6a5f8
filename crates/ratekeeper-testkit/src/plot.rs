//! Plots of the manual: lines over one axis, as SVG.

use std::io;

use plotters::prelude::*;
pub use plotters::prelude::{BLACK, Color, RGBColor, SeriesLabelPosition, ShapeStyle};

const SIZE: (u32, u32) = (720, 380);

/// Vermilion, blue, green and purple that are distinct in print and for the colour-blind (Okabe and Ito, 2008).
pub const COLOURS: [RGBColor; 4] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
];

/// A line of a plot: its name in the legend, its style, and its points from left to right.
pub type Line = (String, ShapeStyle, Vec<(f64, f64)>);

/// Lines, and what they are drawn over.
#[derive(Debug)]
pub struct Plot<'a> {
    /// The name of the axis from left to right, and its end; it begins at 0.
    pub x: (&'a str, f64),
    /// The same upwards.
    pub y: (&'a str, f64),
    /// The place of the legend.
    pub legend: SeriesLabelPosition,
    /// Lines, the lowest first.
    pub lines: Vec<Line>,
}

impl Plot<'_> {
    /// Draws it.
    ///
    /// # Panics
    /// If an axis has no length.
    #[must_use]
    pub fn svg(self) -> String {
        let mut svg = String::new();
        self.draw(&mut svg).expect("a text takes every drawing");
        svg
    }

    fn draw(self, svg: &mut String) -> Result<(), DrawingAreaErrorKind<io::Error>> {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(62)
            .build_cartesian_2d(0.0..self.x.1, 0.0..self.y.1)?;
        // One decimal where it is needed.
        let tick = |value: &f64| format!("{value:.1}").replace(".0", "");
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc(self.x.0)
            .y_desc(self.y.0)
            .x_label_formatter(&tick)
            .y_label_formatter(&tick)
            .draw()?;
        for (name, style, points) in self.lines {
            chart
                .draw_series(LineSeries::new(points, style))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .position(self.legend)
            .background_style(WHITE.mix(0.8))
            .draw()?;
        area.present()
    }
}
