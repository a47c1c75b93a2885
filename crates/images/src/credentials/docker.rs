//! Docker's `config.json` and the older `.dockercfg`, as kubelet reads them (pkg/credentialprovider/config.go).

use std::collections::BTreeMap;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

use super::candidate::CredentialCandidate;
use super::credential::{Credential, Sensitive};
use super::pattern::{DockerKeyring, keyring};
use tolerarch_text::json::Object;

/// Base64 as Go decodes it, with padding or without.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Docker's configuration. A member that is null counts as missing.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct DockerConfig {
    auths: Option<Entries>,
    /// Helper programs of single registries.
    #[serde(rename = "credHelpers", deserialize_with = "lenient")]
    pub(super) helpers: BTreeMap<String, String>,
    /// Helper program of all other registries.
    #[serde(rename = "credsStore", deserialize_with = "lenient")]
    pub(super) store: Option<String>,
}

type Entries = BTreeMap<String, Option<Object<Entry>>>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    username: Option<String>,
    password: Option<Sensitive>,
    auth: Option<Sensitive>,
    #[serde(rename = "identitytoken", deserialize_with = "lenient")]
    identity_token: Option<Sensitive>,
    #[serde(rename = "registrytoken", deserialize_with = "lenient")]
    registry_token: Option<Sensitive>,
}

/// Content of a file, and counts of what was left out.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) keyring: DockerKeyring<CredentialCandidate>,
    /// Number of entries in the file, valid or not.
    pub(super) entries: usize,
    /// Number of entries whose `auth` is malformed.
    pub(super) malformed: usize,
}

impl DockerConfig {
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        from_json::<Object<Self>>(json).map(|Object(config)| config)
    }

    /// Parses a `.dockercfg`, which is the `auths` alone.
    pub(super) fn parse_older(json: &[u8]) -> Result<Self, String> {
        Ok(Self { auths: from_json(json)?, ..Self::default() })
    }

    /// Reads the entries, and makes a candidate of each credential.
    pub(super) fn read(self, candidate: impl Fn(Credential) -> CredentialCandidate) -> Read {
        let auths = self.auths.unwrap_or_default();
        let mut read = Read { entries: auths.len(), ..Read::default() };
        for (key, entry) in auths {
            match entry.unwrap_or_default().0.credentials() {
                Some(own) => read.keyring.extend(keyring(own.into_iter().map(|own| (&key, candidate(own))))),
                None => read.malformed += 1,
            }
        }
        read
    }
}

/// Parses JSON. An error says where and never what, as a parser's words quote what it reads.
fn from_json<T: DeserializeOwned + Default>(json: &[u8]) -> Result<T, String> {
    let read = serde_json::from_slice::<Option<T>>(json).map_err(|error| {
        format!("not JSON of docker's form, at line {}, column {}", error.line(), error.column())
    });
    Ok(read?.unwrap_or_default())
}

/// Reads one of docker's members that kubelet ignores: a value of another type counts as missing.
fn lenient<'de, T: DeserializeOwned + Default, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

impl Entry {
    /// Returns tokens first, as docker prefers them, then a password, kubelet's only kind; `None` for a bad `auth`.
    fn credentials(self) -> Option<Vec<Credential>> {
        let given = |secret: Option<Sensitive>| secret.filter(|secret| !secret.reveal().is_empty());
        let (user, password) = match given(self.auth) {
            Some(auth) => decode(auth.reveal())?,
            None => (self.username.unwrap_or_default(), self.password.unwrap_or_default()),
        };
        let tokens = [
            given(self.registry_token).map(Credential::Bearer),
            given(self.identity_token).map(Credential::Identity),
        ];
        let mut all: Vec<Credential> = tokens.into_iter().flatten().collect();
        let has_password = !password.reveal().is_empty() || all.is_empty() && !user.is_empty();
        if has_password {
            all.push(Credential::Basic { user, password });
        }
        Some(all)
    }
}

/// Decodes `base64(user:password)`.
fn decode(auth: &str) -> Option<(String, Sensitive)> {
    // Go skips line breaks.
    let packed: Zeroizing<String> =
        auth.chars().filter(|c| !c.is_ascii_whitespace()).collect::<String>().into();
    let bytes = Zeroizing::new(BASE64.decode(packed.as_bytes()).ok()?);
    let (user, password) = std::str::from_utf8(&bytes).ok()?.split_once(':')?;
    Some((user.to_owned(), password.to_owned().into()))
}

#[cfg(test)]
mod tests;
