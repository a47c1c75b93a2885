use futures_util::StreamExt;
use serde_json::json;

use super::*;

/// Maximum bytes of a page in these tests.
const PAGE: usize = 64 << 10;
/// Maximum bytes of an object in these tests.
const LARGE: usize = 128 << 10;
/// Maximum number of objects on the first page.
const FIRST: u32 = 50;

use crate::cluster::testing::Lists;
use crate::cluster::{Change, ClusterError, Node, NodePool};

/// Adds a node with this number of bytes in a field.
fn put(api: &Lists, name: &str, bytes: usize) {
    api.put(
        Node::PATH,
        json!({"metadata": {"name": name}, "spec": {"providerID": "x".repeat(bytes)}}),
    );
}

/// Returns the names in a list.
async fn listed(api: &Lists) -> Vec<String> {
    let mut changes = api.watcher().bounded(PAGE, LARGE).follow::<Node>(None);
    let mut names = Vec::new();
    loop {
        match changes.next().await.unwrap() {
            Change::Listed(node) => names.push(node.name().to_owned()),
            Change::Complete => return names,
            Change::Unread(meta) => names.push(format!("unread: {}", meta.name)),
            Change::Begins => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the number of objects requested, page by page.
fn sizes(api: &Lists) -> Vec<u32> {
    let size = |query: &String| {
        query
            .split(['?', '&'])
            .find_map(|pair| pair.strip_prefix("limit=")?.parse().ok())
    };
    api.queries().iter().filter_map(size).collect()
}

#[tokio::test]
async fn page_size_adapts_to_object_size() {
    let api = Lists::start().await;
    api.give_whole_pages();
    let names: Vec<String> = (0..300).map(|at| format!("node-{at:03}")).collect();
    for (at, name) in names.iter().enumerate() {
        put(
            &api,
            name,
            if (100..120).contains(&at) {
                PAGE / 2
            } else {
                10
            },
        );
    }
    assert_eq!(listed(&api).await, names, "each once, in their order");
    let sizes = sizes(&api);
    assert_eq!(sizes[..2], [FIRST, 2 * FIRST]);
    assert!(
        sizes.contains(&1) && *sizes.last().unwrap() > FIRST,
        "{sizes:?}"
    );
    assert!(sizes.len() < 60, "{sizes:?}");
}

#[tokio::test]
async fn too_large_object_is_left_out() {
    let api = Lists::start().await;
    api.give_whole_pages();
    for (name, bytes) in [("a", 1), ("b", LARGE), ("c", 1), ("d", 2 * LARGE)] {
        put(&api, name, bytes);
    }
    assert_eq!(listed(&api).await, ["a", "unread: b", "c", "unread: d"]);
}

/// In lists of custom resources, the metadata follows the objects.
#[tokio::test]
async fn list_without_a_leading_token_fails() {
    let api = Lists::start().await;
    api.give_whole_pages();
    api.put(
        NodePool::PATH,
        json!({"metadata": {"name": "a", "labels": {"x": "x".repeat(LARGE)}}}),
    );
    api.write_metadata_last();
    let mut changes = api.watcher().bounded(PAGE, LARGE).follow::<NodePool>(None);
    assert!(matches!(changes.next().await, Some(Change::Begins)));
    assert!(matches!(
        changes.next().await,
        Some(Change::Failed(ClusterError::TooLarge))
    ));
}

#[test]
fn truncated_page_keeps_its_token() {
    let page = br#"{"kind":"List","metadata":{"resourceVersion":"7","continue":"t"},"items":[{"metadata":{"name":"a","#;
    let rest = Page::<Node>::of_truncated(page).unwrap();
    assert_eq!(
        (&*rest.resource_version, rest.next.as_deref()),
        ("7", Some("t"))
    );
    let unread = rest
        .objects
        .into_iter()
        .map(|object| object.unwrap_err().0.name);
    assert_eq!(unread.collect::<Vec<_>>(), ["a"]);
    for none in [
        &br#"{"apiVersion":"v1","items":[{"a"#[..],
        b"",
        b"\"items\":",
        br#"{"metadata":{},"items":["#,
    ] {
        assert!(matches!(
            Page::<Node>::of_truncated(none),
            Err(RequestError::TooLarge)
        ));
    }
}

#[test]
fn identity_is_read_from_truncated_json() {
    let deep = format!("{}1{}", r#"{"f:a":"#.repeat(10_000), "}".repeat(10_000));
    let object = format!(
        r#"{{"metadata":{{"name":"web","managedFields":[{{"fieldsV1":{deep}}}],"namespace":"team","uid":"u"}}}}"#
    );
    let of = |json: &str| {
        let Metadata {
            name,
            namespace,
            uid,
            ..
        } = identity(json.as_bytes());
        (name, namespace, uid)
    };
    let all = ("web".to_owned(), "team".to_owned(), "u".to_owned());
    assert_eq!(of(&object), all);
    let event = format!(r#"{{"type":"ADDED","object":{object}}}"#);
    assert_eq!(of(&event), all);
    let cut = format!(r#""items":[{object}"#);
    assert_eq!(of(&cut), all, "the rest is missing");
    let (name, namespace, _) = of(&object[..60]);
    assert_eq!((&*name, &*namespace), ("web", ""));
    assert_eq!(of("canary"), Default::default());
    // The same characters within a text are escaped.
    let quoted =
        json!({"apiVersion": "\"metadata\":{\"name\":\"no\"}", "metadata": {"name": "web"}});
    assert_eq!(of(&quoted.to_string()).0, "web");
}
