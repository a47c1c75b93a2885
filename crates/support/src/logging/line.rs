//! A log line: one JSON object; or, for people, time, level, message, and the other fields as `name=value`.

use std::fmt::{self, Write};
use std::time::SystemTime;

use serde_json::Number;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::Format;
use tolerarch_text::escape::{Context, escaped, escaped_text};

/// Formats events. There are no spans, and their fields would not be written.
pub(super) struct Line {
    pub(super) format: Format,
    /// Whether a line of text begins with the time.
    pub(super) timed: bool,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let time = humantime::format_rfc3339_micros(SystemTime::now());
        let level = event.metadata().level().as_str();
        match self.format {
            Format::Json => {
                write!(writer, "{{\"timestamp\":\"{time}\",\"level\":\"")?;
                writer.write_str(level)?;
                writer.write_char('"')?;
            }
            Format::Text if self.timed => write!(writer, "{time} {level:>5}")?,
            Format::Text => write!(writer, "{level:>5}")?,
        }
        let mut fields = Fields { writer, format: self.format, written: Ok(()) };
        event.record(&mut fields);
        fields.written?;
        fields.writer.write_str(if self.format == Format::Json { "}\n" } else { "\n" })
    }
}

struct Fields<W> {
    writer: W,
    format: Format,
    written: fmt::Result,
}

impl<W: Write> Fields<W> {
    fn field(&mut self, field: &Field, is_quoted: bool, value: impl FnOnce(&mut W) -> fmt::Result) {
        let name = field.name();
        let begin = match (self.format, is_quoted) {
            (Format::Json, true) => [",\"", name, "\":\""],
            (Format::Json, false) => [",\"", name, "\":"],
            (Format::Text, true) => [" ", name, "=\""],
            (Format::Text, false) if name == "message" => [" ", "", ""],
            (Format::Text, false) => [" ", name, "="],
        };
        let writer = &mut self.writer;
        self.written = self.written.and_then(|()| {
            begin.into_iter().try_for_each(|part| writer.write_str(part))?;
            value(writer)?;
            if is_quoted { writer.write_char('"') } else { Ok(()) }
        });
    }
}

impl<W: Write> Visit for Fields<W> {
    fn record_str(&mut self, field: &Field, value: &str) {
        let context = if self.format == Format::Json { Context::Json } else { Context::Quoted };
        self.field(field, true, |writer| escaped_text(writer, context, value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // `Display` of f64 takes several times as long as that of `Number`.
        match Number::from_f64(value) {
            Some(number) => self.field(field, false, |writer| write!(writer, "{number}")),
            None => self.field(field, false, |writer| writer.write_str("null")),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.field(field, false, |writer| write!(writer, "{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field, false, |writer| write!(writer, "{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.field(field, false, |writer| write!(writer, "{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match self.format {
            Format::Json => self.field(field, true, |w| escaped(w, Context::Json, format_args!("{value:?}"))),
            Format::Text => {
                self.field(field, false, |w| escaped(w, Context::Bare, format_args!("{value:?}")));
            }
        }
    }
}
