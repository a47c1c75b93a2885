//! Docker's `config.json` and the older `.dockercfg`, as kubelet reads them (pkg/credentialprovider/config.go).

use std::collections::BTreeMap;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::MapAccess;
use zeroize::Zeroizing;

use super::candidate::CredentialCandidate;
use super::credential::{Credential, Sensitive};
use super::pattern::{DockerKeyring, keyring};
use tolerarch_text::json::go::{self, Go, GoStruct, GoValue};

/// Base64 as Go decodes it, with padding or without.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Docker's configuration.
#[derive(Default)]
pub(super) struct DockerConfig {
    auths: Entries,
    /// Helper programs of single registries.
    pub(super) helpers: BTreeMap<String, String>,
    /// Helper program of all other registries.
    pub(super) store: String,
}

type Entries = BTreeMap<String, Go<Entry>>;

impl GoStruct for DockerConfig {
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        value: GoValue<'_, A>,
    ) -> Result<(), A::Error> {
        match name {
            "auths" => value.extend(&mut self.auths),
            "credhelpers" => value.extend_if_valid(&mut self.helpers),
            "credsstore" => value.read_if_valid(&mut self.store),
            _ => value.skip(),
        }
    }
}

#[derive(Default)]
struct Entry {
    username: String,
    password: Sensitive,
    auth: Sensitive,
    identity_token: Sensitive,
    registry_token: Sensitive,
}

/// The two tokens are docker's. Kubelet ignores them, so they may have any type.
impl GoStruct for Entry {
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        value: GoValue<'_, A>,
    ) -> Result<(), A::Error> {
        match name {
            "username" => value.read(&mut self.username),
            "password" => value.read(&mut self.password),
            "auth" => value.read(&mut self.auth),
            "identitytoken" => value.read_if_valid(&mut self.identity_token),
            "registrytoken" => value.read_if_valid(&mut self.registry_token),
            _ => value.skip(),
        }
    }
}

/// Content of a file, and counts of its entries.
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
        go::read(json).map_err(|error| describe(&error))
    }

    /// Parses a `.dockercfg`, which is the `auths` alone.
    pub(super) fn parse_older(json: &[u8]) -> Result<Self, String> {
        let auths = go::read_map(json).map_err(|error| describe(&error))?;
        Ok(Self {
            auths,
            ..Self::default()
        })
    }

    /// Reads the entries, and makes a candidate from each credential.
    pub(super) fn read(self, candidate: impl Fn(Credential) -> CredentialCandidate) -> Read {
        let mut read = Read {
            entries: self.auths.len(),
            ..Read::default()
        };
        for (key, Go(entry)) in self.auths {
            let Some(credentials) = entry.credentials() else {
                read.malformed += 1;
                continue;
            };
            let mut entries = Vec::with_capacity(credentials.len());
            for credential in credentials {
                entries.push((&key, candidate(credential)));
            }
            read.keyring.extend(keyring(entries));
        }
        read
    }
}

/// Returns where a document is malformed. The parser's own message quotes the document, so it is left out.
fn describe(error: &serde_json::Error) -> String {
    format!(
        "not JSON of docker's form, at line {}, column {}",
        error.line(),
        error.column()
    )
}

impl Entry {
    /// Returns the tokens first, as docker prefers them, then the password, kubelet's only kind. `None` if `auth` is
    /// malformed.
    fn credentials(self) -> Option<Vec<Credential>> {
        let is_given = |secret: &Sensitive| !secret.reveal().is_empty();
        let (user, password) = if is_given(&self.auth) {
            decode(self.auth.reveal())?
        } else {
            (self.username, self.password)
        };
        let mut all = Vec::new();
        if is_given(&self.registry_token) {
            all.push(Credential::Bearer(self.registry_token));
        }
        if is_given(&self.identity_token) {
            all.push(Credential::Identity(self.identity_token));
        }
        let is_user_alone = all.is_empty() && !user.is_empty();
        if is_given(&password) || is_user_alone {
            all.push(Credential::Basic { user, password });
        }
        Some(all)
    }
}

/// Decodes `base64(user:password)`.
fn decode(auth: &str) -> Option<(String, Sensitive)> {
    let mut packed = Zeroizing::new(auth.to_owned());
    // Go skips line breaks.
    packed.retain(|c| !c.is_ascii_whitespace());
    let bytes = Zeroizing::new(BASE64.decode(packed.as_bytes()).ok()?);
    let text = std::str::from_utf8(&bytes).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned().into()))
}

#[cfg(test)]
mod tests;
