//! Lists of tags: pages, bounds, and misleading answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use testregistry::Request;
use tokio::time::Instant;

use super::endpoints::client_of;
use super::*;
use crate::registry::tags::TagList;

/// Returns an image of the repository whose tags are listed.
fn image(repo: &Repo) -> ImageRef {
    repo.reference("v1").parse().unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

async fn list(remote: &Remote, repo: &Repo) -> Result<TagList, Error> {
    client(remote).0.list(&image(repo), None, soon()).await
}

/// Makes an answer with these tags and a link.
fn page(tags: &[&str], link: &str) -> Fault {
    let reply = Reply::new(200).json(&json!({"name": "x", "tags": tags}));
    Fault::reply(reply.header("Link", link)).only_tags()
}

fn names(list: &TagList) -> Vec<&str> {
    list.tags.iter().map(|tag| &**tag).collect()
}

fn queries(repo: &Repo) -> Vec<String> {
    let requests = repo.requests().into_iter();
    requests.map(|request| request.query).collect()
}

#[tokio::test]
async fn pages_of_tags_are_joined() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let all: Vec<String> = (0..2345).map(|number| format!("v{number:04}")).collect();
    for tag in &all {
        repo.tag(tag, "sha256:none");
    }
    let tags = list(&remote, &repo).await.unwrap();
    assert_eq!(names(&tags), all);
    assert!(tags.is_complete && tags.failure.is_none());
    assert_eq!(
        queries(&repo),
        ["n=1000", "last=v0999&n=1000", "last=v1999&n=1000"]
    );
    for request in repo.requests() {
        assert_eq!(request.path, "/v2/team/app/tags/list");
        assert_eq!(request.accept.as_deref(), Some("application/json"));
    }
}

