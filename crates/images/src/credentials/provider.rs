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
    /// Id of all candidates of the plugin: the operator's plugin has the same credentials for all tenants.
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
    providers: Option<Vec<Object<Given>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Given {
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

/// Parses a file, and leaves out providers that need the token of a Pod. A fault quotes no value, as those of `env` may
/// be secret. `names` are those of other files' providers.
pub(super) fn read(text: &str, bin_dir: &Path, names: &[String]) -> Result<Vec<Provider>, String> {
    let document = yaml::read_first(text, Dialect::Kubernetes);
    let document = document.map_err(|error| format!("line {}: not YAML", error.line))?;
    let document = &document.ok_or("is empty")?;
    let Config {
        api_version,
        kind,
        providers: given,
    } = decode(document)?;
    if kind != "CredentialProviderConfig" || !API_VERSIONS.contains(&api_version.as_str()) {
        return Err(format!(
            "write kind: CredentialProviderConfig and apiVersion: {} (or v1beta1, v1alpha1)",
            API_VERSIONS[0]
        ));
    }
    let given = given
        .filter(|given| !given.is_empty())
        .ok_or("providers: at least one is needed")?;
    let mut providers: Vec<Provider> = Vec::new();
    for (place, Object(given)) in given.into_iter().enumerate() {
        if names.contains(&given.name) || providers.iter().any(|other| other.name == given.name) {
            return Err(format!(
                "providers[{place}].name: there is another of this name"
            ));
        }
        let needs_token = given.token_attributes.is_some();
        let provider = given
            .check(bin_dir)
            .map_err(|fault| format!("providers[{place}].{fault}"))?;
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

/// Decodes strictly. A fault says where, and what only if it is about keys.
fn decode(document: &Node) -> Result<Config, String> {
    if let Some((line, key)) = repeated(document) {
        return Err(format!("line {line}: duplicate field `{key}`"));
    }
    let decoded = serde_path_to_error::deserialize(document.value()).map(|Object(config)| config);
    decoded.map_err(|error| {
        let text = error.inner().to_string();
        let about_keys = ["unknown field", "missing field"]
            .iter()
            .any(|begin| text.starts_with(begin));
        let text = if about_keys {
            &text
        } else {
            "a value of another kind is expected"
        };
        format!("not a CredentialProviderConfig: {}: {text}", error.path())
    })
}

fn repeated(node: &Node) -> Option<(usize, &str)> {
    match &node.data {
        Data::List(items) => items.iter().find_map(repeated),
        Data::Map(members) => members
            .iter()
            .enumerate()
            .find_map(|(place, (key, value))| {
                let is_there = members[..place]
                    .iter()
                    .any(|(other, _)| other.text == key.text);
                if is_there {
                    Some((key.line, key.text.as_str()))
                } else {
                    repeated(value)
                }
            }),
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
        let (version, kind) = (&self.api_version, "CredentialProviderRequest");
        let request = serde_json::json!({"apiVersion": version, "kind": kind, "image": image});
        (command, request.to_string().into_bytes())
    }

    fn response(
        &self,
        _image: &str,
        output: Result<Output, ProcessError>,
    ) -> Result<Response, String> {
        const MALFORMED: &str = "its answer is no CredentialProviderResponse";
        let output = output.map_err(|error| error.to_string())?;
        let body: ResponseBody = serde_json::from_str(&go::text(&output)).map_err(|_| MALFORMED)?;
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
        let default = Some(self.default_cache_duration);
        let life = body
            .cache_duration
            .map_or(default, |text| go_duration::parse_or_zero(&text));
        let life = life.ok_or("its answer has a cacheDuration that is none")?;
        let credential = |Auth { username, password }: Auth| {
            let (user, password) = (username.unwrap_or_default(), password.unwrap_or_default());
            let is_empty = user.is_empty() && password.reveal().is_empty();
            // With an empty one kubelet sends nothing.
            (!is_empty).then(|| Arc::new(Credential::Basic { user, password }))
        };
        let credentials = body
            .auth
            .into_iter()
            .filter_map(|(key, auth)| Some((key, credential(auth?)?)));
        Ok(Response {
            scope,
            life,
            keyring: pattern::keyring(credentials),
        })
    }
}

impl Given {
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
        let program = process::find(&name, [bin_dir.to_owned()]).ok_or_else(|| {
            format!(
                "name: {} is no program that can be run",
                bin_dir.join(&name).display()
            )
        })?;
        let patterns = match_images.filter(|all| !all.is_empty());
        let patterns = patterns.ok_or("matchImages: at least one is needed")?;
        let parse = |(place, text): (usize, &String)| {
            text.parse()
                .map_err(|fault| format!("matchImages[{place}]: {text:?}: {fault}"))
        };
        let match_images = patterns
            .iter()
            .enumerate()
            .map(parse)
            .collect::<Result<_, _>>()?;
        let default_cache_duration =
            default_cache_duration.ok_or("defaultCacheDuration: is needed")?;
        let default_cache_duration = go_duration::parse(&default_cache_duration)
            .ok_or("defaultCacheDuration: write a duration such as 12h, 30m or 0s")?;
        let api_version = api_version.filter(|version| EXEC_VERSIONS.contains(&version.as_str()));
        let api_version = api_version
            .ok_or_else(|| format!("apiVersion: write one of {}", EXEC_VERSIONS.join(", ")))?;
        let env = env.unwrap_or_default().into_iter();
        let env: Vec<_> = env
            .map(|Object(own)| (own.name, own.value.unwrap_or_default()))
            .collect();
        let args = args.unwrap_or_default();
        let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
        if let Some(place) = env
            .iter()
            .position(|(name, value)| !is_name(name) || value.contains('\0'))
        {
            return Err(format!(
                "env[{place}]: no name and value of an environment variable"
            ));
        }
        if args.iter().any(|argument| argument.contains('\0')) {
            return Err("args: hold a NUL character".into());
        }
        let mut parts = vec!["plugin", api_version.as_str(), name.as_str()];
        parts.extend(args.iter().map(String::as_str));
        parts.extend(
            env.iter()
                .flat_map(|(name, value)| [name.as_str(), value.as_str()]),
        );
        let id = CredentialId::of(&parts);
        Ok(Provider {
            id,
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

/// Reads a map, which may be `null`, and refuses a key that is there twice, as a strict codec of Kubernetes does.
fn without_repeated_keys<'de, D, T>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let members: Option<Members<T>> = Option::deserialize(deserializer)?;
    let mut map = BTreeMap::new();
    for (key, value) in members.map(|Members(members)| members).unwrap_or_default() {
        if map.insert(key, value).is_some() {
            return Err(D::Error::custom("a key is there twice"));
        }
    }
    Ok(map)
}

/// The members of an object in their order.
struct Members<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Members<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut members = Vec::new();
        json::members(deserializer, |key, value| members.push((key, value)))?;
        Ok(Self(members))
    }
}
