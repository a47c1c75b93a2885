//! `CredentialProviderConfig` of kubelet.config.k8s.io (kubelet's config/v1/types.go), decoded and checked as kubelet does
//! (pkg/credentialprovider/plugin/config.go).

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::Duration;

use super::super::duration;
use super::super::pattern::ImagePattern;
use super::super::process;

const API_VERSIONS: [&str; 3] =
    ["kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"];
pub(super) const EXEC_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];

/// A plugin as it is configured.
#[derive(Debug)]
pub(in super::super) struct Provider {
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) match_images: Vec<ImagePattern>,
    pub(super) default_cache_duration: Duration,
    pub(super) api_version: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConfigFile {
    api_version: String,
    kind: String,
    providers: Option<Vec<Given>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Given {
    name: String,
    match_images: Option<Vec<String>>,
    default_cache_duration: Option<String>,
    api_version: Option<String>,
    args: Option<Vec<String>>,
    env: Option<Vec<Variable>>,
    token_attributes: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    value: String,
}

/// Reads the file's text. What is wrong with it is told without its values, as those of `env` may be secret.
pub(in super::super) fn read(text: &str, bin_dir: &Path) -> Result<Vec<Provider>, String> {
    let document: ConfigFile = serde_saphyr::from_str(text).map_err(|error| fault(&error))?;
    if document.kind != "CredentialProviderConfig" || !API_VERSIONS.contains(&document.api_version.as_str()) {
        return Err(format!(
            "write kind: CredentialProviderConfig and apiVersion: {} (or v1beta1, v1alpha1)",
            API_VERSIONS[0]
        ));
    }
    let mut providers: Vec<Provider> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for (place, given) in document.providers.unwrap_or_default().into_iter().enumerate() {
        if names.contains(&given.name) {
            return Err(format!("providers[{place}].name: there is another of this name"));
        }
        names.push(given.name.clone());
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
    if names.is_empty() { Err("providers: at least one is needed".into()) } else { Ok(providers) }
}

impl Given {
    fn check(self, bin_dir: &Path) -> Result<Provider, String> {
        let Self { name, match_images, default_cache_duration, api_version, args, env, .. } = self;
        if name.is_empty() || name.contains(['/', ' ', '\0']) || name == "." || name == ".." {
            return Err("name: the name of a program in credentials.providers.binDir, not a path".into());
        }
        let program = process::find(&name, [bin_dir]).ok_or_else(|| {
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
        let default_cache_duration = duration::parse(&default_cache_duration)
            .ok_or("defaultCacheDuration: write a duration such as 12h, 30m or 0s")?;
        let api_version = api_version.filter(|version| EXEC_VERSIONS.contains(&version.as_str()));
        let api_version =
            api_version.ok_or_else(|| format!("apiVersion: write one of {}", EXEC_VERSIONS.join(", ")))?;
        let env: Vec<_> = env.unwrap_or_default().into_iter().map(|own| (own.name, own.value)).collect();
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

/// Where, and what of it is about keys only.
fn fault(error: &serde_saphyr::Error) -> String {
    let place = error.location().map_or_else(String::new, |at| format!("line {}: ", at.line()));
    let text = error.without_snippet().to_string();
    let about_keys =
        ["unknown field", "missing field", "duplicate"].iter().find_map(|begin| text.find(begin));
    match about_keys {
        Some(begin) => format!("{place}{}", &text[begin..].lines().next().unwrap_or_default()),
        None => {
            format!("{place}not the YAML of a CredentialProviderConfig: a value of another kind is expected")
        }
    }
}
