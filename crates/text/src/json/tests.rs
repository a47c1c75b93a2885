use super::*;

#[derive(Debug, serde::Deserialize)]
struct Pair {
    a: u8,
    b: u8,
}

#[test]
fn array_is_refused_as_an_object() {
    assert!(serde_json::from_str::<Pair>("[1, 2]").is_ok());
    assert!(serde_json::from_str::<Object<Pair>>("[1, 2]").is_err());
    let Object(pair): Object<Pair> = serde_json::from_str(r#"{"b": 2, "a": 1, "c": []}"#).unwrap();
    assert_eq!((pair.a, pair.b), (1, 2));
}

#[test]
fn items_beyond_the_limit_are_not_stored() {
    let read = |text: &str| serde_json::from_str::<First<u8, 2>>(text).map(|First(items)| items);
    assert_eq!(read("[]").unwrap(), [0_u8; 0]);
    assert_eq!(read("[1, 2]").unwrap(), [1, 2]);
    assert_eq!(read("[1, 2, 3, {}, [4]]").unwrap(), [1, 2, 3]);
    assert!(read("[1, {}]").is_err() && read("{}").is_err() && read("[1, 2, 3, ").is_err());
}
