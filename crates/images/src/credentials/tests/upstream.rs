//! The same cases through kubelet's keyring and through ours: `e2e/conformance`.

use serde::Deserialize;

use super::super::docker::DockerConfig;
use super::super::helper::Helper;
use super::super::program::Protocol;
use super::super::{Credential, CredentialCandidate, ImagePattern, pattern, provider};
use super::{PROVIDERS, TestDir};
use ::conformance::assert_agreement;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

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
    let cases = ::conformance::cases("patterns")
        .into_iter()
        .filter(|case: &Pattern| !is_meant_otherwise(&case.pattern));
    assert_agreement(cases.map(
        |Pattern {
             pattern,
             image,
             matches,
         }| {
            let ours = pattern
                .parse::<ImagePattern>()
                .is_ok_and(|parsed| parsed.matches(&normal(&image)));
            let only_ours = ours && (has_capitals(&pattern) || has_capitals(&image));
            (
                format!("{pattern:?} for {image}"),
                ours,
                matches || only_ours,
            )
        },
    ));
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

/// Returns whether a key is as in `is_meant_otherwise`.
fn is_meant_otherwise_in(config: &str) -> bool {
    config.contains('%')
}

#[test]
fn keyrings_give_what_kubelet_tries() {
    let differs = |config: &String| is_meant_otherwise_in(config);
    // Nothing works on a node that refuses a secret, so the keyring's result for it does not matter.
    let cases = ::conformance::cases("keyrings")
        .into_iter()
        .filter(|case: &Keyring| !case.refused && !case.configs.iter().any(differs));
    assert_agreement(cases.map(
        |Keyring {
             configs,
             image,
             mut found,
             ..
         }| {
            // A password in base64 that is no UTF-8 reaches no runtime: CRI has texts.
            found.retain(|found| {
                !found.contains('\u{fffd}') || configs.iter().any(|own| own.contains("\\u"))
            });
            let mut ours = ours(&configs, &normal(&image));
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
        },
    ));
}

const HOSTS_IN_CAPITALS: [&str; 4] = ["Mixed.Case.com", ".Case.com", "Quay.io", "QUAY.io"];

fn ours(configs: &[String], image: &str) -> Vec<String> {
    let read = |config: &String| {
        DockerConfig::parse(config.as_bytes())
            .unwrap()
            .read(CredentialCandidate::pod)
    };
    let configs: Vec<_> = configs.iter().map(read).collect();
    let found = pattern::lookup(configs.iter().map(|read| &read.keyring), image);
    let words = found
        .into_iter()
        .filter_map(|kept| match kept.held_credential()?? {
            Credential::Basic { user, password } => Some(format!("{user}:{}", password.reveal())),
            // Docker's own, which kubelet does not know.
            _ => None,
        });
    words.collect()
}

/// A document with capitals, doubled members and wrong types.
#[derive(Deserialize)]
struct Document {
    kind: String,
    json: String,
    #[serde(default)]
    refused: bool,
    #[serde(default)]
    gives: Vec<String>,
}

/// Returns the documents of a kind, as text for people and as bytes, with what Go makes of them.
fn documents(kind: &str) -> impl Iterator<Item = (String, Vec<u8>, Option<Vec<String>>)> {
    let documents = ::conformance::cases("documents").into_iter();
    let of_kind = documents.filter(move |document: &Document| document.kind == kind);
    of_kind.map(|document| {
        let json = STANDARD.decode(document.json).unwrap();
        let theirs = (!document.refused).then_some(document.gives);
        (String::from_utf8_lossy(&json).into_owned(), json, theirs)
    })
}

fn words(credential: &Credential) -> Option<String> {
    match credential {
        Credential::Basic { user, password } => Some(format!("{user}:{}", password.reveal())),
        _ => None,
    }
}

#[test]
fn secrets_of_both_types_are_read_in_any_case() {
    for (kind, parse) in [
        (
            "dockerconfigjson",
            DockerConfig::parse as fn(&[u8]) -> Result<DockerConfig, String>,
        ),
        ("dockercfg", DockerConfig::parse_older),
    ] {
        // Here a faulty entry costs itself; on the node the Pod has no credential at all.
        let taken = documents(kind).filter_map(|(text, json, theirs)| Some((text, json, theirs?)));
        assert_agreement(taken.map(|(text, json, theirs)| {
            let read = parse(&json).map(|config| config.read(CredentialCandidate::pod));
            let keyring = read.as_ref().map(|read| &read.keyring);
            let found = pattern::lookup(keyring.into_iter(), "quay.io/team/app");
            let ours = found
                .into_iter()
                .filter_map(|kept| words(kept.held_credential()??))
                .collect();
            (text, ours, theirs)
        }));
    }
}

#[test]
fn members_that_only_docker_knows_are_read_as_docker_does() {
    let taken = documents("docker").filter_map(|(text, json, theirs)| Some((text, json, theirs?)));
    assert_agreement(taken.map(|(text, json, mut theirs)| {
        // An empty one is as good as none.
        theirs.retain(|given| !given.ends_with('='));
        let config = DockerConfig::parse(&json).unwrap();
        let mut ours = Vec::new();
        let store =
            Some(format!("credsStore={}", config.store)).filter(|_| !config.store.is_empty());
        let helpers: Vec<_> = config
            .helpers
            .iter()
            .map(|(host, helper)| format!("{host}={helper}"))
            .collect();
        let read = config.read(CredentialCandidate::pod);
        for kept in pattern::lookup(std::iter::once(&read.keyring), "quay.io") {
            match kept.held_credential().flatten() {
                Some(Credential::Bearer(token)) => {
                    ours.push(format!("registrytoken={}", token.reveal()));
                }
                Some(Credential::Identity(token)) => {
                    ours.push(format!("identitytoken={}", token.reveal()));
                }
                _ => {}
            }
        }
        ours.extend(store);
        ours.extend(helpers.into_iter().filter(|helper| !helper.ends_with('=')));
        (text, ours, theirs)
    }));
}

#[test]
fn answers_of_helpers_are_read_as_docker_reads_them() {
    let dir = TestDir::new();
    dir.program("docker-credential-test", "");
    let helper = Helper::new("test", Some(dir.root().as_os_str())).unwrap();
    // Without a secret there is nothing to present.
    let documents = documents("helper").filter(|(_, _, theirs)| {
        theirs
            .as_ref()
            .is_none_or(|given| given.iter().all(|words| !words.ends_with(':')))
    });
    assert_agreement(documents.map(|(text, json, theirs)| {
        let response = helper.response("quay.io", Ok(json.into()));
        let ours = response.ok().map(|response| {
            response
                .keyring
                .iter()
                .filter_map(|(_, credential)| words(credential))
                .collect::<Vec<_>>()
        });
        (text, ours, theirs)
    }));
}

#[test]
fn plugins_answers_are_read_as_strictly_as_by_kubelet() {
    let dir = TestDir::new();
    dir.program("bin/plugin", "");
    let mut plugins = provider::read(PROVIDERS, &dir.path("bin"), &[]).unwrap();
    let plugin = plugins.remove(0);
    assert_agreement(documents("plugin").map(|(text, json, theirs)| {
        let theirs = theirs.map(|mut given| {
            given.retain(|words| words.contains('='));
            given
        });
        let ours = plugin
            .response("quay.io/team/app", Ok(json.into()))
            .ok()
            .map(|response| {
                let credentials = response.keyring.iter();
                let words = credentials.filter_map(|(key, credential)| {
                    Some(format!("{}={}", key.as_str(), words(credential)?))
                });
                words.collect::<Vec<_>>()
            });
        (text, ours, theirs)
    }));
}
