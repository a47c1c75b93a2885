//! Docker's files: `config.json` (`{"auths": …}`) and the older `.dockercfg` (its `auths` alone), as kubelet reads them
//! (pkg/credentialprovider/config.go), and docker's tokens beside.

use std::collections::BTreeMap;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
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

/// A `config.json`.
#[derive(Deserialize)]
pub(super) struct DockerConfig {
    auths: Option<BTreeMap<String, Option<Entry>>>,
    /// Helper programs of single registries.
    #[serde(rename = "credHelpers")]
    pub(super) helpers: Option<BTreeMap<String, String>>,
    /// The helper program of all others.
    #[serde(rename = "credsStore")]
    pub(super) store: Option<String>,
}

#[derive(Deserialize)]
struct Entry {
    username: Option<String>,
    password: Option<Sensitive>,
    auth: Option<Sensitive>,
    identitytoken: Option<Sensitive>,
    registrytoken: Option<Sensitive>,
}

/// What a file gives, and what was left out of it.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) keyring: DockerKeyring<IdentifiedCredential>,
    /// Entries whose `auth` is not what it should be.
    pub(super) malformed: usize,
    pub(super) size: Size,
}

/// How large it is, for what bounds it.
#[derive(Debug, Default)]
pub(super) struct Size {
    pub(super) entries: usize,
    /// Bytes of the longest key, and of the longest user, password or token.
    pub(super) key: usize,
    pub(super) word: usize,
}

/// Why a file is none. Says where and never what, as a parser's words quote what it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not JSON of docker's form, at line {line}, column {column}")]
pub(super) struct NotDocker {
    line: usize,
    column: usize,
}

impl DockerConfig {
    pub(super) fn parse(json: &[u8]) -> Result<Self, NotDocker> {
        serde_json::from_slice(json).map_err(NotDocker::from)
    }

    /// The credentials in it.
    pub(super) fn read(self) -> Read {
        read(self.auths.unwrap_or_default())
    }
}

/// The credentials of a `.dockercfg`.
pub(super) fn read_dockercfg(json: &[u8]) -> Result<Read, NotDocker> {
    serde_json::from_slice(json).map(read).map_err(NotDocker::from)
}

impl From<serde_json::Error> for NotDocker {
    fn from(error: serde_json::Error) -> Self {
        Self { line: error.line(), column: error.column() }
    }
}

fn read(entries: BTreeMap<String, Option<Entry>>) -> Read {
    let mut malformed = 0;
    let mut size = Size { entries: entries.len(), ..Size::default() };
    let mut credentials: Vec<(&str, IdentifiedCredential)> = Vec::new();
    for (key, entry) in &entries {
        size.key = size.key.max(key.len());
        let Some(entry) = entry else { continue };
        match entry.credentials() {
            Some(own) => {
                size.word = own.iter().map(Credential::longest).fold(size.word, usize::max);
                credentials.extend(own.into_iter().map(|credential| (key.as_str(), credential.into())));
            }
            None => malformed += 1,
        }
    }
    Read { keyring: DockerKeyring::new(credentials), malformed, size }
}

impl Entry {
    /// What an entry gives: tokens first, as docker prefers them; a password where there is one, as kubelet knows nothing
    /// else. `None` where `auth` is malformed.
    fn credentials(&self) -> Option<Vec<Credential>> {
        let given = |secret: &Option<Sensitive>| secret.clone().filter(|secret| !secret.reveal().is_empty());
        let (user, password) = match given(&self.auth) {
            Some(auth) => decode(auth.reveal())?,
            None => (self.username.clone().unwrap_or_default(), self.password.clone().unwrap_or_default()),
        };
        let tokens = [
            given(&self.registrytoken).map(Credential::Bearer),
            given(&self.identitytoken).map(Credential::Identity),
        ];
        let mut all: Vec<Credential> = tokens.into_iter().flatten().collect();
        let has_password = !password.reveal().is_empty() || all.is_empty() && !user.is_empty();
        if has_password {
            all.push(Credential::Basic { user, password });
        }
        Some(all)
    }
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
mod tests {
    use super::super::docker_keyring::lookup;
    use super::*;

