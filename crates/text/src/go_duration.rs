//! Durations as Kubernetes writes them (those of the configuration: `config::duration`): Go's `time.ParseDuration`, such as `12h`, `5h59m59.5s` or `0`.

use std::time::Duration;

/// The duration, if it is one and not negative.
pub fn parse(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if text == "0" || text == "-0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanos = 0.0_f64;
    while !rest.is_empty() || text.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (value, after) = rest.split_at(number);
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let scale = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        nanos += value.parse::<f64>().ok()? * scale;
        rest = after;
    }
    Duration::try_from_secs_f64(nanos / 1e9).ok()
}

/// The same, where a negative one means none.
pub fn parse_or_zero(text: &str) -> Option<Duration> {
    match text.strip_prefix('-') {
        Some(rest) if !rest.starts_with('+') => parse(rest).map(|_| Duration::ZERO),
        _ => parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_writes() {
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
            assert_eq!(parse(text), Some(Duration::from_secs_f64(seconds)), "{text}");
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
        for (text, expected) in
            [("-1h", Some(0)), ("-0", Some(0)), ("2s", Some(2)), ("--1h", None), ("-+1h", None), ("-1", None)]
        {
            assert_eq!(parse_or_zero(text), expected.map(Duration::from_secs), "{text:?}");
        }
    }
}
