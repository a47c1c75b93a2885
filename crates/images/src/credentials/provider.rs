//! Kubelet's image credential provider plugins: `CredentialProviderConfig` of kubelet.config.k8s.io (kubelet's
//! config/v1/types.go), decoded and checked as kubelet does (pkg/credentialprovider/plugin/config.go); and the plugins'
//! requests and responses (k8s.io/kubelet/pkg/apis/credentialprovider/v1/types.go), decoded as strictly.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer};
use tokio::process::Command;
use tokio::time::Duration;

use super::credential::{Credential, CredentialId, Sensitive};
use super::pattern::{self, ImagePattern};
use super::process::{self, Output, ProcessError};
use super::program::{GLOBAL, IMAGE, Protocol, REGISTRY, Response};
use tolerarch_text::go_duration;
use tolerarch_text::json::{self, Object, go};
use tolerarch_text::yaml::{self, Data, Dialect, Node};

const API_VERSIONS: [&str; 3] = [
    "kubelet.config.k8s.io/v1",
    "kubelet.config.k8s.io/v1beta1",
    "kubelet.config.k8s.io/v1alpha1",
];
const EXEC_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];

#[derive(Debug)]
pub(super) struct Provider {
    /// ID of all candidates of the plugin: the operator's plugin has the same credentials for all tenants.
    id: CredentialId,
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) match_images: Vec<ImagePattern>,
    pub(super) default_cache_duration: Duration,
    api_version: String,
    args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    api_version: String,
    kind: String,
    providers: Option<Vec<Object<ProviderEntry>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProviderEntry {
    name: String,
    match_images: Option<Vec<String>>,
    default_cache_duration: Option<String>,
    api_version: Option<String>,
    args: Option<Vec<String>>,
    env: Option<Vec<Object<Variable>>>,
    token_attributes: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    value: Option<String>,
}

/// Parses a file, and leaves out providers that need the token of a Pod. `names`: the providers of other files. An
/// error quotes no value, as the values of `env` may be secret.
pub(super) fn read(text: &str, bin_dir: &Path, names: &[String]) -> Result<Vec<Provider>, String> {
    let document = yaml::read_first(text, Dialect::Kubernetes)
        .map_err(|error| format!("line {}: not YAML", error.line))?
        .ok_or("is empty")?;
    let config = decode(&document)?;
    if config.kind != "CredentialProviderConfig"
        || !API_VERSIONS.contains(&config.api_version.as_str())
    {
        return Err(format!(
            "write kind: CredentialProviderConfig and apiVersion: {} (or v1beta1, v1alpha1)",
            API_VERSIONS[0]
        ));
    }
    let entries = config.providers.unwrap_or_default();
    if entries.is_empty() {
        return Err("providers: at least one is needed".into());
    }
    let mut providers: Vec<Provider> = Vec::new();
    for (index, Object(entry)) in entries.into_iter().enumerate() {
        if names.contains(&entry.name) || providers.iter().any(|other| other.name == entry.name) {
            return Err(format!(
                "providers[{index}].name: there is another of this name"
            ));
        }
        let needs_token = entry.token_attributes.is_some();
        let provider = entry
            .check(bin_dir)
            .map_err(|fault| format!("providers[{index}].{fault}"))?;
        if needs_token {
            tracing::warn!(
                plugin = provider.name,
                "tokenAttributes: plugins that need a service account token are not supported; left out"
            );
        } else {
            providers.push(provider);
        }
    }
    Ok(providers)
}

/// Decodes strictly. An error has the path of its value. The decoder's message is quoted only if it is about keys, as
/// others contain values.
fn decode(document: &Node) -> Result<Config, String> {
    if let Some((line, key)) = duplicate_key(document) {
        return Err(format!("line {line}: duplicate field `{key}`"));
    }
    let error = match serde_path_to_error::deserialize(document.value()) {
        Ok(Object(config)) => return Ok(config),
        Err(error) => error,
    };
    let path = error.path();
    let message = error.inner().to_string();
    let is_about_keys =
        message.starts_with("unknown field") || message.starts_with("missing field");
    let fault = if is_about_keys {
        &message
    } else {
        "a value of another kind is expected"
    };
    Err(format!("not a CredentialProviderConfig: {path}: {fault}"))
}

/// Returns the first key that a map has twice, and its line.
fn duplicate_key(node: &Node) -> Option<(usize, &str)> {
    match &node.data {
        Data::List(items) => items.iter().find_map(duplicate_key),
        Data::Map(members) => {
            for (index, (key, value)) in members.iter().enumerate() {
                let mut before = members[..index].iter();
                if before.any(|(other, _)| other.text == key.text) {
                    return Some((key.line, &key.text));
                }
                let in_value = duplicate_key(value);
                if in_value.is_some() {
                    return in_value;
                }
            }
            None
        }
        Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) => None,
    }
}

impl Protocol for Provider {
    fn id(&self, _image: &str) -> CredentialId {
        self.id
    }

    fn request(&self, image: &str) -> (Command, Vec<u8>) {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        let request = serde_json::json!({
            "apiVersion": self.api_version,
            "kind": "CredentialProviderRequest",
            "image": image,
        });
        (command, request.to_string().into_bytes())
    }

