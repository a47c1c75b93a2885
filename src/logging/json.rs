//! A log line as one JSON object: time, level, and the fields of the event beside each other.

use std::fmt::{self, Write};
use std::time::SystemTime;

use serde_json::Number;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use crate::json::{is_escaped, is_plain};

/// Formats events; there are no spans.
pub(super) struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        line(writer, event)
    }
}

fn line(mut writer: impl Write, event: &Event<'_>) -> fmt::Result {
    let time = humantime::format_rfc3339_micros(SystemTime::now());
    write!(writer, "{{\"timestamp\":\"{time}\",\"level\":\"")?;
    writer.write_str(event.metadata().level().as_str())?;
    writer.write_char('"')?;
    let mut members = Members { writer, written: Ok(()) };
    event.record(&mut members);
    members.written?;
    members.writer.write_str("}\n")
}

/// Writes fields as members of an object.
struct Members<W> {
    writer: W,
    written: fmt::Result,
}

impl<W: Write> Members<W> {
    fn member(&mut self, field: &Field, value: impl FnOnce(&mut W) -> fmt::Result) {
        let writer = &mut self.writer;
        self.written = self.written.and_then(|()| {
            for part in [",\"", field.name(), "\":"] {
                writer.write_str(part)?;
            }
            value(writer)
        });
    }

    fn text(&mut self, field: &Field, value: impl FnOnce(Escaped<'_, W>) -> fmt::Result) {
        self.member(field, |writer| {
            writer.write_str("\"")?;
            value(Escaped(writer))?;
            writer.write_str("\"")
        });
    }
}

impl<W: Write> Visit for Members<W> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, |mut writer| writer.write_str(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // `Display` of f64 takes several times as long as that of `Number`.
        self.member(field, |writer| match Number::from_f64(value) {
            Some(number) => write!(writer, "{number}"),
            None => writer.write_str("null"),
        });
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.member(field, |writer| write!(writer, "{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.member(field, |writer| write!(writer, "{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.member(field, |writer| write!(writer, "{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, |mut writer| write!(writer, "{value:?}"));
    }
}

/// Escapes what is written for a JSON string (RFC 8259 section 7).
struct Escaped<'a, W>(&'a mut W);

impl<W: Write> Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if is_plain(text) {
            return self.0.write_str(text);
        }
        let mut rest = text;
        while let Some(place) = rest.bytes().position(is_escaped) {
            let (plain, special) = rest.split_at(place);
            self.0.write_str(plain)?;
            match special.as_bytes()[0] {
                b @ (b'"' | b'\\') => write!(self.0, "\\{}", char::from(b))?,
                b => write!(self.0, "\\u{b:04x}")?,
            }
            rest = &special[1..];
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    /// Formats each event as a line.
    struct Lines(Arc<Mutex<String>>);

    impl<S: Subscriber> Layer<S> for Lines {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            line(&mut *self.0.lock().unwrap(), event).unwrap();
        }
    }

    fn lines(log: impl FnOnce()) -> String {
        let lines = Arc::new(Mutex::new(String::new()));
        let subscriber = tracing_subscriber::registry().with(Lines(Arc::clone(&lines)));
        tracing::subscriber::with_default(subscriber, log);
        let lines = lines.lock().unwrap();
        lines.clone()
    }

    #[test]
    fn a_line_is_one_object() {
        let absent: Option<&str> = None;
        let line = lines(
            || tracing::info!(text = "a", n = 1u64, i = -1i64, f = 0.5, b = true, absent, error = %"x\"y", "said"),
        );
        let mut line: Value = serde_json::from_str(&line).unwrap();
        let time = line.as_object_mut().unwrap().remove("timestamp").unwrap();
        assert!(humantime::parse_rfc3339(time.as_str().unwrap()).is_ok(), "{time}");
        let expected = json!({"level": "INFO", "text": "a", "n": 1, "i": -1, "f": 0.5, "b": true, "error": "x\"y", "message": "said"});
        assert_eq!(line, expected);
        let odd: Value = serde_json::from_str(&lines(|| tracing::warn!(f = f64::NAN, "odd"))).unwrap();
        assert_eq!(odd["f"], Value::Null);
    }

    proptest! {
        #[test]
        fn any_text_stays_one_line_and_reads_back(text in any::<String>()) {
            let written = lines(|| tracing::info!(text, "said"));
            prop_assert_eq!(written.matches('\n').count(), 1);
            let read: Value = serde_json::from_str(&written).unwrap();
            prop_assert_eq!(read["text"].as_str(), Some(text.as_str()));
        }
    }
}
