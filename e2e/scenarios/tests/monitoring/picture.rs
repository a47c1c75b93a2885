//! A picture of the dashboard for readers without Grafana. Panels, lines and legends are where Grafana puts them.

use std::fmt::Write;

use serde_json::Value;

/// The width of one of 24 columns, in pixels.
const COLUMN: f64 = 50.0;
/// A unit of height, in pixels.
const UNIT: f64 = 26.0;
const COLOURS: [&str; 10] = [
    "#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#5195ce", "#ba43a9", "#a98ad8",
    "#508642", "#cca300",
];
/// The maximum number of rows of a legend.
const LEGEND_ROWS: usize = 3;

/// A panel of the dashboard.
pub(super) struct Panel {
    title: String,
    kind: String,
    unit: String,
    frame: Frame,
    lines: Vec<Line>,
}

/// A position from the left and from the top, and a size, in pixels.
#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

/// The result of a query for one set of labels.
pub(super) struct Line {
    name: String,
    /// Seconds since 1970, and values.
    points: Vec<(f64, f64)>,
}

impl Panel {
    pub(super) fn of(panel: &Value, lines: Vec<Line>) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pixels =
            |key: &str, unit: f64| panel["gridPos"][key].as_f64().unwrap_or_default() * unit;
        Self {
            title: text(&panel["title"]),
            kind: text(&panel["type"]),
            unit: text(&panel["fieldConfig"]["defaults"]["unit"]),
            frame: Frame {
                left: pixels("x", COLUMN),
                top: pixels("y", UNIT),
                width: pixels("w", COLUMN),
                height: pixels("h", UNIT),
            },
            lines,
        }
    }
}

impl Line {
    /// Makes a line of a series of Prometheus, named by Grafana's `legend`.
    pub(super) fn of(series: &Value, legend: &str) -> Self {
        let mut name = legend.to_owned();
        for (label, value) in series["metric"].as_object().into_iter().flatten() {
            name = name.replace(
                &format!("{{{{{label}}}}}"),
                value.as_str().unwrap_or_default(),
            );
        }
        let mut points = Vec::new();
        for point in series["values"].as_array().into_iter().flatten() {
            let time = point[0].as_f64();
            let value = point[1].as_str().and_then(|value| value.parse().ok());
            if let (Some(time), Some(value)) = (time, value)
                && f64::is_finite(value)
            {
                points.push((time, value));
            }
        }
        Self { name, points }
    }
}

/// Draws panels between these seconds since 1970.
pub(super) fn svg(panels: &[Panel], from: u64, to: u64) -> String {
    let height = panels
        .iter()
        .map(|panel| panel.frame.top + panel.frame.height)
        .fold(0.0, f64::max);
    let width = 24.0 * COLUMN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\" fill=\"#ccccdc\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#111217\"/>\n"
    );
    for panel in panels {
        draw(&mut out, panel, (from as f64, to as f64));
    }
    out + "</svg>\n"
}

fn draw(out: &mut String, panel: &Panel, span: (f64, f64)) {
    let Panel {
        title,
        kind,
        unit,
        frame,
        lines,
    } = panel;
    let Frame {
        left,
        top,
        width,
        height,
    } = *frame;
    text(
        out,
        (left + 10.0, top + 18.0),
        "font-weight=\"bold\" font-size=\"12\"",
        title,
    );
    if kind == "row" {
        return;
    }
    let style = "fill=\"none\" stroke=\"#2c2e36\" rx=\"3\"";
    let inner_width = width - 6.0;
    let inner_height = height - 6.0;
    put(
        out,
        format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"{inner_width}\" height=\"{inner_height}\" {style}/>",
            left + 3.0,
            top + 3.0
        ),
    );
    if kind == "stat" {
        stat(out, lines.first(), unit, *frame);
        return;
    }
    let rows = legend(out, lines, [left + 12.0, top + height - 12.0, width - 24.0]);
    let area = Frame {
        left: left + 62.0,
        top: top + 32.0,
        width: width - 76.0,
        height: height - 50.0 - 15.0 * rows as f64,
    };
    chart(out, lines, unit, area, span);
}

