//! Durations as operators write them: a number and a unit, also several, such as `1h30m`.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::values::{Kind, Scalar};

/// Each unit in nanoseconds.
const UNITS: [(&str, u64); 5] = [
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];
/// What people write for each, in lower case.
const SPELLINGS: [(&str, &[&str]); 5] = [
    ("ms", &["msec", "msecs", "millis", "millisecond", "milliseconds"]),
    ("s", &["sec", "secs", "second", "seconds"]),
    ("m", &["min", "mins", "minute", "minutes"]),
    ("h", &["hr", "hrs", "hour", "hours"]),
    ("d", &["day", "days"]),
];
/// Digits before the dot, as many as the maximum has in milliseconds, and after it: a microsecond is the least.
const WHOLE: usize = 11;
const FRACTION: usize = 3;
/// Longer is a mistake. It is all of what is read here that a schema cannot say.
pub(super) const MAX: Duration = Duration::from_secs(365 * 24 * 3600);

impl Scalar for Duration {
    fn kind() -> Kind<Self> {
        let expected = "a duration such as 300ms, 15s, 5m, 1.5h, 7d or 1h30m, and at most 365d";
        Kind::new(expected, schema(), parse, |duration| json!(written(*duration))).hinting(meant)
    }
}

/// A duration, or `0`.
pub(super) fn or_never() -> Kind<Duration> {
    let write = |duration: &Duration| json!(if duration.is_zero() { "0".into() } else { written(*duration) });
    Kind::new(
        "0, or a duration such as 30s, 10m or 1h30m, and at most 365d",
        json!({"anyOf": [{"enum": [0, "0"]}, schema()]}),
        |text| if text == "0" { Some(Duration::ZERO) } else { parse(text) },
        write,
    )
    .hinting(meant)
}

fn schema() -> Json {
    json!({
        "type": "string",
        "pattern": format!("^([0-9]{{1,{WHOLE}}}(\\.[0-9]{{1,{FRACTION}}})?(ms|s|m|h|d))+$"),
        // Zero. Not as a look-ahead: Helm reads patterns as Go does, which has none.
        "not": {"type": "string", "pattern": "^[^1-9]*$"},
        "examples": ["300ms", "15s", "1.5h", "1h30m"],
    })
}

/// In the largest unit that gives a whole number.
fn written(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let whole = UNITS.iter().rev().skip(1).find(|(_, unit)| nanos.is_multiple_of(u128::from(*unit)));
    let (name, unit) = whole.copied().unwrap_or(UNITS[0]);
    let (count, rest) = (nanos / u128::from(unit), nanos % u128::from(unit) / 1000);
    let fraction = if rest == 0 { String::new() } else { format!(".{rest:03}") };
    format!("{count}{}{name}", fraction.trim_end_matches('0'))
}

/// The duration, if it is one and not zero.
fn parse(text: &str) -> Option<Duration> {
    let (mut rest, mut nanos) = (text, 0);
    while !rest.is_empty() {
        let (number, unit);
        (number, rest) = split(rest, |b| b.is_ascii_digit() || b == b'.');
        (unit, rest) = split(rest, |b| b.is_ascii_lowercase());
        let (_, unit) = *UNITS.iter().find(|(name, _)| *name == unit)?;
        nanos += units(number, unit)?;
    }
    let duration = Duration::from_nanos(nanos.try_into().ok()?);
    (!duration.is_zero() && duration <= MAX).then_some(duration)
}

/// So many units, in nanoseconds.
fn units(number: &str, unit: u64) -> Option<u128> {
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (number, None),
    };
    let fits = |digits: &str, most| (1..=most).contains(&digits.len()) && !digits.contains('.');
    if !fits(whole, WHOLE) || !fraction.is_none_or(|fraction| fits(fraction, FRACTION)) {
        return None;
    }
    let thousandths: u64 = format!("{:0<3}", fraction.unwrap_or_default()).parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    Some(u128::from(unit) * u128::from(whole) + u128::from(unit / 1000 * thousandths))
}

fn split(text: &str, of: impl Fn(u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().position(|b| !of(b)).unwrap_or(text.len()))
}

/// The duration that a text was probably meant as.
fn meant(text: &str) -> Option<String> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if is_number {
        return parse(&format!("{text}s"))
            .map(|_| format!("the unit is missing: {text}s, {text}m or {text}h"));
    }
    let (mut rest, mut spelt) = (text, String::new());
    while !rest.is_empty() {
        let (number, unit);
        (number, rest) = split(rest, |b| b.is_ascii_digit() || b == b'.');
        (unit, rest) = split(rest.trim_start(), |b| b.is_ascii_alphabetic());
        rest = rest.trim_start();
        let unit = unit.to_ascii_lowercase();
        let known = |(name, spellings): &&(&str, &[&str])| *name == unit || spellings.contains(&&*unit);
        let (name, _) = SPELLINGS.iter().find(known)?;
        spelt += &format!("{number}{name}");
    }
    parse(&spelt).map(|_| format!("did you mean {spelt}?"))
}

#[cfg(test)]
mod tests;
