use super::*;

/// Removes the colours.
pub(in crate::cli) fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

fn rows() -> Vec<Row> {
    let row = |colour, cells: [&str; 2]| Row {
        colour,
        cells: cells.map(str::to_owned).to_vec(),
    };
    vec![
        row(Colour::Green, ["web", "registry.example.com/team/app:1"]),
        row(Colour::Plain, ["a-longer-name", ""]),
    ]
}

#[test]
fn columns_are_aligned() {
    let expected =
        "NAME           IMAGE\nweb            registry.example.com/team/app:1\na-longer-name\n";
    let coloured = table(&["NAME", "IMAGE"], rows(), "", None);
    assert_eq!(plain(&coloured), expected);
    assert_eq!(coloured.matches("\x1b[32mweb").count(), 1);
    assert_eq!(coloured.matches("\x1b[0m").count(), 1);
}

#[test]
fn narrow_terminal_cuts_the_beginning_of_texts() {
    let table = plain(&table(&["NAME", "IMAGE"], rows(), "", Some(30)));
    assert!(
        table.lines().all(|line| line.chars().count() <= 30),
        "{table}"
    );
    assert!(table.contains("…com/team/app:1"), "{table}");
    let tiny = super::table(&["NAME", "IMAGE"], rows(), "", Some(3));
    assert_eq!(tiny.lines().count(), 3);
}

#[test]
fn widest_column_is_cut_first() {
    let cells = [
        "Deployment/a-long-name",
        "platform-missing",
        "registry.example.com/team/app:1",
    ];
    let rows = || {
        [Row {
            colour: Colour::Plain,
            cells: cells.map(str::to_owned).to_vec(),
        }]
    };
    let narrow = table(&["OBJECT", "REASON", "IMAGE"], rows(), "", Some(44));
    assert!(
        narrow.contains(" platform-missing ") && narrow.contains("…/team/app:1"),
        "{narrow}"
    );
    assert!(
        narrow.lines().all(|line| line.chars().count() <= 44),
        "{narrow}"
    );
    let tiny = table(&["OBJECT", "REASON", "IMAGE"], rows(), "", Some(40));
    assert!(
        tiny.lines().all(|line| line.chars().count() <= 40),
        "{tiny}"
    );
}

#[test]
fn reason_is_not_cut_at_80_columns() {
    let header = [
        "FILE",
        "NAMESPACE",
        "OBJECT",
        "DECISION",
        "POOLS",
        "REASON",
        "IMAGE",
    ];
    let mut cells = vec!["x".repeat(63); header.len()];
    (cells[3], cells[5]) = ("tolerated".into(), "registry-not-allowed".into());
    let table = table(
        &header,
        [Row {
            colour: Colour::Plain,
            cells,
        }],
        "",
        Some(80),
    );
    assert!(
        table.contains(" tolerated ") && table.contains(" registry-not-allowed "),
        "{table}"
    );
    assert!(
        table.lines().all(|line| line.chars().count() <= 80),
        "{table}"
    );
}

#[test]
fn control_characters_are_escaped() {
    let text = "a\x1b[31m\n\u{202e}ü";
    let escaped = "a\\u{1b}[31m\\n\\u{202e}ü";
    assert_eq!(sanitized(text), escaped);
    assert_eq!(wrapped(text, "", None), format!("{escaped}\n"));
    let row = Row {
        colour: Colour::Plain,
        cells: vec![text.to_owned()],
    };
    assert_eq!(table(&["A"], [row], "", None), format!("A\n{escaped}\n"));
}

#[test]
fn text_wraps_between_words() {
    assert_eq!(wrapped("one two three", "  ", None), "one two three\n");
    assert_eq!(
        wrapped("one two three", "  ", Some(8)),
        "one two\n  three\n"
    );
    assert_eq!(
        wrapped("one two three", "  ", Some(7)),
        "one two\n  three\n"
    );
    assert_eq!(
        wrapped("much-too-long for", "  ", Some(4)),
        "much-too-long\n  for\n"
    );
}

#[test]
fn escaped_document_parses_to_the_same_value() {
    let image = "a\u{9b}31m\u{202e}\u{200b}\u{61c}\u{2028}\u{e0041}\u{7f}\n\u{1b}ü漢\"\\";
    let value = serde_json::json!({"images": [{"image": image}], image: 1});
    let text = document(&format!("{value:#}"));
    assert!(!text.chars().any(|c| c != '\n' && is_unsafe(c)), "{text}");
    assert!(
        text.contains("ü漢")
            && text.contains(r"\u009b31m\u202e\u200b\u061c\u2028\udb40\udc41\u007f"),
        "{text}"
    );
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&text).unwrap(),
        value
    );
    assert_eq!(
        sanitized("\u{61c}\u{200b}\u{feff}"),
        r"\u{61c}\u{200b}\u{feff}"
    );
}
