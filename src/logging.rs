//! Log lines, on standard output: JSON for machines or text for people.

use std::io::{self, BufWriter};

use clap::ValueEnum;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::LevelFilter;

/// Lines that wait for a reader that stalls; further ones are dropped, so that no review waits.
const QUEUE: usize = 16 * 1024;

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON object a line.
    #[default]
    Json,
    /// For people.
    Text,
}

/// From which level on lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Only what needs somebody.
    Error,
    /// And what is wrong outside.
    Warn,
    /// And a line for each decision.
    #[default]
    Info,
    /// And what leads to it.
    Debug,
    /// Everything.
    Trace,
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::ERROR,
            Level::Warn => Self::WARN,
            Level::Info => Self::INFO,
            Level::Debug => Self::DEBUG,
            Level::Trace => Self::TRACE,
        }
    }
}

/// Starts logging for the whole process. What is queued is written out when the guard is dropped.
///
/// Only tolerarch's own lines are written: what libraries log at these levels is about single bytes of connections.
pub fn start(level: Level, format: Format) -> WorkerGuard {
    let (writer, guard): (NonBlocking, WorkerGuard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(QUEUE)
        .finish(BufWriter::with_capacity(64 * 1024, io::stdout()));
    let filter =
        tracing_subscriber::filter::Targets::new().with_target("tolerarch", LevelFilter::from(level));
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false).with_target(false);
    use tracing_subscriber::layer::{Layer, SubscriberExt};
    use tracing_subscriber::util::SubscriberInitExt;
    let lines = match format {
        Format::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
        }
        Format::Text => lines.boxed(),
    };
    // Fails only if logging has been started before, and then it goes on as it was.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    // A panic's message may quote what was being read, so only its place is told.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "a defect: panic");
    }));
    guard
}
