//! Accuracy against speed as an SVG: every decoder a numbered point, the Pareto front a line, the
//! names in a key beside it.

mod axis;
mod labels;

use std::fmt::Write;

use engine::decoding::PRESET_NAMES;

use super::report::Report;
use axis::Axis;
use labels::{Anchor, Box, Placed};

/// Left and right end of the plotting area in pixels.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 804.0;
/// Its upper end, and the least height.
const TOP: f64 = 92.0;
const HEIGHT: f64 = 520.0;
/// Below it: tick labels and the name of the axis.
const BELOW: f64 = 56.0;
/// Where the key begins, and the height of its lines.
const KEY: f64 = 836.0;
const LINE: f64 = 16.0;
/// Mean width of a character over the font's size, plain and bold.
const CHARACTER: f64 = 0.58;
const BOLD: f64 = 0.66;

/// Grey that can be read on white and on black.
const INK: &str = "#6e7681";
/// A colour per schedule, in order of appearance; they go round.
const COLOURS: [&str; 6] = [
    "#3b82f6", "#d97706", "#16a34a", "#a855f7", "#dc4a68", "#0d9488",
];

/// A decoder in the plot.
#[derive(Clone, Debug)]
struct Point {
    number: usize,
    name: String,
    schedule: String,
    end: f64,
    strict: f64,
    ratio: f64,
    front: bool,
    x: f64,
    y: f64,
}

/// Draws mean strict accuracy (up) against the ratio of speed (to the right, logarithmic).
pub fn svg(report: &Report) -> String {
    let mut points = points(report);
    let height = HEIGHT.max(LINE * (points.len() + 4) as f64);
    let bottom = TOP + height;
    let along = Axis::logarithmic(points.iter().map(|point| point.ratio));
    let up = Axis::linear(points.iter().map(|point| point.strict));
    for point in &mut points {
        point.x = LEFT + along.place(point.ratio) * (RIGHT - LEFT);
        point.y = bottom - up.place(point.strict) * height;
    }
    let schedules = schedules(&points);
    let longest = points.iter().map(|point| point.name.chars().count()).max();
    let width = (KEY + 44.0 + longest.unwrap_or(0) as f64 * 12.0 * BOLD).ceil();
    let mut out = String::new();
    opening(&mut out, report, (width, bottom + BELOW));
    grid(&mut out, &along, &up, bottom);
    legend(&mut out, &schedules);
    line(&mut out, &points);
    for point in &points {
        mark(
            &mut out,
            point,
            colour(&schedules, point),
            (point.x, point.y),
        );
    }
    for placed in labels::place(&wanted(&points), &obstacles(&points), &area(bottom)) {
        label(&mut out, &placed);
    }
    key(&mut out, &points, &schedules, report);
    out.push_str("</svg>\n");
    out
}

/// The decoders, the fastest first.
fn points(report: &Report) -> Vec<Point> {
    let mut rows = report.overall();
    rows.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    rows.into_iter()
        .enumerate()
        .map(|(index, row)| Point {
            number: index + 1,
            schedule: row.label.split('+').next().unwrap_or_default().to_owned(),
            name: row.name,
            end: row.end,
            strict: row.strict,
            ratio: row.ratio,
            front: row.pareto,
            x: 0.0,
            y: 0.0,
        })
        .collect()
}

fn schedules(points: &[Point]) -> Vec<String> {
    let mut names: Vec<String> = points.iter().map(|point| point.schedule.clone()).collect();
    names.sort();
    names.dedup();
    names
}

fn colour(schedules: &[String], point: &Point) -> &'static str {
    let index = schedules.iter().position(|name| *name == point.schedule);
    COLOURS[index.unwrap_or(0) % COLOURS.len()]
}

fn area(bottom: f64) -> Box {
    Box {
        left: LEFT,
        top: TOP,
        right: RIGHT,
        bottom,
    }
}

