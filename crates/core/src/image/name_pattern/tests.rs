use super::*;
use proptest::prelude::*;

#[test]
fn pattern_covers_matching_names_and_all_below_them() {
    for (pattern, covered, not_covered) in [
        (
            "ghcr.io",
            &["ghcr.io/x", "GHCR.io/x/y", "ghcr.io:443/x"][..],
            &["xghcr.io/x", "ghcr.io:5000/x"][..],
        ),
        ("a.b:5000", &["a.b:5000/x"], &["a.b/x", "a.b:500/x"]),
        ("a.b:*", &["a.b:5000/x", "a.b:1/x"], &["a.b/x"]),
        (
            "*.example.com",
            &["r.example.com/x", "a.b.example.com/x"],
            &["example.com/x", "r.example.com.evil.net/x"],
        ),
        ("*", &["nginx", "a.b:5/x/y"], &[]),
        ("**", &["nginx", "a.b:5/x/y"], &[]),
        (
            "docker.io/library",
            &["nginx", "docker.io/library/nginx:1"],
            &["grafana/grafana", "docker.io/libraryx/y"],
        ),
        (
            "docker.io/library/nginx",
            &[
                "nginx",
                "index.docker.io/nginx",
                "registry-1.docker.io/library/nginx",
            ],
            &["nginx2", "x/nginx"],
        ),
        ("index.docker.io/grafana", &["grafana/grafana"], &["nginx"]),
        (
            "https://index.docker.io/v1/",
            &[
                "nginx",
                "INDEX.docker.io/library/nginx",
                "Docker.io/nginx",
                "registry-1.Docker.io/x/y",
            ],
            &["ghcr.io/nginx"],
        ),
        ("h*", &["Host/x", "h.b/x"], &["nginx"]),
        (
            "ghcr.io/org/*-public",
            &["ghcr.io/org/x-public", "ghcr.io/org/x-public/y"],
            &["ghcr.io/org/a/x-public", "ghcr.io/org/public"],
        ),
        (
            "ghcr.io/**/app",
            &["ghcr.io/app", "ghcr.io/a/b/app", "ghcr.io/app/app/x"],
            &["ghcr.io/apps", "ghcr.io/a/b"],
        ),
        (
            "**/secret",
            &["a.b/secret", "a.b/x/secret/y", "secret"],
            &["a.b/secrets"],
        ),
        ("a.b/x**", &[], &[]),
        ("[::1]:5000", &["[::1]:5000/x"], &["[::2]:5000/x"]),
    ] {
        let Ok(read) = pattern.parse::<NamePattern>() else {
            assert!(covered.is_empty(), "{pattern}");
            continue;
        };
        assert_eq!(read.to_string().parse().as_ref(), Ok(&read), "{pattern}");
        for (names, expected) in [(covered, true), (not_covered, false)] {
            for name in names {
                assert_eq!(
                    read.covers(&name.parse().unwrap()),
                    expected,
                    "{pattern} and {name}"
                );
            }
        }
    }
}

#[test]
fn pattern_that_matches_no_image_is_refused() {
    use ParsePatternError::{Host, Part};
    for (text, error) in [
        ("nginx", Host),
        ("library/nginx", Host),
        ("", Host),
        ("https://a.b", Host),
        ("a.b/", Part),
        ("a.b//x", Part),
        ("a.b/X", Part),
        ("a.b/x:1", Part),
        ("a.b/x@sha256", Part),
        ("a.b/x**y", Part),
        ("a.b/x y", Part),
    ] {
        let read = text.parse::<NamePattern>();
        // "https:" of a URL looks like a host with a port, but the second part of the URL is empty.
        let error = if text.starts_with("https") {
            Part
        } else {
            error
        };
        assert_eq!(read, Err(error), "{text}");
    }
}

/// The definition of a match, by recursion.
fn slow(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|skipped| slow(rest, &text[skipped..])),
        ([p, pattern @ ..], [t, text @ ..]) => p == t && slow(pattern, text),
        _ => false,
    }
}

proptest! {
    #[test]
    fn matches_agree_with_the_definition(pattern in "[ab*]{0,8}", text in "[ab]{0,8}") {
        let fast = glob_matches(pattern.bytes(), text.bytes(), |b| b == b'*', |b, c| b == c);
        prop_assert_eq!(fast, slow(pattern.as_bytes(), text.as_bytes()));
    }
}
