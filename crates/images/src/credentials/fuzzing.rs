//! Invariants of every docker configuration and every Secret.

use super::credential::Credential;
use super::docker::{DockerConfig, Read};
use super::pull_secrets::{self, ENTRIES, GLOB, KEY, WORD};

/// Checks that no secret of a configuration appears in its `Debug`.
pub fn docker(data: &[u8]) -> bool {
    let read =
        [DockerConfig::parse(data), DockerConfig::parse_older(data)].map(|read| read.map(DockerConfig::read));
    read.iter().flatten().for_each(shows_no_secret);
    read.iter().any(Result::is_ok)
}

/// Checks the same for a Secret, and its bounds: a Secret is a tenant's.
pub fn secret(data: &[u8]) -> bool {
    let Ok(secret) = serde_json::from_slice(data) else { return false };
    let Ok(read) = pull_secrets::content(secret) else { return false };
    shows_no_secret(&read);
    assert!(read.keyring.len() <= ENTRIES, "{}", read.keyring.len());
    assert!(read.keyring.iter().all(|(key, _)| key.glob().is_none_or(|host| host.len() <= GLOB)));
    for (key, held) in &read.keyring {
        assert!(key.as_str().len() <= KEY && held.credential.longest() <= WORD, "{key:?}");
    }
    true
}

fn shows_no_secret(read: &Read) {
    // `Debug` of some other credential.
    let usual = br#"{"a.b":{"auth":"YTpi","identitytoken":"x","registrytoken":"y"}}"#;
    let usual = format!("{:?}", DockerConfig::parse_older(usual).map(DockerConfig::read));
    let shown = format!("{read:?}");
    for (key, held) in &read.keyring {
        let (Credential::Basic { password: text, .. }
        | Credential::Identity(text)
        | Credential::Bearer(text)) = &*held.credential;
        let text = text.reveal();
        // Names of users and hosts are shown.
        let is_known = || {
            read.keyring.iter().any(|(key, held)| {
                let user = matches!(&*held.credential, Credential::Basic { user, .. } if user.contains(text));
                user || format!("{key:?}").contains(text)
            })
        };
        // A few characters may occur anywhere, in the id of a credential, too.
        if text.len() > 8 && !usual.contains(text) && !is_known() {
            assert!(!shown.contains(text), "{key:?}: {shown}");
        }
    }
}