/// Draws the last value of a line in large type, and the name of the line.
fn stat(out: &mut String, line: Option<&Line>, unit: &str, frame: Frame) {
    let middle = frame.left + frame.width / 2.0;
    let last_value = line.and_then(|line| line.points.last());
    let value = last_value.map(|(_, value)| formatted(*value, unit));
    text(
        out,
        (middle, frame.top + frame.height * 0.62),
        "font-size=\"30\" fill=\"#73bf69\" text-anchor=\"middle\"",
        &value.unwrap_or_default(),
    );
    text(
        out,
        (middle, frame.top + frame.height - 14.0),
        "text-anchor=\"middle\"",
        line.map(|line| line.name.as_str()).unwrap_or_default(),
    );
}

/// Draws lines over time, and the scale of their values.
fn chart(out: &mut String, lines: &[Line], unit: &str, area: Frame, (from, to): (f64, f64)) {
    let Frame {
        left: x,
        top: y,
        width,
        height,
    } = area;
    let values = lines
        .iter()
        .flat_map(|line| line.points.iter().map(|(_, value)| *value));
    let highest = values.fold(0.0, f64::max);
    let highest = if highest > 0.0 { highest * 1.1 } else { 1.0 };
    for part in [0.0, 0.5, 1.0] {
        let level = y + height * (1.0 - part);
        put(
            out,
            format_args!("<path d=\"M{x:.0} {level:.0}h{width:.0}\" stroke=\"#24262d\"/>"),
        );
        text(
            out,
            (x - 6.0, level + 4.0),
            "text-anchor=\"end\"",
            &formatted(highest * part, unit),
        );
    }
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let points = line.points.iter().map(|(time, value)| {
            let across = x + width * (time - from) / (to - from);
            format!("{across:.0},{:.1}", y + height * (1.0 - value / highest))
        });
        let points = points.collect::<Vec<_>>().join(" ");
        put(
            out,
            format_args!("<polyline fill=\"none\" stroke=\"{colour}\" points=\"{points}\"/>"),
        );
    }
}

/// Draws a legend from the bottom up. Returns the number of its rows.
fn legend(out: &mut String, lines: &[Line], [left, bottom, width]: [f64; 3]) -> usize {
    let mut rows: Vec<Vec<(f64, usize)>> = vec![Vec::new()];
    let mut x = 0.0;
    for (index, line) in lines.iter().enumerate() {
        if line.name.is_empty() {
            continue;
        }
        let entry_width = 26.0 + 6.0 * line.name.chars().count() as f64;
        if x > 0.0 && x + entry_width > width {
            rows.push(Vec::new());
            x = 0.0;
        }
        rows.last_mut().expect("one at least").push((x, index));
        x += entry_width;
    }
    rows.truncate(LEGEND_ROWS);
    for (row, entries) in rows.iter().rev().enumerate() {
        let y = bottom - 15.0 * row as f64;
        for (x, index) in entries {
            let colour = COLOURS[index % COLOURS.len()];
            let at = left + x;
            put(
                out,
                format_args!(
                    "<rect x=\"{at:.0}\" y=\"{:.0}\" width=\"10\" height=\"3\" fill=\"{colour}\"/>",
                    y - 5.0
                ),
            );
            text(out, (at + 14.0, y), "", &lines[*index].name);
        }
    }
    rows.len()
}

fn text(out: &mut String, (x, y): (f64, f64), style: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    put(
        out,
        format_args!("<text x=\"{x:.0}\" y=\"{y:.0}\" {style}>{text}</text>"),
    );
}

fn put(out: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(out, "{what}").expect("writing to a String does not fail");
}

/// Formats a value as Grafana does.
fn formatted(value: f64, unit: &str) -> String {
    match unit {
        "percentunit" => format!("{:.1} %", value * 100.0),
        "s" if value >= 2.0 * 86_400.0 => format!("{:.1} days", value / 86_400.0),
        "s" if value >= 1.0 => format!("{value:.1} s"),
        "s" if value >= 0.001 => format!("{:.1} ms", value * 1e3),
        "s" => format!("{:.0} µs", value * 1e6),
        "bytes" if value >= 1024.0 * 1024.0 * 1024.0 => {
            format!("{:.1} GiB", value / 1024.0 / 1024.0 / 1024.0)
        }
        "bytes" => format!("{:.1} MiB", value / 1024.0 / 1024.0),
        "reqps" => format!("{value:.1} /s"),
        "cores" => format!("{value:.2}"),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}