/// Points of the front and presets by name, the others by number. Names first: they need room.
fn wanted(points: &[Point]) -> Vec<labels::Wanted> {
    let is_named = |point: &Point| point.front || PRESET_NAMES.contains(&point.name.as_str());
    let (named, numbered): (Vec<&Point>, Vec<&Point>) =
        points.iter().partition(|point| is_named(point));
    let wanted = |point: &Point, text: String, size: f64| labels::Wanted {
        width: text.chars().count() as f64 * size * if point.front { BOLD } else { CHARACTER },
        text,
        size,
        bold: point.front,
        x: point.x,
        y: point.y,
    };
    let named = named
        .into_iter()
        .map(|point| wanted(point, point.name.clone(), 12.0));
    let numbered = numbered
        .into_iter()
        .map(|point| wanted(point, point.number.to_string(), 10.0));
    named.chain(numbered).collect()
}

/// The points, and the front's line in small pieces.
fn obstacles(points: &[Point]) -> Vec<Box> {
    let mut boxes: Vec<Box> = points
        .iter()
        .map(|point| Box::around(point.x, point.y, 5.0))
        .collect();
    for pair in front(points).windows(2) {
        let (across, down) = (pair[1].x - pair[0].x, pair[1].y - pair[0].y);
        let pieces = (across.hypot(down) / 6.0).ceil();
        boxes.extend((1..pieces as u32).map(|piece| {
            let share = f64::from(piece) / pieces;
            Box::around(pair[0].x + share * across, pair[0].y + share * down, 2.0)
        }));
    }
    boxes
}

/// The points that none beats, from the slowest to the fastest.
fn front(points: &[Point]) -> Vec<&Point> {
    let mut front: Vec<&Point> = points.iter().filter(|point| point.front).collect();
    front.sort_by(|a, b| a.x.total_cmp(&b.x));
    front
}

fn opening(out: &mut String, report: &Report, (width, height): (f64, f64)) {
    let tasks: Vec<&str> = report.tasks.iter().map(|task| task.task.as_str()).collect();
    let (tasks, setup) = (tasks.join(", "), &report.setup);
    let title = format!("Accuracy against speed: {tasks}");
    let note = format!(
        "{} held-out problems per task, {}, {}",
        setup.problems,
        setup.conditions(),
        setup.machine
    );
    let description = format!(
        "Decoders by the share of answers that are right in the whole text and by output tokens \
         per second over those of the first decoder; the line joins those that none beats in \
         both. {note}. Made by: {}",
        setup.command
    );
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"{INK}\">\n\
         <title>{}</title>\n<desc>{}</desc>",
        escaped(&title),
        escaped(&description)
    );
    text(
        out,
        (LEFT, 28.0),
        "font-size=\"17\" font-weight=\"600\"",
        &title,
    );
    text(out, (LEFT, 48.0), "", &note);
}

fn grid(out: &mut String, along: &Axis, up: &Axis, bottom: f64) {
    let mut rule = |from: (f64, f64), to: (f64, f64)| {
        let _ = writeln!(
            out,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{INK}\" \
             stroke-opacity=\"0.25\"/>",
            from.0, from.1, to.0, to.1
        );
    };
    let xs = along
        .ticks
        .iter()
        .map(|tick| LEFT + along.place(*tick) * (RIGHT - LEFT));
    let ys = up
        .ticks
        .iter()
        .map(|tick| bottom - up.place(*tick) * (bottom - TOP));
    let (xs, ys): (Vec<f64>, Vec<f64>) = (xs.collect(), ys.collect());
    for x in &xs {
        rule((*x, TOP), (*x, bottom));
    }
    for y in &ys {
        rule((LEFT, *y), (RIGHT, *y));
    }
    for (x, tick) in xs.iter().zip(&along.ticks) {
        let at = (*x, bottom + 18.0);
        text(out, at, "text-anchor=\"middle\"", &format!("{tick}x"));
    }
    for (y, tick) in ys.iter().zip(&up.ticks) {
        text(
            out,
            (LEFT - 8.0, y + 4.0),
            "text-anchor=\"end\"",
            &format!("{tick}"),
        );
    }
    let middle = f64::midpoint(LEFT, RIGHT);
    let name = "output tokens per second, over the first decoder's (logarithmic)";
    text(out, (middle, bottom + 42.0), "text-anchor=\"middle\"", name);
    let turned = format!(
        "text-anchor=\"middle\" transform=\"rotate(-90 18 {:.1})\"",
        f64::midpoint(TOP, bottom)
    );
    let at = (18.0, f64::midpoint(TOP, bottom));
    text(out, at, &turned, "answers right in the whole text, %");
}

