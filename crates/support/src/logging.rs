//! Log lines: JSON for machines or text for people. Every value is escaped by `tolerarch_text::escape`.

mod line;
mod queue;

use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::time::{Duration, UNIX_EPOCH};

use clap::ValueEnum;
use prometheus::IntCounter;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::{Filter, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

use crate::metrics::Metrics;
pub use line::Format;
use line::Line;
pub use queue::Flush;
use tolerarch_text::yaml;

/// The least severe level of the lines that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Faults that an operator has to fix.
    Error,
    /// Also faults of registries, clients and credentials.
    Warn,
    /// Also a line for each decision.
    #[default]
    Info,
    /// Also the steps that lead to a decision.
    Debug,
    /// All lines.
    Trace,
}

/// A handle for the filter of a service's lines, which changes with the configuration.
pub type Levels = reload::Handle<Targets, Registry>;

/// Target of the lines about failed lookups.
const LOOKUPS: &str = "tolerarch_images::resolver::lookup";

pub fn targets(level: Level) -> Targets {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    Targets::new().with_target("tolerarch", level)
}

/// Starts logging for a command. Each line is written at once to `writer`, because standard output is for the command's
/// results. Without a level, warnings are logged, except for failed lookups, which are among the results.
pub fn start_for_people<W>(level: Option<Level>, format: Format, writer: W)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = match level {
        Some(level) => targets(level),
        None => targets(Level::Warn).with_target(LOOKUPS, LevelFilter::ERROR),
    };
    let line = Line {
        format,
        timed: false,
    };
    begin(filter, line, writer);
}

/// Starts logging for a service, to standard output. Queued lines are written when the [`Flush`] is dropped.
///
/// Only tolerarch's own lines are written: at the same levels, libraries log single bytes of connections.
pub fn start(level: Level, format: Format) -> (Flush, Levels) {
    let (queue, flush) = queue::start(format);
    let (filter, levels) = reload::Layer::new(targets(level));
    let line = Line {
        format,
        timed: true,
    };
    begin(filter, line, queue);
    (flush, levels)
}

fn begin<W>(filter: impl Filter<Registry> + Send + Sync + 'static, line: Line, writer: W)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = fmt::layer()
        .event_format(line)
        .with_writer(writer)
        .with_filter(filter);
    // This fails only if logging has been started already, and then the first start stays in effect.
    let _ = tracing_subscriber::registry().with(lines).try_init();
    std::panic::set_hook(Box::new(log_panic));
    yaml::hide_parser_panics();
}

static PANICS: OnceLock<IntCounter> = OnceLock::new();

/// Registers the counter of panics. All panics of the process count for the first service that registers.
pub fn count_panics(metrics: &Metrics) -> Result<(), prometheus::Error> {
    let help = "Panics of any task or review; each is an internal error.";
    let panics = metrics.add("tolerarch_panics_total", help, &[])?;
    PANICS.get_or_init(|| panics);
    Ok(())
}

/// Renders a time, given in seconds since 1970, for people: `2026-01-31T12:00:00Z`.
pub fn date(seconds: i64) -> String {
    // The last second of the year 9999, after which a time cannot be rendered.
    const LAST: u64 = 253_402_300_799;
    let seconds = u64::try_from(seconds).unwrap_or_default().min(LAST);
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Logs only the location of a panic, as the panic's message may quote untrusted input.
fn log_panic(panic: &PanicHookInfo<'_>) {
    if let Some(panics) = PANICS.get() {
        panics.inc();
    }
    let place = match panic.location() {
        Some(location) => location.to_string(),
        None => String::new(),
    };
    tracing::error!(place, "internal error: panic");
}

#[cfg(test)]
mod tests;