#[tokio::test]
async fn list_of_an_empty_repository_is_complete() {
    let remote = Remote::start().await;
    for (name, body) in [
        ("null", r#"{"name":"x","tags":null}"#),
        ("none", "{}"),
        ("empty", r#"{"tags":[]}"#),
    ] {
        let repo = remote.repo(name);
        repo.fault(Some(Fault::body(body, "text/plain")));
        let tags = list(&remote, &repo).await.unwrap();
        assert!(tags.tags.is_empty() && tags.is_complete, "{name}");
    }
}

#[tokio::test]
async fn links_stay_at_the_same_host_and_repository() {
    let remote = Remote::start().await;
    let other = Remote::start().await;
    let (repo, others) = (remote.repo("team/app"), other.repo("team/app"));
    others.tag("stolen", "sha256:none");
    let link = format!(
        "<{}/v2/other/app/tags/list?next_page=a%3D&n=5>; rel=\"next\"",
        other.url()
    );
    let first = page(&["v1"], &link).first(1);
    repo.fault(Some(first));
    repo.tag("v2", "sha256:none");
    let tags = list(&remote, &repo).await.unwrap();
    assert_eq!(names(&tags), ["v1", "v2"]);
    assert_eq!(queries(&repo), ["n=1000", "next_page=a%3D&n=5"]);
    assert!(other.requests().is_empty());
}

/// Makes answers by the number of the page, counted from 0.
fn pages(answer: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Fault {
    let count = Arc::new(AtomicUsize::new(0));
    Fault::custom(move |_: &Request| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        Some(Fault::reply(answer(number)))
    })
}

#[tokio::test]
async fn endless_links_end() {
    let remote = Remote::start().await;
    let next = |number: usize| format!("<?page={number}>; rel=next");
    let circle = remote.repo("circle");
    circle.fault(Some(page(&["v1", "v2"], "<?n=1000>; rel=next")));
    let endless = remote.repo("endless");
    endless.fault(Some(pages(move |number| {
        let tags = [format!("v{number}")];
        Reply::new(200)
            .json(&json!({"tags": tags}))
            .header("Link", &next(number))
    })));
    let empty = remote.repo("empty");
    empty.fault(Some(pages(move |number| {
        Reply::new(200)
            .json(&json!({"tags": []}))
            .header("Link", &next(number))
    })));
    for (repo, requests, tags) in [(circle, 2, 2), (endless, 50, 50), (empty, 1, 0)] {
        let list = list(&remote, &repo).await.unwrap();
        assert_eq!(list.tags.len(), tags, "{}", repo.name());
        assert!(!list.is_complete, "{}", repo.name());
        assert_eq!(repo.requests().len(), requests, "{}", repo.name());
    }
}

#[tokio::test]
async fn list_of_tags_is_bounded() {
    let remote = Remote::start().await;
    let many = remote.repo("many");
    let tags: Vec<String> = (0..20_001).map(|number| number.to_string()).collect();
    many.fault(Some(Fault::body(
        json!({"tags": tags}).to_string(),
        "application/json",
    )));
    let exact = remote.repo("exact");
    exact.fault(Some(Fault::body(
        json!({"tags": tags[1..]}).to_string(),
        "application/json",
    )));
    // One text is no tag, so all tags that are read fit.
    let mixed = remote.repo("mixed");
    let hostile: Vec<&str> = ["../x"]
        .into_iter()
        .chain(tags.iter().map(String::as_str))
        .collect();
    mixed.fault(Some(Fault::body(
        json!({"tags": hostile}).to_string(),
        "application/json",
    )));
    let long = remote.repo("long");
    let texts: Vec<String> = (0..9000).map(|number| format!("{number:0128}")).collect();
    long.fault(Some(Fault::body(
        json!({"tags": texts}).to_string(),
        "application/json",
    )));
    for (repo, expected, is_complete) in [
        (many, 20_000, false),
        (exact, 20_000, true),
        (mixed, 20_000, false),
        (long, 8192, false),
    ] {
        let list = list(&remote, &repo).await.unwrap();
        assert_eq!(list.tags.len(), expected, "{}", repo.name());
        assert_eq!(list.is_complete, is_complete, "{}", repo.name());
    }
    let huge = remote.repo("huge");
    huge.fault(Some(Fault::huge(1 << 30)));
    let error = list(&remote, &huge).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed: the registry's list of tags: larger than the limit"
    );
    assert!(huge.bytes_sent() < 40 << 20, "{}", huge.bytes_sent());
}

/// Google's registries send the digests and times of all manifests with the tags.
#[tokio::test]
async fn page_of_tags_may_be_larger_than_a_manifest() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let others = "x".repeat(RequestKind::Tags.limit() - 100);
    let document = json!({"manifest": others, "tags": ["v1", "v2"]});
    repo.fault(Some(Fault::body(document.to_string(), "application/json")));
    let tags = list(&remote, &repo).await.unwrap();
    assert_eq!(names(&tags), ["v1", "v2"]);
    assert!(tags.is_complete);
}

#[tokio::test]
async fn malformed_tags_and_documents_are_refused() {
    let remote = Remote::start().await;
    let repo = remote.repo("app");
    let long = "a".repeat(129);
    let hostile = [
        "v1",
        "_1.2-x",
        "",
        ".x",
        "-x",
        "a/b",
        "a:b",
        "a b",
        "a\nb",
        "\u{1b}[31m",
        "ä",
        "a@b",
        "%2e",
        &long,
        &long[1..],
        "v1",
    ];
    repo.fault(Some(page(&hostile, "none")));
    let tags = list(&remote, &repo).await.unwrap();
    assert_eq!(names(&tags), ["_1.2-x", &long[1..], "v1"]);
    assert!(tags.is_complete);
    for body in [
        "",
        "[]",
        "null",
        r#"{"tags":{}}"#,
        r#"{"tags":[1]}"#,
        r#"{"tags":["a"]"#,
        "<html>",
    ] {
        repo.fault(Some(Fault::body(body, "application/json")));
        let error = list(&remote, &repo).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed: the registry's list of tags is not JSON",
            "{body}"
        );
    }
}

