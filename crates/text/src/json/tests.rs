use super::*;

#[derive(Debug, serde::Deserialize)]
struct Pair {
    a: u8,
    b: u8,
}

#[test]
fn an_array_is_no_object() {
    assert!(serde_json::from_str::<Pair>("[1, 2]").is_ok());
    assert!(serde_json::from_str::<Object<Pair>>("[1, 2]").is_err());
    let pair: Object<Pair> = serde_json::from_str(r#"{"b": 2, "a": 1, "c": []}"#).unwrap();
    assert_eq!((pair.a, pair.b), (1, 2));
}

#[test]
fn a_list_costs_no_more_than_its_limit() {
    let read = |text: &str| serde_json::from_str::<First<u8, 2>>(text).map(|first| (first.is_cut(), first.0));
    assert_eq!(read("[]").unwrap(), (false, vec![]));
    assert_eq!(read("[1, 2]").unwrap(), (false, vec![1, 2]));
    assert_eq!(read("[1, 2, 3, {}, [4]]").unwrap(), (true, vec![1, 2, 3]));
    assert!(read("[1, {}]").is_err() && read("{}").is_err() && read("[1, 2, 3, ").is_err());
}
