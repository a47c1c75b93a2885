//! Invariants of every docker configuration and every Secret.

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

/// Checks the same for a Secret, and its bounds: a Secret is a tenant's.
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
    for (key, held) in &read.keyring {
        assert!(
            key.as_str().len() <= KEY && held.longest() <= WORD,
            "{key:?}"
        );
    }
    true
}

fn read(config: DockerConfig) -> Read {
    config.read(CredentialCandidate::pod)
}

fn held(read: &Read) -> impl Iterator<Item = &Credential> {
    read.keyring
        .iter()
        .filter_map(|(_, candidate)| candidate.held_credential()?)
}

/// Renders what was read, and each credential.
fn shown(read: &Read) -> String {
    format!("{read:?} {:?}", held(read).collect::<Vec<_>>())
}

fn shows_no_secret(own: &Read) {
    // `Debug` of some other credential.
    let usual = br#"{"a.b":{"auth":"YTpi","identitytoken":"x","registrytoken":"y"}}"#;
    let usual = DockerConfig::parse_older(usual)
        .map(|config| shown(&read(config)))
        .unwrap_or_default();
    let shown = shown(own);
    for credential in held(own) {
        let (Credential::Basic { password: text, .. }
        | Credential::Identity(text)
        | Credential::Bearer(text)) = credential;
        let text = text.reveal();
        // Names of users and hosts are shown.
        let is_user = |other: &Credential| matches!(other, Credential::Basic { user, .. } if user.contains(text));
        let is_known = || {
            held(own).any(is_user)
                || own
                    .keyring
                    .iter()
                    .any(|(key, _)| format!("{key:?}").contains(text))
        };
        // A few characters may occur anywhere.
        if text.len() > 8 && !usual.contains(text) && !is_known() {
            assert!(!shown.contains(text), "{shown}");
        }
    }
}
