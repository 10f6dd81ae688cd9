//! Accuracy against speed as an SVG: a point per decoder, the Pareto front as a line.

use anyhow::Result;
use engine::decoding::{DecodingSpec, PRESET_NAMES, TUNED_PRESETS};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::report::Report;

/// Width and height in pixels.
const SIZE: (u32, u32) = (960, 640);
/// Font size of labels, and the mean width of one of their characters.
const FONT: i32 = 12;
const CHARACTER: i32 = 7;
/// The smallest ratio on the logarithmic axis; a decoder without speed stands there.
const SLOWEST: f64 = 0.01;
/// One colour per schedule, in the order of their names; they repeat.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x3b, 0x82, 0xf6),
    RGBColor(0xd9, 0x77, 0x06),
    RGBColor(0x16, 0xa3, 0x4a),
    RGBColor(0xa8, 0x55, 0xf7),
    RGBColor(0xdc, 0x4a, 0x68),
    RGBColor(0x0d, 0x94, 0x88),
];

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A decoder in the plot.
struct Point {
    /// The preset of these settings, if there is one.
    preset: Option<String>,
    schedule: String,
    /// Mean strict accuracy in percent.
    strict: f64,
    /// Speed over the first decoder's.
    ratio: f64,
    /// No decoder is better in both.
    front: bool,
}

impl Point {
    fn at(&self) -> (f64, f64) {
        (self.ratio, self.strict)
    }
}

/// Draws mean strict accuracy (up) against the ratio of speed (to the right, logarithmic). Presets
/// have their names beside their points.
///
/// # Errors
/// The drawing fails.
pub fn svg(report: &Report) -> Result<String> {
    let points = points(report);
    let mut out = String::new();
    {
        let canvas = SVGBackend::with_string(&mut out, SIZE).into_drawing_area();
        canvas.fill(&WHITE)?;
        heading(&canvas, report)?;
        let labels = chart(&canvas, &points)?;
        for (text, at) in placed(labels) {
            canvas.draw_text(&text, &label_style(), at)?;
        }
        canvas.present()?;
    }
    Ok(out)
}

fn points(report: &Report) -> Vec<Point> {
    let rows = report.overall();
    let decoding = |name: &str| {
        let spec = DecodingSpec::parse(name);
        spec.and_then(|spec| spec.resolve()).ok()
    };
    let tuned = TUNED_PRESETS.map(|name| (name, decoding(name)));
    let preset = |name: &str| {
        let own = decoding(name);
        let tuned = tuned.iter().find(|(_, of)| of.is_some() && *of == own);
        match tuned {
            Some((preset, _)) => Some((*preset).to_owned()),
            None => PRESET_NAMES.contains(&name).then(|| name.to_owned()),
        }
    };
    let mut points: Vec<Point> = rows
        .iter()
        .map(|row| Point {
            preset: preset(&row.name),
            schedule: row.label.split('+').next().unwrap_or_default().to_owned(),
            strict: row.strict.clamp(0.0, 100.0),
            ratio: row.ratio.max(SLOWEST),
            front: row.pareto,
        })
        .collect();
    points.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    points
}

fn heading(canvas: &Canvas<'_>, report: &Report) -> Result<()> {
    let tasks: Vec<&str> = report.tasks.iter().map(|task| task.task.as_str()).collect();
    let title = format!("Accuracy against speed: {}", tasks.join(", "));
    let setup = &report.setup;
    let conditions = format!(
        "{} held-out problems per task, {}, {}; the line is the Pareto front",
        setup.problems,
        setup.conditions(),
        setup.machine
    );
    canvas.draw_text(
        &title,
        &("sans-serif", 18).into_text_style(canvas),
        (60, 16),
    )?;
    let style = ("sans-serif", FONT).into_text_style(canvas);
    canvas.draw_text(&conditions, &style, (60, 40))?;
    Ok(())
}

