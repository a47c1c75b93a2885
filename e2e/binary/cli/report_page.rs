//! The HTML page and the Markdown of `tolerarch report`: their structure, and untrusted names in them. No browser runs here,
//! so the script of the page is not tested.

use std::collections::BTreeSet;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::cluster::FakeCluster;
use super::report::{NAMESPACES, NODES, PODS, json_of, node, pod, report, shop};
use super::{BOTH, CommandLine};

/// Every name that users and controllers choose is untrusted input.
#[tokio::test]
async fn untrusted_names_are_inert_in_every_format() {
    let cli = CommandLine::new(json!({})).await;
    let markup = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>|`\n# x\u{1b}[31m\u{202e}&amp;";
    let mut pods = Vec::new();
    for (number, image) in [
        cli.image("shop/web", &BOTH),
        cli.image("shop/old", &BOTH[..1]),
        markup.into(),
    ]
    .iter()
    .enumerate()
    {
        let mut pod = pod(markup, "web", number, image, markup);
        pod["metadata"]["name"] = format!("{markup}{number}").into();
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "x/v1", "kind": markup, "name": markup, "controller": true}]);
        pods.push(pod);
    }
    let cluster = FakeCluster::default()
        .with(PODS, pods.into())
        .with(NODES, json!([node(markup, "arm64")]))
        .with(NAMESPACES, json!([]))
        .serve()
        .await;
    let html = report(&cli, &cluster, &["-o", "html"]).await.stdout;
    assert_eq!(html.matches("<script").count(), 1, "{html}");
    assert_eq!(html.matches("</script").count(), 1, "{html}");
    assert!(
        !html.contains("<img") && !html.contains('\u{1b}') && !html.contains('\u{202e}'),
        "{html}"
    );
    assert!(
        html.contains("&lt;img src=x onerror=alert(1)&gt;"),
        "{html}"
    );
    assert!(
        html.contains("Content-Security-Policy") && !html.contains("://"),
        "{html}"
    );
    for tag in html.split('<').map(|text| text.split('>').next().unwrap()) {
        assert!(!tag.contains("alert"), "{tag}");
    }
    let markdown = report(&cli, &cluster, &["-o", "markdown"]).await.stdout;
    assert!(
        markdown.contains("`</script><script>alert(1)"),
        "{markdown}"
    );
    for line in markdown.lines() {
        // Every second piece is a code span, because backticks in names are escaped.
        let pieces: Vec<&str> = line.split('`').collect();
        assert!(pieces.len() % 2 == 1, "{line}");
        for text in pieces.iter().step_by(2) {
            let has_name = text.contains("alert") || text.contains("img") || text.contains('&');
            assert!(!has_name, "{line}");
        }
        for span in pieces.iter().skip(1).step_by(2) {
            assert!(!span.contains('|'), "{line}");
        }
    }
    let table = report(&cli, &cluster, &[]).await.stdout;
    assert!(
        !table.contains('\u{1b}') && !table.contains('\u{202e}') && !table.contains("\n# x"),
        "{table}"
    );
    let json = json_of(&cli, &cluster, &[]).await;
    assert_eq!(json["workloads"][0]["name"], markup);
}

/// Returns the texts between `begin` and `end`.
fn between<'h>(html: &'h str, begin: &str, end: &str) -> Vec<&'h str> {
    let pieces = html.split(begin).skip(1);
    pieces
        .map(|piece| piece.split(end).next().unwrap())
        .collect()
}

#[tokio::test]
async fn page_is_readable_without_its_script() {
    let cli = CommandLine::new(json!({})).await;
    let cluster = shop(&cli).serve().await;
    let html = report(&cli, &cluster, &["-o", "html"]).await.stdout;
    let (content, _) = html.split_once("<script>").unwrap();
    for control in ["<button", "<input", "onclick", " style="] {
        assert!(!content.contains(control), "{control} in {content}");
    }
    assert!(content.contains("<html lang=\"en\">"), "{content}");
    assert!(
        content.contains("<title>tolerarch report: All namespaces, 9 Pods, 20"),
        "{content}"
    );
    let count = |element: &str| content.matches(element).count();
    assert_eq!((count("<h1"), count("<main "), count("<h3")), (1, 1, 0));
    assert_eq!(count("<table"), count("<h2 "), "{content}");
    let ids = between(content, " id=\"", "\"");
    let unique: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(unique.len(), ids.len(), "{ids:?}");
    for reference in ["href=\"#", "aria-labelledby=\""] {
        for id in between(content, reference, "\"") {
            assert!(unique.contains(id), "{id} in {ids:?}");
        }
    }
    for table in between(content, "<table", "</table>") {
        let (head, body) = table.split_once("<tbody>").unwrap();
        assert!(head.contains(" aria-labelledby="), "{head}");
        let columns = head.matches("<th scope=\"col\"").count();
        assert_eq!(head.matches("<th ").count(), columns, "{head}");
        for row in between(body, "<tr>", "</tr>") {
            assert_eq!(row.matches("<td").count(), columns, "{row}");
        }
    }
}

#[tokio::test]
async fn page_allows_only_its_own_script_and_style() {
    let cli = CommandLine::new(json!({})).await;
    let cluster = shop(&cli).serve().await;
    let html = report(&cli, &cluster, &["-o", "html"]).await.stdout;
    let hash_of = |element: &str| {
        let contents = between(&html, &format!("<{element}>"), &format!("</{element}>"));
        assert_eq!(contents.len(), 1, "{element}");
        BASE64_STANDARD.encode(digest(&SHA256, contents[0].as_bytes()))
    };
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'",
        hash_of("style"),
        hash_of("script")
    );
    let policies = between(&html, "Content-Security-Policy\" content=\"", "\"");
    assert_eq!(policies, [policy.as_str()]);
}