#[tokio::test]
async fn failed_page_keeps_the_pages_before_it() {
    let remote = Remote::start().await;
    for (status, word) in [
        (401, "denied"),
        (403, "denied"),
        (404, "not-found"),
        (429, "throttled"),
        (500, "unreachable"),
        (405, "unexpected"),
    ] {
        let repo = remote.repo(&format!("first/{status}"));
        repo.fault(Some(Fault::status(status)));
        let error = list(&remote, &repo).await.unwrap_err();
        assert_eq!(super::word(&error), word, "{status}");
        let repo = remote.repo(&format!("second/{status}"));
        repo.fault(Some(pages(move |number| match number {
            0 => Reply::new(200)
                .json(&json!({"tags": ["v1"]}))
                .header("Link", "<?last=v1>; rel=next"),
            _ => Reply::error(status, "X"),
        })));
        let tags = list(&remote, &repo).await.unwrap();
        assert_eq!(names(&tags), ["v1"]);
        assert!(!tags.is_complete);
        assert_eq!(super::word(&tags.failure.unwrap()), word, "{status}");
        assert_eq!(repo.requests().len(), 2, "{status}");
    }
}

#[tokio::test]
async fn refused_page_size_is_left_out() {
    let remote = Remote::start().await;
    let repo = remote.repo("app");
    repo.tag("v1", "sha256:none");
    let maxtags = Fault::custom(|request| {
        (request.query_value("n").as_deref() == Some("1000")).then(|| Fault::status(400))
    });
    repo.fault(Some(maxtags));
    let tags = list(&remote, &repo).await.unwrap();
    assert_eq!(names(&tags), ["v1"]);
    assert!(tags.is_complete);
    assert_eq!(queries(&repo), ["n=1000", ""]);
}

#[tokio::test]
async fn pages_before_the_deadline_are_kept() {
    let remote = Remote::start().await;
    let repo = remote.repo("app");
    let begins = Arc::new(AtomicUsize::new(0));
    repo.fault(Some(Fault::custom(move |_| {
        match begins.fetch_add(1, Ordering::SeqCst) {
            0 => Some(page(&["v1"], "<?last=v1>; rel=next")),
            _ => Some(Fault::hang()),
        }
    })));
    let deadline = Instant::now() + Duration::from_millis(500);
    let (registry, _dir) = client(&remote);
    let tags = registry.list(&image(&repo), None, deadline).await.unwrap();
    assert_eq!(names(&tags), ["v1"]);
    assert_eq!(super::word(&tags.failure.unwrap()), "timeout");
    let past = registry.list(&image(&repo), None, Instant::now()).await;
    assert_eq!(super::word(&past.unwrap_err()), "timeout");
}

#[tokio::test]
async fn list_of_tags_uses_credentials() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    repo.tag("v1", "sha256:none");
    repo.require(Auth::bearer().credentials("ci", "secret"));
    let (registry, _dir) = client(&remote);
    let refused = registry.list(&image(&repo), None, soon()).await;
    assert_eq!(super::word(&refused.unwrap_err()), "denied");
    let credential = Credential::Basic {
        user: "ci".to_owned(),
        password: "secret".to_owned().into(),
    };
    let tags = registry
        .list(&image(&repo), Some(&credential), soon())
        .await
        .unwrap();
    assert_eq!(names(&tags), ["v1"]);
}

