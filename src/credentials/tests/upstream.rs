//! The same cases through kubelet's keyring and through ours: `e2e/upstream`.

use serde::Deserialize;

use super::super::docker::DockerConfig;
use super::super::{Credential, ImagePattern, docker_keyring};
use crate::testing::{assert_agreement, upstream};

#[derive(Deserialize)]
struct Pattern {
    pattern: String,
    image: String,
    #[serde(default)]
    matches: bool,
}

#[test]
fn patterns_mean_the_images_that_kubelet_means() {
    // Being brought into line.
    let open = |case: &Pattern| case.pattern.contains(['%', '?', '[']);
    let cases = upstream("patterns").into_iter().filter(|case| !open(case));
    assert_agreement(cases.map(|Pattern { pattern, image, matches }| {
        let ours = pattern.parse::<ImagePattern>().is_ok_and(|pattern| pattern.matches(&image));
        (format!("{pattern:?} for {image}"), ours, matches)
    }));
}

#[derive(Deserialize)]
struct Keyring {
    configs: Vec<String>,
    image: String,
    #[serde(default)]
    found: Vec<String>,
    /// Whether kubelet refuses one of the configurations, and the Pod with it.
    #[serde(default)]
    refused: bool,
}

#[test]
fn keyrings_give_what_kubelet_tries() {
    // Being brought into line.
    let open = |case: &Keyring| {
        case.configs.iter().any(|config| {
            let capitals = ["AUTH", "Auth", "User", "USER", "Pass"].iter().any(|key| config.contains(key));
            let globs = config.contains(['%', '[', '\\']);
            let twice = config.matches("\"auths\"").count() > 1 || config.matches("\"username\"").count() > 1;
            capitals
                || globs
                || twice
                || config == "null"
                || config.contains("identitytoken")
                || config.contains("credsStore")
        })
    };
    // Nothing works on a node that refuses a secret, so what is made of it here does not matter.
    let cases = upstream("keyrings").into_iter().filter(|case: &Keyring| !case.refused && !open(case));
    assert_agreement(cases.map(|Keyring { configs, image, found, .. }| {
        let ours = ours(&configs, &image);
        // No HTTP client can send what is not Unicode, and Go replaces it.
        let found: Vec<_> = found.into_iter().filter(|found| !found.contains('\u{fffd}')).collect();
        (format!("{image} of {configs:?}"), ours, found)
    }));
}

fn ours(configs: &[String], image: &str) -> Vec<String> {
    let configs: Vec<_> =
        configs.iter().map(|config| DockerConfig::parse(config.as_bytes()).unwrap().read()).collect();
    let found = docker_keyring::lookup(configs.iter().map(|read| ((), &read.keyring)), image);
    let words = found.into_iter().filter_map(|(_, _, kept)| match &*kept.credential {
        Credential::Basic { user, password } => Some(format!("{user}:{}", password.reveal())),
        // Docker's own, which kubelet does not know.
        _ => None,
    });
    words.collect()
}
