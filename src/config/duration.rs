//! Durations of the configuration: one or several numbers with units, such as `15s` or `1h30m`.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::values::{Codec, Scalar, matches};
use tolerarch_text::go_duration::{sum, terms};

const UNITS: [(&str, u64); 5] = [
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];
/// Form of durations: up to as many digits before the point as the maximum has in milliseconds, and three behind it.
const FORM: &str = r"^([0-9]{1,11}(\.[0-9]{1,3})?(ms|s|m|h|d))+$";
/// Maximum duration: a longer one is a mistake. This is the only rule here that a schema cannot express.
const MAX: Duration = Duration::from_secs(365 * 24 * 3600);

impl Scalar for Duration {
    fn codec() -> Codec<Self> {
        let expected = "a duration such as 300ms, 15s, 5m, 1.5h, 7d or 1h30m, and at most 365d";
        Codec::new(expected, schema(), parse, |duration| {
            json!(written(*duration))
        })
        .with_hint(probable_meaning)
    }
}

/// Returns the codec of a duration or `0`.
pub(super) fn or_never() -> Codec<Duration> {
    let write = |duration: &Duration| {
        json!(if duration.is_zero() {
            "0".into()
        } else {
            written(*duration)
        })
    };
    Codec::new(
        "0, or a duration such as 30s, 10m or 1h30m, and at most 365d",
        json!({"anyOf": [{"enum": [0, "0"]}, schema()]}),
        |text| {
            if text == "0" {
                Some(Duration::ZERO)
            } else {
                parse(text)
            }
        },
        write,
    )
    .with_hint(probable_meaning)
}

fn schema() -> Json {
    json!({
        "type": "string",
        "pattern": FORM,
        // Excludes zero without a look-ahead: Helm uses Go's patterns, which have none.
        "not": {"type": "string", "pattern": "^[^1-9]*$"},
        "examples": ["300ms", "15s", "1.5h", "1h30m"],
    })
}

/// Formats a duration in the largest unit up to hours that gives a whole number.
fn written(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let whole = UNITS
        .iter()
        .rev()
        .skip(1)
        .find(|(_, unit)| nanos.is_multiple_of(u128::from(*unit)));
    let (name, unit) = whole.copied().unwrap_or(UNITS[0]);
    let count = nanos / u128::from(unit);
    let rest = nanos % u128::from(unit) / 1000;
    let fraction = if rest == 0 {
        String::new()
    } else {
        format!(".{rest:03}")
    };
    format!("{count}{}{name}", fraction.trim_end_matches('0'))
}

/// Parses a duration; `None` also for zero.
fn parse(text: &str) -> Option<Duration> {
    let unit = |name: &str| {
        let mut units = UNITS.iter();
        let (_, unit) = units.find(|(unit_name, _)| *unit_name == name)?;
        Some(*unit)
    };
    if !matches(FORM, text) {
        return None;
    }
    let duration = sum(text, unit)?;
    if duration.is_zero() || duration > MAX {
        None
    } else {
        Some(duration)
    }
}

/// Returns a hint at the duration that a text probably means.
fn probable_meaning(text: &str) -> Option<String> {
    let text = text.trim();
    if terms(text).all(|(_, unit)| unit.is_empty()) {
        parse(&format!("{text}s"))?;
        return Some(format!("the unit is missing: {text}s, {text}m or {text}h"));
    }
    let text = text.to_ascii_lowercase();
    let joined = text.replace(' ', "");
    let spelt = match parse(&joined) {
        Some(_) => joined,
        None => written(humantime::parse_duration(&text).ok()?),
    };
    parse(&spelt)?;
    Some(format!("did you mean {spelt}?"))
}

#[cfg(test)]
mod tests;