/// Draws axes, points, front and legend; returns the presets and the pixels of their points.
fn chart(canvas: &Canvas<'_>, points: &[Point]) -> Result<Vec<(String, (i32, i32))>> {
    let ratios = points.iter().map(|point| point.ratio);
    let (slow, fast) = ratios.fold((1.0, 1.0), |(low, high): (f64, f64), ratio| {
        (low.min(ratio), high.max(ratio))
    });
    let lowest = points
        .iter()
        .map(|point| point.strict)
        .fold(100.0, f64::min);
    let mut chart = ChartBuilder::on(canvas)
        .margin(16)
        .margin_top(64)
        .x_label_area_size(44)
        .y_label_area_size(48)
        .build_cartesian_2d(
            (0.9 * slow..1.2 * fast).log_scale(),
            (lowest / 5.0 - 1.0).floor().max(0.0) * 5.0..100.0,
        )?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|ratio| format!("{}x", (10.0 * ratio).round() / 10.0))
        .y_label_formatter(&|strict| format!("{strict:.0}"))
        .x_desc("output tokens per second over the first decoder's (logarithmic)")
        .y_desc("answers right in the whole text, %")
        .draw()?;
    let front: Vec<(f64, f64)> = points.iter().filter(|p| p.front).map(Point::at).collect();
    chart.draw_series([PathElement::new(front, BLACK.mix(0.5))])?;
    let mut schedules: Vec<&str> = points.iter().map(|point| &*point.schedule).collect();
    schedules.sort_unstable();
    schedules.dedup();
    for (schedule, colour) in schedules.iter().zip(COLOURS.into_iter().cycle()) {
        let of_schedule = points.iter().filter(|point| point.schedule == *schedule);
        let dot = |point: &Point| {
            let opacity = if point.front { 1.0 } else { 0.4 };
            Circle::new(point.at(), 4, colour.mix(opacity).filled())
        };
        chart
            .draw_series(of_schedule.map(dot))?
            .label(*schedule)
            .legend(move |(x, y)| Circle::new((x + 10, y), 4, colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    let label = |point: &Point| Some((point.preset.clone()?, chart.backend_coord(&point.at())));
    Ok(points.iter().filter_map(label).collect())
}

fn label_style() -> TextStyle<'static> {
    let style = TextStyle::from(("sans-serif", FONT).into_font());
    style.pos(Pos::new(HPos::Left, VPos::Center))
}

/// Moves labels up or down from their points until none covers another: their texts with the pixels
/// of their left ends.
fn placed(labels: Vec<(String, (i32, i32))>) -> Vec<(String, (i32, i32))> {
    let width = |text: &str| CHARACTER * i32::try_from(text.chars().count()).unwrap_or(i32::MAX);
    let mut placed: Vec<(String, (i32, i32))> = Vec::with_capacity(labels.len());
    for (text, (x, y)) in labels {
        let right = i32::try_from(SIZE.0).unwrap_or(i32::MAX);
        let left = (x + 8).min(right - width(&text));
        let covers = |y: i32| {
            placed.iter().any(|(other, (start, line))| {
                (line - y).abs() < FONT
                    && left < start + width(other)
                    && *start < left + width(&text)
            })
        };
        let shifts = (0..)
            .flat_map(|step| [-step, step])
            .map(|step| step * FONT / 2);
        let y = shifts
            .map(|shift| y + shift)
            .find(|y| !covers(*y))
            .unwrap_or(y);
        placed.push((text, (left, y)));
    }
    placed
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn bench(file: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/lab/records/epyc-2-threads")
            .join(file)
    }

    #[test]
    fn the_committed_plot_is_drawn_from_the_committed_result() {
        let report = Report::load(&bench("decoders.json")).unwrap();
        let committed = std::fs::read_to_string(bench("decoders.svg")).unwrap();
        assert!(
            svg(&report).unwrap() == committed,
            "run `asynclane-lab bench --from decoders.json --plot decoders.svg`"
        );
    }

    #[test]
    fn odd_figures_and_names_are_drawn() {
        let mut report = Report::load(&bench("decoders.json")).unwrap();
        for task in &mut report.tasks {
            task.decoders.truncate(2);
            (task.decoders[0].ratio, task.decoders[1].strict) = (0.0, 0.0);
            task.decoders[1].ratio = 2.0;
            "a<b&c".clone_into(&mut task.task);
        }
        let drawing = svg(&report).unwrap();
        assert!(drawing.contains("a&lt;b&amp;c"), "{drawing}");
        assert!(!drawing.contains("NaN") && !drawing.contains("inf"));
    }

    #[test]
    fn labels_cover_no_other_label() {
        let label = |name: &str, y| (name.to_owned(), (100, y));
        let placed = placed(vec![label("one", 50), label("two", 52), label("three", 50)]);
        let mut lines: Vec<i32> = placed.iter().map(|(_, (_, y))| *y).collect();
        lines.sort_unstable();
        assert!(
            lines.windows(2).all(|pair| pair[1] - pair[0] >= FONT),
            "{lines:?}"
        );
    }
}