    fn basic(user: &str, password: &str) -> Credential {
        Credential::Basic { user: user.into(), password: password.to_owned().into() }
    }

    fn of(json: &str) -> (Vec<Credential>, usize) {
        let read = DockerConfig::parse(json.as_bytes()).unwrap().read();
        let found = lookup(std::iter::once(((), &read.keyring)), "a.b/x");
        (found.into_iter().map(|(_, _, kept)| Credential::clone(&kept.credential)).collect(), read.malformed)
    }

    #[test]
    fn reads_every_form_of_an_entry() {
        let token = |text: &str| Sensitive::from(text.to_owned());
        for (entry, expected) in [
            // user:word
            (r#"{"auth":"dXNlcjp3b3Jk"}"#, vec![basic("user", "word")]),
            // a:b, padded and not
            (r#"{"auth":"YTpi"}"#, vec![basic("a", "b")]),
            (r#"{"auth":"YTpiYw=="}"#, vec![basic("a", "bc")]),
            (r#"{"auth":"YTpiYw"}"#, vec![basic("a", "bc")]),
            (r#"{"auth":"YTpi\nYw==\r\n"}"#, vec![basic("a", "bc")]),
            // a:b:c splits at the first colon
            (r#"{"auth":"YTpiOmM="}"#, vec![basic("a", "b:c")]),
            (r#"{"username":"a","password":"b"}"#, vec![basic("a", "b")]),
            (r#"{"username":"a","password":"b","auth":"dXNlcjp3b3Jk"}"#, vec![basic("user", "word")]),
            (r#"{"username":"a","password":"b","auth":"","email":"e@f","more":[1]}"#, vec![basic("a", "b")]),
            (r#"{"username":"a"}"#, vec![basic("a", "")]),
            (r#"{"identitytoken":"t"}"#, vec![Credential::Identity(token("t"))]),
            // 00000000-0000-0000-0000-000000000000: as `az acr login` writes it
            (
                r#"{"auth":"MDAwMDAwMDAtMDAwMC0wMDAwLTAwMDAtMDAwMDAwMDAwMDAwOg==","identitytoken":"t"}"#,
                vec![Credential::Identity(token("t"))],
            ),
            (
                r#"{"auth":"YTpi","identitytoken":"t"}"#,
                vec![Credential::Identity(token("t")), basic("a", "b")],
            ),
            (r#"{"registrytoken":"t"}"#, vec![Credential::Bearer(token("t"))]),
            ("{}", vec![]),
            ("null", vec![]),
        ] {
            assert_eq!(of(&format!(r#"{{"auths":{{"a.b":{entry}}}}}"#)), (expected, 0), "{entry}");
        }
    }

    #[test]
    fn leaves_out_what_is_malformed_and_keeps_the_rest() {
        for auth in ["%", "dXNlcg==", "/zo="] {
            let json = format!(r#"{{"auths":{{"a.b":{{"auth":"{auth}"}},"*.b":{{"auth":"YTpi"}}}}}}"#);
            assert_eq!(of(&json), (vec![basic("a", "b")], 1), "{auth}");
        }
    }

    #[test]
    fn reads_the_older_form() {
        let read = read_dockercfg(br#"{"https://a.b/v1/":{"auth":"YTpi","email":""}}"#).unwrap();
        assert_eq!(read.keyring.len(), 1);
        let newer = read_dockercfg(br#"{"auths":{"a.b":{"auth":"YTpi"}}}"#).unwrap();
        assert_eq!(newer.keyring.len(), 0);
        for nothing in ["{}", r#"{"auths":null}"#, r#"{"auths":{}}"#] {
            assert_eq!(of(nothing), (vec![], 0));
        }
    }

    #[test]
    fn never_quotes_what_it_cannot_read() {
        for json in [
            r#"{"auths":"canary"}"#,
            r#"{"auths":{"a.b":{"password":["canary"]}}}"#,
            r#"{"auths":{"a.b":"canary"}}"#,
            "canary",
            "{\"auths\":{\"a.b\":{\"auth\":\"canary",
        ] {
            let error = DockerConfig::parse(json.as_bytes()).err().unwrap();
            assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        }
    }
}
