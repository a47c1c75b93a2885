//! The same cases through kubelet's keyring and through ours: `e2e/upstream`.

use serde::Deserialize;

use super::super::docker::DockerConfig;
use super::super::{Credential, CredentialCandidate, ImagePattern, pattern};
use ::upstream::assert_agreement;

#[derive(Deserialize)]
struct Pattern {
    pattern: String,
    image: String,
    #[serde(default)]
    matches: bool,
}

/// Escapes and queries, which Go's parser of URLs decodes and which match nothing here.
fn is_meant_otherwise(pattern: &str) -> bool {
    pattern.contains(['%', '?'])
}

/// Kubelet distinguishes hosts by case; here they are one registry, so more keys match.
fn has_capitals(name: &str) -> bool {
    name.contains(|c: char| c.is_ascii_uppercase())
}

#[test]
fn patterns_mean_the_images_that_kubelet_means() {
    let cases =
        ::upstream::cases("patterns").into_iter().filter(|case: &Pattern| !is_meant_otherwise(&case.pattern));
    assert_agreement(cases.map(|Pattern { pattern, image, matches }| {
        let ours = pattern.parse::<ImagePattern>().is_ok_and(|parsed| parsed.matches(&normal(&image)));
        let only_ours = ours && (has_capitals(&pattern) || has_capitals(&image));
        (format!("{pattern:?} for {image}"), ours, matches || only_ours)
    }));
}

/// Returns an image's name, or a mere host, as `ImageRef` has it.
fn normal(name: &str) -> String {
    let (host, path) = name.split_at(name.find('/').unwrap_or(name.len()));
    host.to_ascii_lowercase() + path
}

#[derive(Deserialize)]
struct Keyring {
    configs: Vec<String>,
    image: String,
    #[serde(default)]
    found: Vec<String>,
    /// True if kubelet refuses one of the configurations, and the Pod with it.
    #[serde(default)]
    refused: bool,
}

/// Returns whether a key is as in `is_meant_otherwise`, or has text that is no Unicode, which Go replaces.
fn is_meant_otherwise_in(config: &str) -> bool {
    ["%", "\\ud800"].iter().any(|text| config.contains(text))
}

#[test]
fn keyrings_give_what_kubelet_tries() {
    let differs = |config: &String| is_meant_otherwise_in(config);
    // Nothing works on a node that refuses a secret, so the keyring's result for it does not matter.
    let cases = ::upstream::cases("keyrings")
        .into_iter()
        .filter(|case: &Keyring| !case.refused && !case.configs.iter().any(differs));
    assert_agreement(cases.map(|Keyring { configs, image, found, .. }| {
        let mut ours = ours(&configs, &normal(&image));
        // No HTTP client can send text that is not Unicode, and Go replaces it.
        let mut found: Vec<_> = found.into_iter().filter(|found| !found.contains('\u{fffd}')).collect();
        if HOSTS_IN_CAPITALS
            .iter()
            .any(|host| image.contains(host) || configs.iter().any(|own| own.contains(host)))
        {
            ours.retain(|ours| found.contains(ours));
            // Kubelet's order of keys that differ in capitals only is not ours.
            ours.sort();
            found.sort();
        }
        (format!("{image} of {configs:?}"), ours, found)
    }));
}

const HOSTS_IN_CAPITALS: [&str; 4] = ["Mixed.Case.com", ".Case.com", "Quay.io", "QUAY.io"];

fn ours(configs: &[String], image: &str) -> Vec<String> {
    let read =
        |config: &String| DockerConfig::parse(config.as_bytes()).unwrap().read(CredentialCandidate::pod);
    let configs: Vec<_> = configs.iter().map(read).collect();
    let found = pattern::lookup(configs.iter().map(|read| &read.keyring), image);
    let words = found.into_iter().filter_map(|kept| match kept.held_credential()?? {
        Credential::Basic { user, password } => Some(format!("{user}:{}", password.reveal())),
        // Docker's own, which kubelet does not know.
        _ => None,
    });
    words.collect()
}
