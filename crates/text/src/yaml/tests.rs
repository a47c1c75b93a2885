mod upstream;

use super::*;
use serde_json::{Value, json};

fn one(text: &str) -> Value {
    read(text, Dialect::Kubernetes).unwrap()[0].value()
}

#[test]
fn scalars_are_read_as_by_kubectl() {
    for (text, expected) in [
        ("off", json!(false)),
        ("Off", json!(false)),
        ("oFF", json!("oFF")),
        ("y", json!(true)),
        ("NO", json!(false)),
        ("\"off\"", json!("off")),
        ("'off'", json!("off")),
        ("!!str off", json!("off")),
        ("~", Value::Null),
        ("1", json!(1)),
        ("-1", json!(-1)),
        ("0x10", json!(16)),
        ("-0x10", json!(-16)),
        ("0x-10", json!("0x-10")),
        ("010", json!(8)),
        ("1_000", json!(1000)),
        ("1.5", json!(1.5)),
        ("+.5", json!(0.5)),
        ("1e3", json!(1000)),
        ("1.0", json!(1)),
        ("08", json!(8)),
        ("18446744073709551615", json!(u64::MAX)),
        ("._5", json!("._5")),
        ("! 1", json!("1")),
        ("!!int '3'", json!(3)),
        ("!local 3", json!("3")),
        ("!!binary |\n  aG\n  k=\n", json!("hi")),
        ("1.25.3", json!("1.25.3")),
        ("v1", json!("v1")),
        ("sha256:1", json!("sha256:1")),
        ("2001-12-14", json!("2001-12-14")),
        ("|\n  a\n  b\n", json!("a\nb\n")),
        ("1-2", json!("1-2")),
        (".", json!(".")),
    ] {
        assert_eq!(
            one(&format!("a: {text}")),
            json!({ "a": expected }),
            "{text}"
        );
    }
}

#[test]
fn merges_and_aliases_are_expanded() {
    let text = "base: &base {a: 1, b: 2}\nx: {<<: *base, b: 3}\nw: {b: 4, <<: [{a: 5}, *base]}\nz: *base\nq: {\"<<\": 1}";
    let read = one(text);
    assert_eq!(read["x"], json!({"a": 1, "b": 3}));
    // As in go-yaml, merged members override those before `<<`, and later members override merged ones.
    assert_eq!(read["w"], json!({"a": 5, "b": 2}));
    assert_eq!(read["z"], json!({"a": 1, "b": 2}));
    assert_eq!(read["q"], json!({"<<": 1}));
}

#[test]
fn nodes_have_their_lines() {
    let documents = read("a:\n  b: 1\n  c: off\n", Dialect::Kubernetes).unwrap();
    assert_eq!(documents[0].at(&["a", "c"]).unwrap().line, 3);
}

#[test]
fn expansion_and_nesting_are_bounded() {
    // The bomb is small, so that without a bound this test fails rather than takes all memory.
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..7 {
        let list = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb += &format!("a{level}: &a{level} [{list}]\n");
    }
    let mut chain = String::from("a0: &a0 []\n");
    for level in 1..5000 {
        chain += &format!("a{level}: &a{level} [*a{}]\n", level - 1);
    }
    let flow = "[".repeat(1_000_000);
    let block = "- ".repeat(1_000_000);
    let keys = (0..5000).fold(String::new(), |text, depth| {
        text + &" ".repeat(depth) + "a:\n"
    });
    let too_deep = format!("nested more than {DEPTH} levels deep");
    let expected = [&*too_deep, "expand to more than is read", "not YAML"];
    for (name, text) in [
        ("bomb", bomb),
        ("chain", chain),
        ("flow", flow),
        ("block", block),
        ("keys", keys),
    ] {
        let read = read(&text, Dialect::Kubernetes);
        let Err(fault) = read else {
            panic!("{name} is read")
        };
        assert!(
            expected.iter().any(|part| fault.message.contains(part)),
            "{name}: {fault:?}"
        );
    }
    assert!(read("a: &a [*a]", Dialect::Kubernetes).is_err());
    assert!(read("a: *b", Dialect::Kubernetes).is_err());
}

/// Each level is an alias of the one before. So no level is deep as written, and all copies together are small.
#[test]
fn aliases_nest_no_deeper_than_written_nodes() {
    let chain = |levels: usize| {
        let lists = (1..levels).map(|level| format!("- &a{level} [*a{}]\n", level - 1));
        format!("- &a0 []\n{}", lists.collect::<String>())
    };
    let read = |levels| read(&chain(levels), Dialect::Kubernetes);
    assert!(read(DEPTH - 1).is_ok());
    let Err(fault) = read(DEPTH + 1) else {
        panic!("it is read")
    };
    assert!(fault.is_unsupported(), "{fault}");
}

#[test]
fn fault_tells_whether_go_yaml_may_read_the_text() {
    let deep = "[".repeat(DEPTH + 1) + &"]".repeat(DEPTH + 1);
    for (text, is_unsupported) in [
        ("[a:, b]", true),
        ("[!!str, b]", true),
        ("[!!str]", true),
        (r#"a: "\'""#, true),
        ("[a]: b", true),
        ("a: .inf", true),
        (&*deep, true),
        ("a: [", false),
        ("a: *b", false),
        ("<<: 1", false),
        ("~: 1", false),
        ("a: !!int b", false),
        ("a: \u{1}", false),
    ] {
        let Err(fault) = read(text, Dialect::Kubernetes) else {
            panic!("{text} is read")
        };
        assert_eq!(fault.is_unsupported(), is_unsupported, "{text}: {fault}");
    }
}

#[test]
fn aliases_of_long_texts_are_bounded() {
    let list = |aliases: usize| {
        format!(
            "a: &a {}\nb: [{}]\n",
            "x".repeat(1 << 20),
            "*a, ".repeat(aliases)
        )
    };
    let mut reader = Reader::new(Dialect::Kubernetes);
    assert!(reader.read(0, &list(30)).is_ok());
    assert!(reader.copies < (34 << 20), "{}", reader.copies);
    // The documents of one file are in memory together.
    for text in [list(40), list(1500)] {
        assert!(
            reader
                .read(0, &text)
                .unwrap_err()
                .message
                .contains("than is read")
        );
    }
}

#[test]
fn text_dialect_reads_scalars_as_written() {
    let text = "a: off\nb: 0x10\nc: ~\nd: \"null\"\ne: 1.50\n<<: {f: 1}\n? yes\n: !!int 3\n";
    let nodes = read(text, Dialect::Text).unwrap();
    let expected = json!({"a": "off", "b": "0x10", "c": null, "d": "null", "e": "1.50", "<<": {"f": "1"}, "yes": "3"});
    assert_eq!(nodes[0].value(), expected);
    let Data::Map(members) = &nodes[0].data else {
        panic!("{nodes:?}")
    };
    let lines: Vec<_> = members
        .iter()
        .map(|(key, member)| (key.line, member.line))
        .collect();
    assert_eq!(lines[5..], [(6, 6), (7, 8)]);
}