    fn response(
        &self,
        _image: &str,
        output: Result<Output, ProcessError>,
    ) -> Result<Response, String> {
        const MALFORMED: &str = "its answer is no CredentialProviderResponse";
        let output = output.map_err(|error| error.to_string())?;
        let text = go::text(&output);
        let body: ResponseBody = serde_json::from_str(&text).map_err(|_| MALFORMED)?;
        if body.kind != "CredentialProviderResponse" {
            return Err(MALFORMED.into());
        }
        if body.api_version != self.api_version {
            return Err("its answer has another apiVersion than configured".into());
        }
        let scope = match body.cache_key_type.unwrap_or_default().as_str() {
            "Image" => IMAGE,
            "Registry" => REGISTRY,
            "Global" => GLOBAL,
            _ => {
                return Err(
                    "its answer has a cacheKeyType that is none of Image, Registry and Global"
                        .into(),
                );
            }
        };
        let life = match body.cache_duration {
            Some(text) => go_duration::parse_or_zero(&text)
                .ok_or("its answer has a cacheDuration that is no duration")?,
            None => self.default_cache_duration,
        };
        let mut credentials = Vec::new();
        for (key, auth) in body.auth {
            let Some(auth) = auth else { continue };
            let user = auth.username.unwrap_or_default();
            let password = auth.password.unwrap_or_default();
            // Like kubelet, sends no credential that has neither user nor password.
            if !user.is_empty() || !password.reveal().is_empty() {
                credentials.push((key, Arc::new(Credential::Basic { user, password })));
            }
        }
        Ok(Response {
            scope,
            life,
            keyring: pattern::keyring(credentials),
        })
    }
}

impl ProviderEntry {
    fn check(self, bin_dir: &Path) -> Result<Provider, String> {
        let Self {
            name,
            match_images,
            default_cache_duration,
            api_version,
            args,
            env,
            ..
        } = self;
        if name.is_empty() || name.contains(['/', ' ', '\0']) || name == "." || name == ".." {
            return Err(
                "name: the name of a program in credentials.providers.binDir, not a path".into(),
            );
        }
        let Some(program) = process::find(&name, [bin_dir.to_owned()]) else {
            return Err(format!(
                "name: {} is no program that can be run",
                bin_dir.join(&name).display()
            ));
        };
        let match_images = patterns(&match_images.unwrap_or_default())?;
        let duration_text = default_cache_duration.ok_or("defaultCacheDuration: is needed")?;
        let default_cache_duration = go_duration::parse(&duration_text)
            .ok_or("defaultCacheDuration: write a duration such as 12h, 30m or 0s")?;
        let api_version = api_version
            .filter(|version| EXEC_VERSIONS.contains(&version.as_str()))
            .ok_or_else(|| format!("apiVersion: write one of {}", EXEC_VERSIONS.join(", ")))?;
        let env = variables(env.unwrap_or_default())?;
        let args = args.unwrap_or_default();
        if args.iter().any(|argument| argument.contains('\0')) {
            return Err("args: contain a NUL character".into());
        }
        let mut parts = vec!["plugin", api_version.as_str(), name.as_str()];
        parts.extend(args.iter().map(String::as_str));
        for (name, value) in &env {
            parts.extend([name.as_str(), value.as_str()]);
        }
        Ok(Provider {
            id: CredentialId::of(&parts),
            name,
            program,
            match_images,
            default_cache_duration,
            api_version,
            args,
            env,
        })
    }
}

fn patterns(texts: &[String]) -> Result<Vec<ImagePattern>, String> {
    if texts.is_empty() {
        return Err("matchImages: at least one is needed".into());
    }
    let mut patterns = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        match text.parse() {
            Ok(pattern) => patterns.push(pattern),
            Err(fault) => return Err(format!("matchImages[{index}]: {text:?}: {fault}")),
        }
    }
    Ok(patterns)
}

fn variables(env: Vec<Object<Variable>>) -> Result<Vec<(String, String)>, String> {
    let mut variables = Vec::with_capacity(env.len());
    for (index, Object(variable)) in env.into_iter().enumerate() {
        let name = variable.name;
        let value = variable.value.unwrap_or_default();
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(format!(
                "env[{index}]: no name and value of an environment variable"
            ));
        }
        variables.push((name, value));
    }
    Ok(variables)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResponseBody {
    kind: String,
    api_version: String,
    cache_key_type: Option<String>,
    cache_duration: Option<String>,
    #[serde(default, deserialize_with = "without_repeated_keys")]
    auth: BTreeMap<String, Option<Auth>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Auth {
    username: Option<String>,
    password: Option<Sensitive>,
}

/// Reads a map, which may be `null`, and refuses duplicate keys, as a strict codec of Kubernetes does.
fn without_repeated_keys<'de, D, T>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let mut map = BTreeMap::new();
    let Some(Members(members)) = Option::deserialize(deserializer)? else {
        return Ok(map);
    };
    for (key, value) in members {
        if map.insert(key, value).is_some() {
            return Err(D::Error::custom("duplicate key"));
        }
    }
    Ok(map)
}

/// Members of an object, in their order.
struct Members<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Members<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut members = Vec::new();
        json::members(deserializer, |key, value| members.push((key, value)))?;
        Ok(Self(members))
    }
}
