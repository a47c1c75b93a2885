//! Log lines, on standard output: JSON for machines or text for people.

mod json;
mod queue;

use clap::ValueEnum;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

pub use queue::Guard;

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

/// Changes from which level on lines are written.
pub struct Levels(reload::Handle<Targets, Registry>);

impl Levels {
    /// From this level on, from now on.
    pub fn set(&self, level: Level) {
        // Fails only if logging has ended.
        let _ = self.0.reload(targets(level));
    }
}

/// Whose lines tell that a lookup failed.
const LOOKUPS: &str = "tolerarch::resolver::lookup";

fn targets(level: Level) -> Targets {
    Targets::new().with_target("tolerarch", LevelFilter::from(level))
}

/// Logs for a command that people run: a line is written at once, and standard output is left to what they asked for.
/// Without a level, those are warnings, but not of what the command itself tells.
pub fn start_for_people<W>(level: Option<Level>, format: Format, writer: W)
where
    W: for<'w> fmt::MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = fmt::layer().with_ansi(false).with_target(false).without_time().with_writer(writer);
    let lines = match format {
        Format::Json => lines.event_format(json::Line).boxed(),
        Format::Text => lines.boxed(),
    };
    let untold = || targets(Level::Warn).with_target(LOOKUPS, LevelFilter::ERROR);
    finish(lines.with_filter(level.map_or_else(untold, targets)));
}

/// Starts logging for the whole process. What is queued is written out when the guard is dropped.
///
/// Only tolerarch's own lines are written: what libraries log at these levels is about single bytes of connections.
pub fn start(level: Level, format: Format) -> (Guard, Levels) {
    let (sink, guard) = queue::start();
    let (filter, levels) = reload::Layer::new(targets(level));
    let lines = fmt::layer().with_ansi(false).with_target(false).with_writer(move || sink.clone());
    let lines = match format {
        Format::Json => lines.event_format(json::Line).boxed(),
        Format::Text => lines.boxed(),
    };
    finish(lines.with_filter(filter));
    (guard, Levels(levels))
}

fn finish(lines: impl Layer<Registry> + Send + Sync) {
    // Fails only if logging has been started before, and then it goes on as it was.
    let _ = tracing_subscriber::registry().with(lines).try_init();
    // A panic's message may quote what was being read, so only its place is told.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "a defect: panic");
    }));
}
