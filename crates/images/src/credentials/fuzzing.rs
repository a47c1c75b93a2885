//! Invariants that hold for every docker configuration and every Secret.

use super::candidate::CredentialCandidate;
use super::credential::Credential;
use super::docker::{DockerConfig, Read};
use super::pull_secrets::{self, ENTRIES, GLOB, KEY, WORD};

/// Checks that no secret of a configuration appears in its `Debug`.
pub fn docker(data: &[u8]) -> bool {
    let read =
        [DockerConfig::parse(data), DockerConfig::parse_older(data)].map(|config| config.map(read));
    read.iter().flatten().for_each(shows_no_secret);
    read.iter().any(Result::is_ok)
}

/// Checks the same for a Secret, and its limits: a Secret is a tenant's.
pub fn secret(data: &[u8]) -> bool {
    let Ok(secret) = serde_json::from_slice(data) else {
        return false;
    };
    let Ok(read) = pull_secrets::content(secret) else {
        return false;
    };
    shows_no_secret(&read);
    // Two tokens and a password.
    assert!(read.keyring.len() <= 3 * ENTRIES, "{}", read.keyring.len());
    assert!(
        read.keyring
            .iter()
            .all(|(key, _)| key.glob().is_none_or(|host| host.len() <= GLOB))
    );
    for (key, candidate) in &read.keyring {
        assert!(key.as_str().len() <= KEY, "{key:?}");
        assert!(candidate.longest() <= WORD, "{key:?}");
    }
    true
}

fn read(config: DockerConfig) -> Read {
    config.read(CredentialCandidate::pod)
}

fn credentials(read: &Read) -> impl Iterator<Item = &Credential> {
    read.keyring
        .iter()
        .filter_map(|(_, candidate)| candidate.held_credential()?)
}

/// Renders the `Debug` of a content, and of each credential.
fn debug(read: &Read) -> String {
    format!("{read:?} {:?}", credentials(read).collect::<Vec<_>>())
}

fn shows_no_secret(content: &Read) {
    let other = br#"{"a.b":{"auth":"YTpi","identitytoken":"x","registrytoken":"y"}}"#;
    let other_debug = match DockerConfig::parse_older(other) {
        Ok(config) => debug(&read(config)),
        Err(_) => String::new(),
    };
    let debug = debug(content);
    for credential in credentials(content) {
        let (Credential::Basic { password: text, .. }
        | Credential::Identity(text)
        | Credential::Bearer(text)) = credential;
        let text = text.reveal();
        // `Debug` contains the names of users and hosts.
        let is_user = |other: &Credential| matches!(other, Credential::Basic { user, .. } if user.contains(text));
        let is_host = || {
            let mut keys = content.keyring.iter().map(|(key, _)| format!("{key:?}"));
            keys.any(|key| key.contains(text))
        };
        // A short text, or one that is in the `Debug` of any credential, may occur without being revealed.
        if text.len() <= 8 || other_debug.contains(text) {
            continue;
        }
        if !credentials(content).any(is_user) && !is_host() {
            assert!(!debug.contains(text), "{debug}");
        }
    }
}
