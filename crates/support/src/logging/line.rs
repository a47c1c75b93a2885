//! The format of log lines: one JSON object, or for people time, level, message, and the other fields as `name=value`.

use std::fmt::{self, Write};
use std::time::SystemTime;

use clap::ValueEnum;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use tolerarch_text::escape::{Context, escaped};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON object a line.
    #[default]
    Json,
    /// For people.
    Text,
}

/// Initial capacity of a line in bytes: enough for most reviews.
const LINE: usize = 512;

/// Formats events. tolerarch has no spans, and their fields would not be written.
pub(super) struct Line {
    pub(super) format: Format,
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
        // Fields are many short texts, which are appended faster to a string than to the writer.
        let mut line = String::with_capacity(LINE);
        match self.format {
            Format::Json => write!(line, "{{\"timestamp\":\"{time}\",\"level\":\"{level}\"")?,
            Format::Text if self.timed => write!(line, "{time} {level:>5}")?,
            Format::Text => write!(line, "{level:>5}")?,
        }
        let mut fields = Fields {
            line,
            format: self.format,
            written: Ok(()),
        };
        event.record(&mut fields);
        fields.written?;
        let end = match self.format {
            Format::Json => "}\n",
            Format::Text => "\n",
        };
        fields.line.push_str(end);
        writer.write_str(&fields.line)
    }
}

struct Fields {
    line: String,
    format: Format,
    written: fmt::Result,
}

impl Fields {
    /// Writes a field, with its value between two quotes.
    fn field(
        &mut self,
        field: &Field,
        quote: &str,
        value: impl FnOnce(&mut String) -> fmt::Result,
    ) {
        let name = field.name();
        let begin = match self.format {
            Format::Json => [",\"", name, "\":", quote],
            Format::Text if name == "message" => [" ", "", "", quote],
            Format::Text => [" ", name, "=", quote],
        };
        if self.written.is_err() {
            return;
        }
        for part in begin {
            self.line.push_str(part);
        }
        self.written = value(&mut self.line);
        self.line.push_str(quote);
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        let context = match self.format {
            Format::Json => Context::Json,
            Format::Text => Context::Quoted,
        };
        // Written directly rather than formatted, as most values of a review's line are texts.
        self.field(field, "\"", |writer| {
            escaped(writer, context, |escaped| escaped.write_str(value))
        });
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // `Display` of f64 takes several times as long, and JSON has no NaN.
        self.field(field, "", |writer| write!(writer, "{}", Value::from(value)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.field(field, "", |writer| write!(writer, "{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field, "", |writer| write!(writer, "{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.field(field, "", |writer| write!(writer, "{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let (quote, context) = match self.format {
            Format::Json => ("\"", Context::Json),
            Format::Text => ("", Context::Bare),
        };
        self.field(field, quote, |writer| {
            escaped(writer, context, |escaped| write!(escaped, "{value:?}"))
        });
    }
}