/// A mirror's position in a list has no meaning at the registry, and another mirror may have other tags.
#[tokio::test]
async fn all_pages_come_from_the_endpoint_of_the_first() {
    let mirror = Remote::start().await;
    let remote = Remote::builder().pki(mirror.pki()).start().await;
    let at_registry = remote.repo("team/app");
    let at_mirror = mirror.repo("team/app");
    at_registry.tag("v9", "sha256:none");
    let (client, _dir) = client_of(&remote.address(), &[&mirror.address()], &[&remote, &mirror]);
    at_mirror.fault(Some(pages(|number| match number {
        0 => Reply::new(200).json(&json!({"tags": ["v1"]})).header(
            "Link",
            "</v2/x/tags/list?ns=internal.test&last=v1>; rel=next",
        ),
        _ => Reply::error(500, "X"),
    })));
    let tags = client
        .list(&image(&at_registry), None, soon())
        .await
        .unwrap();
    assert_eq!(names(&tags), ["v1"]);
    assert_eq!(super::word(&tags.failure.unwrap()), "unreachable");
    let namespace = format!("ns={}", remote.address().replace(':', "%3A"));
    let expected = [
        format!("{namespace}&n=1000"),
        format!("{namespace}&last=v1"),
    ];
    assert_eq!(queries(&at_mirror), expected);
    assert!(remote.requests().is_empty());
    // If a mirror has no first page, the registry serves the list.
    at_mirror.fault(Some(Fault::status(404)));
    let tags = client
        .list(&image(&at_registry), None, soon())
        .await
        .unwrap();
    assert_eq!(names(&tags), ["v9"]);
    assert!(tags.is_complete);
}

#[tokio::test]
async fn tags_of_a_denied_registry_are_not_requested() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let allowed = AllowedImages {
        deny: vec![remote.address().parse().unwrap()],
        ..AllowedImages::default()
    };
    let (registry, _dir) = client(&remote);
    let registry = Registry {
        allowed,
        ..registry
    };
    let error = registry
        .list(&image(&repo), None, soon())
        .await
        .unwrap_err();
    assert_eq!(super::word(&error), "not-allowed");
    let guard = AddressGuard::default();
    let (registry, _dir) = client_with(&remote, guard);
    let error = registry
        .list(&image(&repo), None, soon())
        .await
        .unwrap_err();
    assert_eq!(super::word(&error), "address-not-allowed");
    assert!(remote.requests().is_empty());
}

/// As with a custom domain in front of another registry.
#[tokio::test]
async fn redirected_list_gets_no_password_and_an_anonymous_token() {
    let remote = Remote::start().await;
    let target = Remote::builder().pki(remote.pki()).start().await;
    let repo = remote.repo("team/app");
    let at_target = target.repo("moved/app");
    at_target.tag("v1", "sha256:none");
    at_target.require(Auth::bearer().or_anonymous());
    let to = format!("{}/v2/moved/app/tags/list?n=1000", target.url());
    repo.fault(Some(Fault::redirect(307, &to)));
    let credential = Credential::Basic {
        user: "ci".to_owned(),
        password: "secret".to_owned().into(),
    };
    let (client, _dir) = client_of(&remote.address(), &[], &[&remote, &target]);
    let tags = client
        .list(&image(&repo), Some(&credential), soon())
        .await
        .unwrap();
    assert_eq!(names(&tags), ["v1"]);
    for request in target.requests() {
        let authorization = request.authorization.unwrap_or_default();
        assert!(!authorization.starts_with("Basic"), "{authorization}");
    }
    // No digest verifies a list, whatever the query of its link contains, so it is never read without TLS.
    let plain = Remote::builder().plain_http().start().await;
    let (client, _dir) = client_of(&remote.address(), &[], &[&remote, &plain]);
    let to = format!("{}/v2/team/app/tags/list", plain.url());
    repo.fault(Some(pages(move |number| match number {
        0 => Reply::new(200)
            .json(&json!({"tags": ["v1"]}))
            .header("Link", "<?last=sha256:x>; rel=next"),
        _ => Reply::new(307).header("Location", &to),
    })));
    let tags = client.list(&image(&repo), None, soon()).await.unwrap();
    let error = tags.failure.unwrap();
    assert!(error.to_string().contains("without TLS"), "{error}");
    assert!(plain.requests().is_empty());
}
