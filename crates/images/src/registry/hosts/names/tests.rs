use serde::Deserialize;

use super::*;
use ::conformance::assert_agreement;

#[derive(Deserialize)]
struct Case {
    rules: BTreeMap<String, String>,
    repository: String,
    /// The possible names, one for each rule that Go may apply first.
    names: Vec<String>,
}

fn names(rules: &[(&str, &str)]) -> Names {
    let rules = rules
        .iter()
        .map(|(pattern, template)| (pattern.to_string(), template.to_string()))
        .collect();
    Names::rewritten(Some(rules), "here".to_owned())
}

#[test]
fn rules_of_k3s_rewrite_names() {
    for (pattern, template, repository, expected) in [
        (
            "^rancher/(.*)",
            "mirror/rancher-images/$1",
            "rancher/pause",
            "mirror/rancher-images/pause",
        ),
        (
            "^library/alpine$",
            "my-org/alpine",
            "library/alpine",
            "my-org/alpine",
        ),
        (
            "^library/alpine$",
            "my-org/alpine",
            "library/alpine-glibc",
            "library/alpine-glibc",
        ),
        ("(.*)", "dockerhub/$1", "team/app", "dockerhub/team/app"),
        (
            "^(?:library|)(.*)",
            "rke-test/docker.io$1",
            "library/nginx",
            "rke-test/docker.io/nginx",
        ),
        ("^([^/]+)/(.+)$", "${2}/${1}", "team/app", "app/team"),
        ("a", "b", "a/ca/aa", "b/cb/bb"),
    ] {
        assert_eq!(
            names(&[(pattern, template)]).of(repository).as_deref(),
            Ok(expected),
            "{pattern}"
        );
    }
    let several = names(&[("^library/", "hub/"), ("^rancher/", "ranch/")]);
    assert_eq!(several.of("library/nginx").as_deref(), Ok("hub/nginx"));
    assert_eq!(several.of("rancher/pause").as_deref(), Ok("ranch/pause"));
    assert_eq!(several.of("team/app").as_deref(), Ok("team/app"));
}

#[test]
fn names_are_unclear_where_go_may_differ() {
    for rules in [
        &[("^library/", "hub/"), ("^library/nginx$", "web/nginx")][..],
        &[("(.*)", "/x/$1")],
        &[("(.*)", "X/$1")],
        &[("(.*)", "../$1")],
        &[("(.*)", "x/$1?y=$1")],
        &[("(.*)", "$1x")],
        &[("(.*)", "x/$01")],
        &[("(.*)", "x/$$1")],
        &[("(?i)(.*)", "x/$1")],
        &[("(.{2,})", "x/$1")],
        &[("(", "x")],
    ] {
        assert_eq!(names(rules).of("library/nginx"), Err("here"), "{rules:?}");
    }
    assert_eq!(
        Names::rewritten(None, "here".to_owned()).of("a"),
        Err("here")
    );
}

/// The same rules through Go's `regexp`: `e2e/conformance`. Unclear names are not compared.
#[test]
fn clear_names_equal_those_of_go() {
    let answers = ::conformance::cases("rewrites").into_iter().filter_map(
        |Case {
             rules,
             repository,
             names,
         }| {
            let text = format!("{repository} by {rules:?}");
            let ours = Names::rewritten(Some(rules), String::new())
                .of(&repository)
                .ok()?
                .into_owned();
            Some((text, vec![ours], names))
        },
    );
    let answers: Vec<_> = answers.collect();
    assert!(answers.len() > 300, "{}", answers.len());
    assert_agreement(answers);
}
