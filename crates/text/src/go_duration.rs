//! Durations such as `1h30m`, parsed as by Go (`time.ParseDuration`), like Kubernetes does. `config::duration` builds on
//! [`sum`].

use std::time::Duration;

/// Parses a duration that is not negative.
pub fn parse(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if text == "0" || text == "-0" {
        return Some(Duration::ZERO);
    }
    sum(text, unit)
}

/// Returns the nanoseconds of a unit.
fn unit(name: &str) -> Option<u64> {
    match name {
        "ns" => Some(1),
        "us" | "µs" | "μs" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        "m" => Some(60_000_000_000),
        "h" => Some(3_600_000_000_000),
        _ => None,
    }
}

/// Splits a text into numbers, each with the text between it and the next number.
pub fn terms(mut text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
        let (number, rest) = text.split_at(end);
        let end = rest.find(is_number).unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(end);
        text = rest;
        Some((number, unit))
    })
}

/// Adds the terms, at least one of which must exist. `unit` returns the nanoseconds of each unit.
pub fn sum(text: &str, unit: impl Fn(&str) -> Option<u64>) -> Option<Duration> {
    let mut sum = None;
    for (number, name) in terms(text) {
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // Further digits are less than a nanosecond of any unit.
        let fraction = fraction.get(..18).unwrap_or(fraction);
        let digits = digits(whole, fraction)?;
        let scaled = digits.checked_mul(unit(name)?.into())?;
        let term = scaled / 10_u128.pow(fraction.len() as u32);
        let before = sum.unwrap_or(0_u128);
        sum = Some(before.checked_add(term)?);
    }
    let nanos = u64::try_from(sum?).ok()?;
    Some(Duration::from_nanos(nanos))
}

/// Reads the digits of both texts as one number; `None` if there are no digits.
fn digits(whole: &str, fraction: &str) -> Option<u128> {
    let mut number = None;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let value = char::from(digit).to_digit(10)?;
        let before = number.unwrap_or(0_u128);
        let shifted = before.checked_mul(10)?;
        number = Some(shifted.checked_add(value.into())?);
    }
    number
}

/// Parses a duration. A negative one becomes zero.
pub fn parse_or_zero(text: &str) -> Option<Duration> {
    match text.strip_prefix('-') {
        Some(rest) if !rest.starts_with('+') => {
            parse(rest)?;
            Some(Duration::ZERO)
        }
        _ => parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_by_go() {
        for (text, seconds) in [
            ("0", 0.0),
            ("0s", 0.0),
            ("12h", 43200.0),
            ("6h0m0s", 21600.0),
            ("5h59m59.5s", 21599.5),
            ("1.5h", 5400.0),
            ("100ms", 0.1),
            ("1us", 1e-6),
            ("1µs", 1e-6),
            (".5s", 0.5),
            ("+1m", 60.0),
        ] {
            assert_eq!(
                parse(text),
                Some(Duration::from_secs_f64(seconds)),
                "{text}"
            );
        }
        for text in [
            "",
            "1",
            "h",
            "-1h",
            "1d",
            "1h ",
            " 1h",
            "1h30",
            "1..5s",
            "one",
            ".s",
            "1e3s",
            "99999999999999999h",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        for (text, expected) in [
            ("-1h", Some(0)),
            ("-0", Some(0)),
            ("2s", Some(2)),
            ("--1h", None),
            ("-+1h", None),
            ("-1", None),
        ] {
            assert_eq!(
                parse_or_zero(text),
                expected.map(Duration::from_secs),
                "{text:?}"
            );
        }
    }
}
