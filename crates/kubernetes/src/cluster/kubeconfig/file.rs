//! A file of a kubeconfig, read as client-go reads it: YAML or JSON, keys in their case, unknown ones passed over; null
//! and empty fields count as absent, and base64 may have line ends.

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

/// A text that is secret.
#[derive(Default)]
pub(super) struct Text(pub(super) Zeroizing<String>);

/// Bytes that are base64 in the file.
#[derive(Default)]
pub(super) struct Bytes(pub(super) Zeroizing<Vec<u8>>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Zeroizing::new(text)))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Go's `base64.StdEncoding`, which requires padding and takes any bits behind the last byte.
        const BASE64: GeneralPurpose = GeneralPurpose::new(
            &base64::alphabet::STANDARD,
            GeneralPurposeConfig::new()
                .with_decode_allow_trailing_bits(true)
                .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
        );
        /// To Go a list of numbers is bytes as well.
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
        // Go's decoder passes over line ends.
        text.retain(|character| !matches!(character, '\r' | '\n'));
        let bytes = BASE64
            .decode(text.as_bytes())
            .map_err(|_| D::Error::custom("not base64"))?;
        Ok(Self(Zeroizing::new(bytes)))
    }
}

/// Reads a file; `None` if there is none, unless it was named explicitly.
pub(super) fn read(path: &Path, is_named: bool) -> Result<Option<File>, ConnectError> {
    let is_none = |why: String| ConnectError::NoKubeconfig(path.to_owned(), why);
    let bytes = match std::fs::read(path) {
        Ok(bytes) => Zeroizing::new(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound && !is_named => return Ok(None),
        Err(error) => return Err(ConnectError::File(path.to_owned(), error)),
    };
    let text = decoded(&bytes).ok_or_else(|| is_none("it is no text".to_owned()))?;
    // The errors' texts may quote a token.
    let unreadable = |line: usize| is_none(format!("line {line} is no YAML that belongs in one"));
    // As in Go the first document counts, and one without content is an empty kubeconfig.
    let document =
        yaml::read_first(&text, Dialect::Kubernetes).map_err(|fault| unreadable(fault.line))?;
    let Some(document) = document else {
        return Ok(Some(File::default()));
    };
    let line = document.line;
    let value = match document.value() {
        Value::Null => return Ok(Some(File::default())),
        Value::Object(members) => without_nulls(Value::Object(members)),
        _ => return Err(unreadable(line)),
    };
    let file: File = serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path();
        is_none(format!(
            "{path} has a value of another kind than belongs there"
        ))
    })?;
    let is = |text: &str, expected| text.is_empty() || text == expected;
    if !is(&file.api_version, "v1") || !is(&file.kind, "Config") {
        return Err(is_none(
            "its apiVersion and kind are not v1 and Config".to_owned(),
        ));
    }
    let all = [
        ("context", twice(file.contexts.iter().map(|one| &one.name))),
        ("cluster", twice(file.clusters.iter().map(|one| &one.name))),
        ("user", twice(file.users.iter().map(|one| &one.name))),
    ];
    for (kind, twice) in all {
        if let Some(name) = twice {
            return Err(is_none(format!(
                "it has a second {kind} of the name {name:?}"
            )));
        }
    }
    Ok(Some(file))
}

/// Returns the first name that is given twice.
fn twice<'n>(names: impl Iterator<Item = &'n String>) -> Option<&'n String> {
    let mut seen = HashSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

/// Returns the text of a file in UTF-8, or in UTF-16 with the mark at its beginning.
fn decoded(bytes: &[u8]) -> Option<Zeroizing<String>> {
    let wide = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = rest.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        char::decode_utf16(units)
            .collect::<Result<String, _>>()
            .ok()
    };
    let text = match bytes {
        [0xFF, 0xFE, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8(rest.to_vec()).ok(),
        bytes => String::from_utf8(bytes.to_vec()).ok(),
    };
    text.map(Zeroizing::new)
}
