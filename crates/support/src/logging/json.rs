//! A log line as one JSON object: time, level, and the fields of the event beside each other.

use std::fmt::{self, Write};
use std::time::SystemTime;

use serde_json::Number;
use tracing::Event;
use tracing::field::{Field, Visit};

use tolerarch_text::escape::{Context, escaped, escaped_text};

pub(super) fn line(mut writer: impl Write, event: &Event<'_>) -> fmt::Result {
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
        self.begun(field, "\":", value);
    }

    fn text(&mut self, field: &Field, value: impl FnOnce(&mut W) -> fmt::Result) {
        self.begun(field, "\":\"", |writer| {
            value(writer)?;
            writer.write_str("\"")
        });
    }

    fn begun(&mut self, field: &Field, begin: &str, value: impl FnOnce(&mut W) -> fmt::Result) {
        let writer = &mut self.writer;
        self.written = self.written.and_then(|()| {
            for part in [",\"", field.name(), begin] {
                writer.write_str(part)?;
            }
            value(writer)
        });
    }
}

impl<W: Write> Visit for Members<W> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, |writer| escaped_text(writer, Context::Json, value));
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
        self.text(field, |writer| escaped(writer, Context::Json, format_args!("{value:?}")));
    }
}
