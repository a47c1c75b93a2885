//! A file of a kubeconfig, read as in client-go. It is YAML or JSON; keys are case-sensitive, and unknown keys are
//! skipped. Null and empty fields count as absent, and base64 may have line breaks.

use std::collections::{BTreeMap, HashSet};
use std::io::ErrorKind;
use std::path::Path;

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::cluster::access::without_nulls;
use crate::cluster::error::ConnectError;
use tolerarch_text::yaml::{self, Dialect};

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct File {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    #[serde(rename = "current-context")]
    pub(super) current_context: String,
    pub(super) contexts: Vec<NamedContext>,
    pub(super) clusters: Vec<NamedCluster>,
    pub(super) users: Vec<NamedUser>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedContext {
    pub(super) name: String,
    pub(super) context: Context,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedCluster {
    pub(super) name: String,
    pub(super) cluster: Cluster,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedUser {
    pub(super) name: String,
    pub(super) user: User,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Context {
    pub(super) cluster: String,
    pub(super) user: String,
    pub(super) namespace: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub(super) server: String,
    pub(super) tls_server_name: String,
    pub(super) insecure_skip_tls_verify: bool,
    pub(super) certificate_authority: String,
    pub(super) certificate_authority_data: Bytes,
    pub(super) proxy_url: String,
    pub(super) disable_compression: bool,
    pub(super) extensions: Vec<Extension>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Extension {
    pub(super) name: String,
    pub(super) extension: Value,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct User {
    pub(super) client_certificate: String,
    pub(super) client_certificate_data: Bytes,
    pub(super) client_key: String,
    pub(super) client_key_data: Bytes,
    pub(super) token: Text,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: String,
    #[serde(rename = "as")]
    pub(super) impersonate: String,
    pub(super) as_uid: String,
    pub(super) as_groups: Vec<String>,
    pub(super) as_user_extra: BTreeMap<String, Vec<String>>,
    pub(super) username: String,
    pub(super) password: Text,
    pub(super) auth_provider: Option<Provider>,
    pub(super) exec: Option<Exec>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Provider {
    pub(super) name: String,
    pub(super) config: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Exec {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<Variable>,
    pub(super) api_version: String,
    pub(super) install_hint: String,
    pub(super) provide_cluster_info: bool,
    pub(super) interactive_mode: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: String,
}

/// A secret text.
#[derive(Default)]
pub(super) struct Text(pub(super) Zeroizing<String>);

/// Bytes, which are base64 in the file.
#[derive(Default)]
pub(super) struct Bytes(pub(super) Zeroizing<Vec<u8>>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Zeroizing::new(text)))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Go's `base64.StdEncoding`, which requires padding and ignores bits after the last byte.
        const BASE64: GeneralPurpose = GeneralPurpose::new(
            &base64::alphabet::STANDARD,
            GeneralPurposeConfig::new()
                .with_decode_allow_trailing_bits(true)
                .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
        );
        /// Go also accepts a list of numbers as bytes.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Base64(String),
            Numbers(Vec<u8>),
        }
        let mut text = match Written::deserialize(deserializer)? {
            Written::Base64(text) => Zeroizing::new(text),
            Written::Numbers(bytes) => return Ok(Self(Zeroizing::new(bytes))),
        };
        // Go's decoder skips line breaks.
        text.retain(|character| !matches!(character, '\r' | '\n'));
        match BASE64.decode(text.as_bytes()) {
            Ok(bytes) => Ok(Self(Zeroizing::new(bytes))),
            Err(_) => Err(D::Error::custom("not base64")),
        }
    }
}

/// Reads a file. `None` if it does not exist and was not named explicitly.
pub(super) fn read(path: &Path, is_named: bool) -> Result<Option<File>, ConnectError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => Zeroizing::new(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound && !is_named => return Ok(None),
        Err(error) => return Err(ConnectError::File(path.to_owned(), error)),
    };
    match parse(&bytes) {
        Ok(file) => Ok(Some(file)),
        Err(why) => Err(ConnectError::NoKubeconfig(path.to_owned(), why)),
    }
}

/// Parses a file, or returns why it is no kubeconfig.
fn parse(bytes: &[u8]) -> Result<File, String> {
    let text = decoded(bytes).ok_or("it is no text")?;
    // Errors of the YAML reader are not passed on, as their texts may quote a token.
    let unreadable = |line: usize| format!("line {line} is no YAML that belongs in one");
    // As in Go, the first document counts, and a document without content is an empty kubeconfig.
    let document = match yaml::read_first(&text, Dialect::Kubernetes) {
        Ok(Some(document)) => document,
        Ok(None) => return Ok(File::default()),
        Err(fault) => return Err(unreadable(fault.line)),
    };
    let line = document.line;
    let value = match document.value() {
        Value::Null => return Ok(File::default()),
        Value::Object(members) => without_nulls(Value::Object(members)),
        _ => return Err(unreadable(line)),
    };
    let file: File = match serde_path_to_error::deserialize(value) {
        Ok(file) => file,
        Err(error) => {
            let path = error.path();
            return Err(format!(
                "{path} has a value of another kind than belongs there"
            ));
        }
    };
    let is = |text: &str, expected| text.is_empty() || text == expected;
    if !is(&file.api_version, "v1") || !is(&file.kind, "Config") {
        return Err("its apiVersion and kind are not v1 and Config".to_owned());
    }
    refuse_duplicates("context", file.contexts.iter().map(|one| &one.name))?;
    refuse_duplicates("cluster", file.clusters.iter().map(|one| &one.name))?;
    refuse_duplicates("user", file.users.iter().map(|one| &one.name))?;
    Ok(file)
}

fn refuse_duplicates<'n>(
    kind: &str,
    names: impl Iterator<Item = &'n String>,
) -> Result<(), String> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(format!("it has a second {kind} of the name {name:?}"));
        }
    }
    Ok(())
}

/// Returns the text of a file in UTF-8, or in UTF-16 with a byte order mark.
fn decoded(bytes: &[u8]) -> Option<Zeroizing<String>> {
    let text = match bytes {
        [0xFF, 0xFE, rest @ ..] => decode_utf16(rest, u16::from_le_bytes)?,
        [0xFE, 0xFF, rest @ ..] => decode_utf16(rest, u16::from_be_bytes)?,
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8(rest.to_vec()).ok()?,
        bytes => String::from_utf8(bytes.to_vec()).ok()?,
    };
    Some(Zeroizing::new(text))
}

fn decode_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let pairs = bytes.chunks_exact(2);
    let units = pairs.map(|pair| unit([pair[0], pair[1]]));
    let text: Result<String, _> = char::decode_utf16(units).collect();
    text.ok()
}
