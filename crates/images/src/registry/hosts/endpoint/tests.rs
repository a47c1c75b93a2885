use super::*;
use crate::registry::net::authority;

#[test]
fn parses_mirrors() {
    for (text, expected) in [
        ("cache.example.com", Some(("cache.example.com", ""))),
        (
            "Cache.example.com:5000",
            Some(("cache.example.com:5000", "")),
        ),
        ("https://cache.example.com", Some(("cache.example.com", ""))),
        (
            "https://cache.example.com:443/hub/",
            Some(("cache.example.com", "hub/")),
        ),
        (
            "cache.example.com/hub/x",
            Some(("cache.example.com", "hub/x/")),
        ),
        ("[::1]:5000", Some(("[::1]:5000", ""))),
        ("http://cache.example.com", None),
        ("ftp://cache.example.com", None),
        ("https://user:password@cache.example.com", None),
        ("https://cache.example.com/hub:1", None),
        ("https://cache.example.com/hub?x", None),
        ("https://cache.example.com/Hub", None),
        ("https://cache.example.com/../x", None),
        ("https://", None),
        ("cache", None),
        ("", None),
    ] {
        let read = text.parse::<Mirror>().ok();
        let expected = expected.map(|(host, prefix)| Mirror {
            authority: host.into(),
            prefix: prefix.into(),
        });
        assert_eq!(read, expected, "{text}");
    }
}

#[test]
fn endpoint_makes_the_url_of_an_image() {
    let url = |endpoint: &Endpoint, image: &str| {
        endpoint
            .url(&image.parse().unwrap(), "manifests/v1")
            .unwrap()
            .to_string()
    };
    let mirror = |text: &str| Endpoint::of_mirror(&text.parse().unwrap(), false).unwrap();
    let hub = Endpoint::at("docker.io", "", false).unwrap();
    assert_eq!(
        url(&hub, "nginx"),
        "https://registry-1.docker.io/v2/library/nginx/manifests/v1"
    );
    assert!(hub.is_registry_of(&"nginx".parse().unwrap()));
    let cache = mirror("https://cache.example.com/hub");
    assert_eq!(
        url(&cache, "nginx"),
        "https://cache.example.com/v2/hub/library/nginx/manifests/v1?ns=docker.io"
    );
    assert_eq!(
        cache.repository(&"nginx".parse().unwrap()).as_deref(),
        Some("hub/library/nginx")
    );
    assert!(!cache.is_registry_of(&"nginx".parse().unwrap()));
    let registry = Endpoint::at("a.b:5000", "", true).unwrap();
    assert_eq!(
        url(&registry, "a.b:5000/x"),
        "http://a.b:5000/v2/x/manifests/v1"
    );
    for (host, is_plain, expected) in [
        ("a.b:443", false, "https://a.b/v2/x/manifests/v1"),
        ("a.b:80", true, "http://a.b/v2/x/manifests/v1"),
        ("a.b:80", false, "https://a.b:80/v2/x/manifests/v1"),
        ("a.b:443", true, "http://a.b:443/v2/x/manifests/v1"),
    ] {
        let registry = Endpoint::at(host, "", is_plain).unwrap();
        assert_eq!(url(&registry, &format!("{host}/x")), expected);
    }
    assert!(
        !Endpoint::at("a.b", "", false)
            .unwrap()
            .is_registry_of(&"a.b:80/x".parse().unwrap())
    );
}

#[test]
fn tag_is_requested_where_it_can_be_resolved_and_pulled() {
    let image = "e.f/x".parse().unwrap();
    for (resolves, pulls, count_by_tag, count_by_digest) in [
        (true, true, 1, 1),
        (true, false, 0, 0),
        (false, true, 0, 1),
        (false, false, 0, 0),
    ] {
        let all = [Arc::new(Endpoint {
            resolves,
            pulls,
            ..Endpoint::at("a.b", "", false).unwrap()
        })];
        let count = |is_by_tag| in_order(all.to_vec(), &image, 0, is_by_tag).len();
        assert_eq!(count(true), count_by_tag, "{resolves} {pulls}");
        assert_eq!(count(false), count_by_digest, "{resolves} {pulls}");
    }
}

#[test]
fn only_urls_of_the_same_origin_are_at_an_endpoint() {
    let endpoint = Endpoint::at("a.b:5000", "", false).unwrap();
    for (url, expected) in [
        ("https://a.b:5000/token", true),
        ("http://a.b:5000/token", false),
        ("https://a.b/token", false),
        ("https://a.b.c:5000/", false),
    ] {
        assert_eq!(endpoint.is_at(&Url::parse(url).unwrap()), expected, "{url}");
    }
}

#[tokio::test(start_paused = true)]
async fn failing_mirror_is_tried_last() {
    let [a, b] =
        ["a.b", "c.d"].map(|text| Endpoint::of_mirror(&text.parse().unwrap(), false).unwrap());
    let registry = Endpoint::at("e.f", "", false).unwrap();
    let all = [Arc::new(a), Arc::new(b), Arc::new(registry)];
    let image = "e.f/x".parse().unwrap();
    let order = || -> Vec<String> {
        let all = in_order(all.to_vec(), &image, 0, true);
        all.iter()
            .map(|endpoint| authority(&endpoint.origin).to_owned())
            .collect()
    };
    assert_eq!(order(), ["a.b", "c.d", "e.f"]);
    all[0].health.failed(&image, 0, false);
    all[2].health.failed(&image, 0, false);
    assert_eq!(order(), ["c.d", "e.f", "a.b"]);
    tokio::time::advance(crate::registry::hosts::health::FAILING).await;
    assert_eq!(order(), ["a.b", "c.d", "e.f"]);
}
