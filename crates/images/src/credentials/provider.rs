//! Kubelet's image credential provider plugins, as `CredentialProviderConfig` of kubelet.config.k8s.io names them (kubelet's
//! config/v1/types.go), decoded and checked as kubelet does (pkg/credentialprovider/plugin/config.go).

mod protocol;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::process::Command;
use tokio::time::Duration;

use super::credential::CredentialId;
use super::fault::FaultCause;
use super::pattern::ImagePattern;
use super::process::{self, Output, ProcessError};
use super::program::Response;
use tolerarch_support::file;
use tolerarch_text::go_duration;
use tolerarch_text::json::Object;
use tolerarch_text::yaml::{self, Copies, Data, Dialect, Node};

const API_VERSIONS: [&str; 3] =
    ["kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"];
const EXEC_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];

#[derive(Debug)]
pub(super) struct Provider {
    pub(super) name: String,
    pub(super) program: PathBuf,
    match_images: Vec<ImagePattern>,
    pub(super) default_cache_duration: Duration,
    api_version: String,
    args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
}

/// The file but for its providers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Header {
    api_version: String,
    kind: String,
    #[expect(dead_code, reason = "read one by one")]
    providers: Option<IgnoredAny>,
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

/// The files of a path: itself, or those of the directory that kubelet reads (since 1.36), in their order.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>, FaultCause> {
    let is_directory = |path: &Path| file::in_time(path, |path| Ok(path.is_dir()));
    if !is_directory(path)? {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = file::entries(path, usize::MAX)?;
    let is_config = |file: &Path| {
        let extension = file.extension().and_then(OsStr::to_str);
        extension.is_some_and(|extension| matches!(extension, "json" | "yaml" | "yml"))
    };
    files.retain(|file| is_config(file) && !is_directory(file).unwrap_or_default());
    if files.is_empty() {
        return Err("has no file that ends in .yaml, .yml or .json".to_owned().into());
    }
    Ok(files)
}

/// Returns the providers of a file's text, without those that need the token of a Pod. A fault leaves out the text's
/// values, as those of `env` may be secret. `names` are those of other files' providers.
pub(super) fn read(text: &str, bin_dir: &Path, names: &[String]) -> Result<Vec<Provider>, String> {
    let documents = yaml::read(text, Dialect::Kubernetes, &mut Copies::default());
    let documents = documents.map_err(|error| format!("line {}: not YAML", error.line))?;
    // Kubelet reads no other.
    let document = documents.first().ok_or("is empty")?;
    let header: Header = decode(document)?;
    if header.kind != "CredentialProviderConfig" || !API_VERSIONS.contains(&header.api_version.as_str()) {
        return Err(format!(
            "write kind: CredentialProviderConfig and apiVersion: {} (or v1beta1, v1alpha1)",
            API_VERSIONS[0]
        ));
    }
    let given = match document.get("providers").map(|own| (own.line, &own.data)) {
        Some((_, Data::List(given))) if !given.is_empty() => given,
        Some((line, Data::Map(_) | Data::Text(_) | Data::Bool(_) | Data::Number(_))) => {
            return Err(format!("line {line}: {OTHER_TYPE}"));
        }
        _ => return Err("providers: at least one is needed".into()),
    };
    let mut providers: Vec<Provider> = Vec::new();
    for (place, node) in given.iter().enumerate() {
        let given: Given = decode(node)?;
        if names.contains(&given.name) || providers.iter().any(|other| other.name == given.name) {
            return Err(format!("providers[{place}].name: there is another of this name"));
        }
        let needs_token = given.token_attributes.is_some();
        let provider = given.check(bin_dir).map_err(|fault| format!("providers[{place}].{fault}"))?;
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

const OTHER_TYPE: &str = "not the YAML of a CredentialProviderConfig: a value of another kind is expected";

/// Decodes strictly. A fault says where, and what of it is about keys only.
fn decode<T: DeserializeOwned>(node: &Node) -> Result<T, String> {
    if let Some((line, key)) = repeated(node) {
        return Err(format!("line {line}: duplicate field `{key}`"));
    }
    serde_json::from_value(node.value()).map(|Object(decoded)| decoded).map_err(|error| {
        let text = error.to_string();
        let about_keys = ["unknown field", "missing field"].iter().any(|begin| text.starts_with(begin));
        format!("line {}: {}", node.line, if about_keys { &text } else { OTHER_TYPE })
    })
}

fn repeated(node: &Node) -> Option<(usize, &str)> {
    match &node.data {
        Data::List(items) => items.iter().find_map(repeated),
        Data::Map(members) => members.iter().enumerate().find_map(|(place, (key, value))| {
            let is_there = members[..place].iter().any(|(other, _)| other.text == key.text);
            if is_there { Some((key.line, key.text.as_str())) } else { repeated(value) }
        }),
        Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) => None,
    }
}

impl Provider {
    pub(super) fn id(&self) -> CredentialId {
        let mut parts = vec!["plugin", self.api_version.as_str(), self.name.as_str()];
        parts.extend(self.args.iter().map(String::as_str));
        parts.extend(self.env.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]));
        CredentialId::of(&parts)
    }

    pub(super) fn is_for(&self, image: &str) -> bool {
        self.match_images.iter().any(|pattern| pattern.matches(image))
    }

    pub(super) fn request(&self, image: &str) -> (Command, Vec<u8>) {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        (command, protocol::request(&self.api_version, image))
    }

    pub(super) fn response(&self, output: Result<Output, ProcessError>) -> Result<Response, String> {
        let output = output.map_err(|error| error.to_string())?;
        Ok(protocol::response(&output, &self.api_version, self.default_cache_duration)?)
    }
}

impl Given {
    fn check(self, bin_dir: &Path) -> Result<Provider, String> {
        let Self { name, match_images, default_cache_duration, api_version, args, env, .. } = self;
        if name.is_empty() || name.contains(['/', ' ', '\0']) || name == "." || name == ".." {
            return Err("name: the name of a program in credentials.providers.binDir, not a path".into());
        }
        let program = process::find(&name, [bin_dir.to_owned()]).ok_or_else(|| {
            format!("name: {} is no program that can be run", bin_dir.join(&name).display())
        })?;
        let patterns = match_images.unwrap_or_default();
        if patterns.is_empty() {
            return Err("matchImages: at least one is needed".into());
        }
        let parse = |(place, text): (usize, &String)| {
            text.parse().map_err(|fault| format!("matchImages[{place}]: {text:?}: {fault}"))
        };
        let match_images = patterns.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
        let default_cache_duration = default_cache_duration.ok_or("defaultCacheDuration: is needed")?;
        let default_cache_duration = go_duration::parse(&default_cache_duration)
            .ok_or("defaultCacheDuration: write a duration such as 12h, 30m or 0s")?;
        let api_version = api_version.filter(|version| EXEC_VERSIONS.contains(&version.as_str()));
        let api_version =
            api_version.ok_or_else(|| format!("apiVersion: write one of {}", EXEC_VERSIONS.join(", ")))?;
        let env: Vec<_> = env
            .unwrap_or_default()
            .into_iter()
            .map(|Object(own)| (own.name, own.value.unwrap_or_default()))
            .collect();
        let args = args.unwrap_or_default();
        let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
        if let Some(place) = env.iter().position(|(name, value)| !is_name(name) || value.contains('\0')) {
            return Err(format!("env[{place}]: no name and value of an environment variable"));
        }
        if args.iter().any(|argument| argument.contains('\0')) {
            return Err("args: hold a NUL character".into());
        }
        Ok(Provider { name, program, match_images, default_cache_duration, api_version, args, env })
    }
}
