use super::*;

#[test]
fn numbers_with_units_are_parsed() {
    for (text, millis) in [
        ("300ms", 300),
        ("15s", 15_000),
        ("5m", 300_000),
        ("1.5h", 5_400_000),
        ("7d", 604_800_000),
        ("1h30m", 5_400_000),
        ("1d1h1m1s1ms", 90_061_001),
        ("0.5s", 500),
        ("0s1ms", 1),
    ] {
        assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
    }
    for text in [
        "", "5", "5M", "5 min", "5 m", "5S", " 5s", "1h 30m", "s", "-5s", "+5s", ".5s", "5.s",
        "1.2.3s",
    ] {
        assert_eq!(parse(text), None, "{text:?}");
    }
    for text in [
        "0s",
        "0.0h",
        "1us",
        "1ns",
        "1w",
        "1y",
        "1e3s",
        "1.2345s",
        "123456789012s",
        "5 bananas",
        "٣s",
    ] {
        assert_eq!(parse(text), None, "{text:?}");
    }
    assert_eq!(
        (parse("365d"), parse("31536000000ms")),
        (Some(MAX), Some(MAX))
    );
    for text in ["365d1ms", "366d", "99999999999d", &"99999999999d".repeat(9)] {
        assert_eq!(parse(text), None, "{text:?}");
    }
}

#[test]
fn hint_names_the_probable_duration() {
    for (text, hint) in [
        ("5M", "did you mean 5m?"),
        ("5 min", "did you mean 5m?"),
        ("1h 30m", "did you mean 1h30m?"),
        ("2 Hours", "did you mean 2h?"),
        ("10sec", "did you mean 10s?"),
        ("2 weeks", "did you mean 336h?"),
        ("5", "the unit is missing: 5s, 5m or 5h"),
        ("1.5", "the unit is missing: 1.5s, 1.5m or 1.5h"),
    ] {
        assert_eq!(probable_meaning(text).as_deref(), Some(hint), "{text}");
    }
    for text in [
        "",
        "0",
        "bananas",
        "5 bananas",
        "-5",
        "m",
        "5 m m",
        "5ns",
        "2 years",
    ] {
        assert_eq!(probable_meaning(text), None, "{text:?}");
    }
}

#[test]
fn written_duration_parses_to_the_same_value() {
    for text in [
        "300ms",
        "90s",
        "90m",
        "36h",
        "1.5ms",
        "0.001ms",
        "1.25s",
        "1h30m1ms",
        "364d23h59m59s999.999ms",
    ] {
        let duration = parse(text).unwrap();
        let written = written(duration);
        assert_eq!(parse(&written), Some(duration), "{text}: {written}");
    }
    let written = |text: &str| written(parse(text).unwrap());
    assert_eq!(
        (written("7d"), written("90s"), written("0.001ms")),
        ("168h".to_owned(), "90s".to_owned(), "0.001ms".to_owned())
    );
}
