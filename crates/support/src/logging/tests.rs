use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use proptest::prelude::*;
use serde_json::{Value, json};
use tracing_subscriber::layer::SubscriberExt;

use super::*;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The lines that are written for these events.
fn logged(format: Format, log: impl FnOnce()) -> String {
    let written = Written::default();
    let writer = written.clone();
    let lines = fmt::layer()
        .event_format(Line {
            format,
            timed: true,
        })
        .with_writer(move || writer.clone());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), log);
    let bytes = written.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn json_line_is_one_object() {
    let absent: Option<&str> = None;
    let json = |log: fn()| serde_json::from_str::<Value>(&logged(Format::Json, log)).unwrap();
    let mut line: Value = serde_json::from_str(&logged(Format::Json, || {
        tracing::info!(text = "a", n = 1u64, i = -1i64, f = 0.5, b = true, absent, error = %"x\"y", "said");
    }))
    .unwrap();
    let time = line.as_object_mut().unwrap().remove("timestamp").unwrap();
    assert!(
        humantime::parse_rfc3339(time.as_str().unwrap()).is_ok(),
        "{time}"
    );
    let expected = json!({"level": "INFO", "text": "a", "n": 1, "i": -1, "f": 0.5, "b": true, "error": "x\"y", "message": "said"});
    assert_eq!(line, expected);
    assert_eq!(
        json(|| tracing::warn!(f = f64::NAN, "odd"))["f"],
        Value::Null
    );
}

#[test]
fn dates_are_rendered_within_the_year_9999() {
    for (seconds, date) in [
        (1_826_972_941, "2027-11-23T12:29:01Z"),
        (-1, "1970-01-01T00:00:00Z"),
        (i64::MAX, "9999-12-31T23:59:59Z"),
    ] {
        assert_eq!(super::date(seconds), date);
    }
}

#[test]
fn panics_are_counted() {
    let metrics = Metrics::new([]).unwrap();
    count_panics(&metrics).unwrap();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(log_panic));
    assert!(std::panic::catch_unwind(|| panic!("expected in this test")).is_err());
    std::panic::set_hook(hook);
    // Other tests may panic at the same time.
    let rendered = metrics.render().unwrap();
    assert!(!rendered.contains("\ntolerarch_panics_total 0\n"));
}

#[test]
fn text_line_has_time_level_message_and_fields() {
    let line = logged(
        Format::Text,
        || tracing::warn!(host = "a.b", error = %"no route", n = 1, "said"),
    );
    let (time, rest) = line.split_once(' ').unwrap();
    assert!(humantime::parse_rfc3339(time).is_ok(), "{line}");
    assert_eq!(rest, " WARN said host=\"a.b\" error=no route n=1\n");
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Hostile(&'static str);

/// A value whose `Debug` writes its text without escapes.
struct Raw(&'static str);

impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// Logs a text as every kind of field, as the message and in a span.
fn log_everywhere(text: &'static str) {
    let _span = tracing::info_span!("span", text, shown = %text).entered();
    let error: &(dyn std::error::Error + 'static) = &Hostile(text);
    tracing::info!(
        text,
        some = Some(text),
        shown = %text,
        debug = ?text,
        raw = ?Raw(text),
        error,
        bytes = text.as_bytes(),
        number = 1u128,
        "{text}"
    );
}

#[test]
fn no_value_forges_a_line_or_controls_a_terminal() {
    const HOSTILE: &str = "a\n2026 INFO forged\r\x1b[2J\x07\x7f\u{85}\u{9b}31m\u{2028}\u{2029}\u{202e}\u{2066}\u{200f}\u{61c}b";
    for format in [Format::Json, Format::Text] {
        let line = logged(format, || log_everywhere(HOSTILE));
        let content = line.strip_suffix('\n').unwrap();
        let is_bad = |c: char| {
            c.is_control() || "\u{2028}\u{2029}\u{202e}\u{2066}\u{200f}\u{61c}".contains(c)
        };
        assert!(!content.contains(is_bad), "{line:?}");
        assert!(content.matches("INFO forged").count() >= 6, "{line}");
    }
    let line: Value =
        serde_json::from_str(&logged(Format::Json, || log_everywhere(HOSTILE))).unwrap();
    for field in ["text", "some", "shown", "raw", "error", "message"] {
        assert_eq!(line[field], HOSTILE, "{field}");
    }
}

#[test]
fn no_value_fills_the_log() {
    let long: &'static str = "\x1b".repeat(1 << 20).leak();
    for format in [Format::Json, Format::Text] {
        let line = logged(format, || log_everywhere(long));
        assert!(line.len() < 8 * 6 * (4 << 10) + 1000, "{}", line.len());
        assert!(line.contains('…') && line.ends_with('\n'));
        if format == Format::Json {
            serde_json::from_str::<Value>(&line).unwrap();
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_written_on_one_line_and_parses(text in any::<String>()) {
        let written = logged(Format::Json, || tracing::info!(text, "said"));
        prop_assert_eq!(written.lines().count(), 1);
        let read: Value = serde_json::from_str(&written).unwrap();
        prop_assert_eq!(read["text"].as_str(), Some(text.as_str()));
    }
}
