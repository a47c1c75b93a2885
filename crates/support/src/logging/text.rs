//! A log line for people: time, level, message, and the other fields as `name=value`.

use std::fmt::{self, Write};
use std::time::SystemTime;

use tracing::Event;
use tracing::field::{Field, Visit};

use tolerarch_text::escape::{Context, escaped};

pub(super) fn line(mut writer: impl Write, event: &Event<'_>, timed: bool) -> fmt::Result {
    if timed {
        write!(writer, "{} ", humantime::format_rfc3339_micros(SystemTime::now()))?;
    }
    write!(writer, "{:>5}", event.metadata().level().as_str())?;
    let mut fields = Fields { writer, written: Ok(()) };
    event.record(&mut fields);
    fields.written?;
    fields.writer.write_char('\n')
}

struct Fields<W> {
    writer: W,
    written: fmt::Result,
}

impl<W: Write> Fields<W> {
    fn field(&mut self, field: &Field, value: impl FnOnce(&mut W) -> fmt::Result) {
        let writer = &mut self.writer;
        self.written = self.written.and_then(|()| {
            writer.write_char(' ')?;
            if field.name() != "message" {
                write!(writer, "{}=", field.name())?;
            }
            value(writer)
        });
    }
}

impl<W: Write> Visit for Fields<W> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.field(field, |writer| {
            writer.write_char('"')?;
            escaped(writer, Context::Quoted, format_args!("{value}"))?;
            writer.write_char('"')
        });
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.field(field, |writer| escaped(writer, Context::Bare, format_args!("{value:?}")));
    }
}
