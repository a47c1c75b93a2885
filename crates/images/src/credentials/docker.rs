//! Docker's `config.json` and the older `.dockercfg`, as kubelet reads them (pkg/credentialprovider/config.go).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::credential::{Credential, IdentifiedCredential, Sensitive};
use super::docker_keyring::DockerKeyring;

/// As Go decodes it, with padding or without.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

#[derive(Default)]
pub(super) struct DockerConfig {
    auths: Entries,
    /// Helper programs of single registries.
    pub(super) helpers: BTreeMap<String, String>,
    /// The helper program of all others.
    pub(super) store: Option<String>,
}

type Entries = BTreeMap<String, Option<Entry>>;

#[derive(Default)]
struct Entry {
    username: String,
    password: Sensitive,
    auth: Sensitive,
    identity_token: Sensitive,
    registry_token: Sensitive,
}

/// What a file gives, and what was left out of it.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) keyring: DockerKeyring<IdentifiedCredential>,
    /// Those in the file, whatever is in them.
    pub(super) entries: usize,
    /// Entries whose `auth` is not what it should be.
    pub(super) malformed: usize,
}

/// Why a file is none. Says where and never what, as a parser's words quote what it reads.
fn not_docker(error: &serde_json::Error) -> String {
    format!("not JSON of docker's form, at line {}, column {}", error.line(), error.column())
}

impl DockerConfig {
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        let config: Option<Self> = serde_json::from_slice(json).map_err(|error| not_docker(&error))?;
        Ok(config.unwrap_or_default())
    }

    pub(super) fn read(self) -> Read {
        read(self.auths)
    }
}

pub(super) fn read_dockercfg(json: &[u8]) -> Result<Read, String> {
    let entries: Option<Entries> = serde_json::from_slice(json).map_err(|error| not_docker(&error))?;
    Ok(read(entries.unwrap_or_default()))
}

fn read(entries: Entries) -> Read {
    let mut malformed = 0;
    let mut credentials: Vec<(&str, IdentifiedCredential)> = Vec::new();
    for (key, entry) in &entries {
        match entry.as_ref().map_or(Some(Vec::new()), Entry::credentials) {
            Some(own) => credentials.extend(own.into_iter().map(|own| (key.as_str(), own.into()))),
            None => malformed += 1,
        }
    }
    Read { keyring: DockerKeyring::new(credentials), entries: entries.len(), malformed }
}

impl Entry {
    /// Tokens first, as docker prefers them; then a password, as kubelet knows nothing else. `None` if `auth` is malformed.
    fn credentials(&self) -> Option<Vec<Credential>> {
        let given = |secret: &Sensitive| (!secret.reveal().is_empty()).then(|| secret.clone());
        let (user, password) = match given(&self.auth) {
            Some(auth) => decode(auth.reveal())?,
            None => (self.username.clone(), self.password.clone()),
        };
        let tokens = [
            given(&self.registry_token).map(Credential::Bearer),
            given(&self.identity_token).map(Credential::Identity),
        ];
        let mut all: Vec<Credential> = tokens.into_iter().flatten().collect();
        let has_password = !password.reveal().is_empty() || all.is_empty() && !user.is_empty();
        if has_password {
            all.push(Credential::Basic { user, password });
        }
        Some(all)
    }
}

impl<'de> Deserialize<'de> for DockerConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(GoObject(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(GoObject(PhantomData))
    }
}

/// Reads an object as Go's encoding/json does: names in any case, of equal ones the last counts, and null changes nothing.
struct GoObject<T>(PhantomData<T>);

trait Members: Default {
    /// Takes the value of a member, whose name is in lower case.
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

impl<'de, T: Members> Visitor<'de> for GoObject<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut object = T::default();
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            object.member(&folded(&name), &mut map)?;
        }
        Ok(object)
    }
}

/// `foldName` of encoding/json: beside the capitals, two letters of Unicode are folded to ASCII.
fn folded(name: &str) -> String {
    let fold = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    name.chars().map(fold).collect()
}

impl Members for DockerConfig {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "auths" => match map.next_value::<Option<Entries>>()? {
                Some(more) => self.auths.extend(more),
                None => self.auths.clear(),
            },
            "credhelpers" => self.helpers = lenient(map)?,
            "credsstore" => self.store = lenient(map)?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl Members for Entry {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "username" => set(&mut self.username, map.next_value()?),
            "password" => set(&mut self.password, map.next_value()?),
            "auth" => set(&mut self.auth, map.next_value()?),
            "identitytoken" => self.identity_token = lenient(map)?,
            "registrytoken" => self.registry_token = lenient(map)?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

/// A value of docker's own, which kubelet ignores: one of another type is none.
fn lenient<'de, T: DeserializeOwned + Default, A: MapAccess<'de>>(map: &mut A) -> Result<T, A::Error> {
    let raw: &'de RawValue = map.next_value()?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

/// `base64(user:password)`.
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
