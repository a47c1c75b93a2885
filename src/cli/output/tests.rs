use super::*;

fn rows() -> Vec<Row> {
    let row = |colour, cells: [&str; 2]| Row { colour, cells: cells.map(str::to_owned).to_vec() };
    vec![
        row(Colour::Green, ["web", "registry.example.com/team/app:1"]),
        row(Colour::Plain, ["a-longer-name", ""]),
    ]
}

#[test]
fn columns_are_aligned() {
    let look = Look { colour: false, width: None };
    let expected = "NAME           IMAGE\nweb            registry.example.com/team/app:1\na-longer-name\n";
    assert_eq!(table(&["NAME", "IMAGE"], rows(), "", look), expected);
    let coloured = table(&["NAME", "IMAGE"], rows(), "", Look { colour: true, width: None });
    assert_eq!(coloured.matches("\x1b[32mweb").count(), 1);
    assert_eq!(coloured.matches("\x1b[0m").count(), 1);
}

#[test]
fn a_narrow_terminal_gets_the_ends_of_long_texts() {
    let table = table(&["NAME", "IMAGE"], rows(), "", Look { colour: false, width: Some(30) });
    assert!(table.lines().all(|line| line.chars().count() <= 30), "{table}");
    assert!(table.contains("…com/team/app:1"), "{table}");
    let tiny = super::table(&["NAME", "IMAGE"], rows(), "", Look { colour: false, width: Some(3) });
    assert_eq!(tiny.lines().count(), 3);
}

#[test]
fn words_of_short_lists_are_cut_last() {
    let cells = ["Deployment/a-long-name", "platform-missing", "registry.example.com/team/app:1"];
    let rows = || [Row { colour: Colour::Plain, cells: cells.map(str::to_owned).to_vec() }];
    let look = |width| Look { colour: false, width: Some(width) };
    let narrow = table(&["OBJECT", "REASON", "IMAGE"], rows(), "", look(44));
    assert!(narrow.contains(" platform-missing ") && narrow.contains("…/team/app:1"), "{narrow}");
    assert!(narrow.lines().all(|line| line.chars().count() <= 44), "{narrow}");
    let tiny = table(&["OBJECT", "REASON", "IMAGE"], rows(), "", look(40));
    assert!(tiny.lines().all(|line| line.chars().count() <= 40), "{tiny}");
}

#[test]
fn the_reason_is_whole_in_80_columns() {
    let header = ["FILE", "NAMESPACE", "OBJECT", "DECISION", "POOLS", "REASON", "IMAGE"];
    let mut cells = vec!["x".repeat(63); header.len()];
    (cells[3], cells[5]) = ("tolerated".into(), "registry-not-allowed".into());
    let table =
        table(&header, [Row { colour: Colour::Plain, cells }], "", Look { colour: false, width: Some(80) });
    assert!(table.contains(" tolerated ") && table.contains(" registry-not-allowed "), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let look = |terminal, set: &[(&str, &str)]| {
        let Look { colour, width } = Look::of(terminal, Some(80), &set.iter().copied().collect());
        (colour, width)
    };
    assert_eq!(look(true, &[]), (true, Some(80)));
    assert_eq!(look(true, &[("TERM", "xterm"), ("NO_COLOR", "")]), (true, Some(80)));
    assert_eq!(look(true, &[("NO_COLOR", "1")]), (false, Some(80)));
    assert_eq!(look(true, &[("TERM", "dumb")]), (false, Some(80)));
    assert_eq!(look(false, &[("TERM", "xterm")]), (false, None));
}

#[test]
fn nothing_steers_a_terminal() {
    let (text, escaped) = ("a\x1b[31m\n\u{202e}ü", "a\\u{1b}[31m\\n\\u{202e}ü");
    assert_eq!(shown(text), escaped);
    let look = Look { colour: false, width: None };
    assert_eq!(wrapped(text, "", look), format!("{escaped}\n"));
    let row = Row { colour: Colour::Plain, cells: vec![text.to_owned()] };
    assert_eq!(table(&["A"], [row], "", look), format!("A\n{escaped}\n"));
}

#[test]
fn sentences_break_between_words() {
    let look = |width| Look { colour: false, width };
    assert_eq!(wrapped("one two three", "  ", look(None)), "one two three\n");
    assert_eq!(wrapped("one two three", "  ", look(Some(8))), "one two\n  three\n");
    assert_eq!(wrapped("one two three", "  ", look(Some(7))), "one two\n  three\n");
    assert_eq!(wrapped("much-too-long for", "  ", look(Some(4))), "much-too-long\n  for\n");
}

#[test]
fn a_document_controls_no_terminal_and_reads_back() {
    let image = "a\u{9b}31m\u{202e}\u{200b}\u{61c}\u{2028}\u{e0041}\u{7f}\n\u{1b}ü漢\"\\";
    let value = serde_json::json!({"images": [{"image": image}], image: 1});
    let text = document(&format!("{value:#}"));
    assert!(!text.chars().any(|c| c != '\n' && is_unsafe(c)), "{text}");
    assert!(
        text.contains("ü漢") && text.contains(r"\u009b31m\u202e\u200b\u061c\u2028\udb40\udc41\u007f"),
        "{text}"
    );
    assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    assert_eq!(shown("\u{61c}\u{200b}\u{feff}"), r"\u{61c}\u{200b}\u{feff}");
}