/// The front.
fn line(out: &mut String, points: &[Point]) {
    let path: Vec<String> = front(points)
        .iter()
        .map(|point| format!("{:.1},{:.1}", point.x, point.y))
        .collect();
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{INK}\" stroke-width=\"1.5\" \
         stroke-dasharray=\"5 4\"/>",
        path.join(" ")
    );
}

/// A dot, filled on the front, with its figures where a pointer rests.
fn mark(out: &mut String, point: &Point, colour: &str, (x, y): (f64, f64)) {
    let filled = if point.front { "1" } else { "0.35" };
    let figures = format!(
        "{}: strict {:.1} %, end {:.1} %, {:.2}x",
        point.name, point.strict, point.end, point.ratio
    );
    let _ = writeln!(
        out,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{colour}\" \
         fill-opacity=\"{filled}\" stroke=\"{colour}\"><title>{}</title></circle>",
        escaped(&figures)
    );
}

fn label(out: &mut String, placed: &Placed<'_>) {
    let wanted = placed.wanted;
    if placed.is_far {
        let _ = writeln!(
            out,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{INK}\" \
             stroke-opacity=\"0.6\" stroke-width=\"0.75\"/>",
            wanted.x,
            wanted.y,
            placed.x,
            placed.y - wanted.size * 0.35
        );
    }
    let anchor = match placed.anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    let weight = if wanted.bold {
        " font-weight=\"600\""
    } else {
        ""
    };
    let style = format!(
        "font-size=\"{}\" text-anchor=\"{anchor}\"{weight}",
        wanted.size
    );
    text(out, (placed.x, placed.y), &style, &wanted.text);
}

/// Colours of the schedules, above the plotting area.
fn legend(out: &mut String, schedules: &[String]) {
    let mut x = LEFT;
    for (index, name) in schedules.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"70\" r=\"4.5\" fill=\"{colour}\"/>",
            x + 5.0
        );
        text(out, (x + 14.0, 74.0), "", name);
        x += 30.0 + name.chars().count() as f64 * 12.0 * CHARACTER;
    }
}

/// Number and name of every decoder.
fn key(out: &mut String, points: &[Point], schedules: &[String], report: &Report) {
    let first = report.tasks[0].decoders.first();
    let first = first.map_or("", |entry| entry.name.as_str());
    let note = format!("1x is {first}; the Pareto front is bold and dashed");
    text(out, (KEY, 74.0), "", &note);
    for (index, point) in points.iter().enumerate() {
        let y = TOP + LINE * (index as f64 + 0.75);
        let weight = if point.front {
            "font-weight=\"600\""
        } else {
            ""
        };
        let number = format!("text-anchor=\"end\" {weight}");
        text(out, (KEY + 18.0, y), &number, &point.number.to_string());
        mark(out, point, colour(schedules, point), (KEY + 28.0, y - 4.0));
        text(out, (KEY + 40.0, y), weight, &point.name);
    }
}

fn text(out: &mut String, (x, y): (f64, f64), style: &str, content: &str) {
    let space = if style.is_empty() { "" } else { " " };
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\"{space}{style}>{}</text>",
        escaped(content)
    );
}

/// `text` as content or attribute of an XML element.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML has no control characters, not even escaped ones.
            other if other.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests;
