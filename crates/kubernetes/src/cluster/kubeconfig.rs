//! The kubeconfig, found and merged as client-go does (`ClientConfigLoadingRules.Load` in `tools/clientcmd/loader.go`),
//! so that tolerarch reaches the same cluster as kubectl. kube reads each file, and resolves the paths in it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kube::config::{Config, Kubeconfig, KubeconfigError};

use super::error::ConnectError;
use tolerarch_support::environment::Environment;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The mounted service account, else `KUBECONFIG`. A service does not start without either.
    Service,
    /// The person who runs a command: the kubeconfig, else the service account. The command continues without either.
    Person,
}

impl Caller {
    pub(super) fn config(self, environment: &Environment) -> Result<Config, ConnectError> {
        if self == Self::Service {
            let config = Config::incluster().map_err(ConnectError::ServiceAccount);
            if config.is_ok() || environment.get("KUBECONFIG").is_none() {
                return config;
            }
        }
        Ok(load(None, None, environment)?.0)
    }
}

/// Loads the named file, else those of `KUBECONFIG`, else the one in the home directory; if none of these has a current
/// context, the mounted service account. Also returns the name of the context.
pub(super) fn load(
    named: Option<&Path>,
    context: Option<&str>,
    environment: &Environment,
) -> Result<(Config, String), ConnectError> {
    let files = named.map_or_else(|| files(environment), |named| vec![named.to_owned()]);
    let mut merged = Kubeconfig::default();
    for file in &files {
        merged = merged.merge(read(file, named.is_some())?).map_err(unusable)?;
    }
    merged.current_context = context.map(ToOwned::to_owned).or(merged.current_context);
    let context = merged.current_context.clone();
    if context.is_none() && named.is_none() {
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let config = Config::incluster().map_err(|error| ConnectError::NoContext(files.join(", "), error))?;
        return Ok((config, String::new()));
    }
    let mut config = without_proxy_of(environment, Config::try_from(merged).map_err(unusable)?);
    if config.default_namespace.is_empty() {
        "default".clone_into(&mut config.default_namespace);
    }
    Ok((config, context.unwrap_or_default()))
}

/// Drops a proxy of the environment: it is for registries, and kube, which is built without proxies, would refuse to
/// start because of it. A proxy that the kubeconfig names stays, to be refused.
fn without_proxy_of(environment: &Environment, mut config: Config) -> Config {
    let named = |name| environment.text(name).and_then(|text| text.parse().ok());
    let of_environment = |uri: &http::Uri| {
        ["HTTPS_PROXY", "https_proxy"].into_iter().filter_map(named).any(|named: http::Uri| named == *uri)
    };
    config.proxy_url = config.proxy_url.filter(|uri| !of_environment(uri));
    config
}

fn unusable(error: KubeconfigError) -> ConnectError {
    ConnectError::Unusable(Box::new(error))
}

fn files(environment: &Environment) -> Vec<PathBuf> {
    let given = |name| environment.get(name).filter(|value| !value.is_empty());
    match given("KUBECONFIG") {
        Some(list) => std::env::split_paths(list).filter(|file| !file.as_os_str().is_empty()).collect(),
        None => vec![Path::new(given("HOME").unwrap_or_default()).join(".kube/config")],
    }
}

/// Reads a file. A missing one counts as empty, unless it was named explicitly.
fn read(file: &Path, is_named: bool) -> Result<Kubeconfig, ConnectError> {
    let is_none = |why| ConnectError::NoKubeconfig(file.to_owned(), why);
    let mut read = match Kubeconfig::read_from(file) {
        Err(KubeconfigError::ReadConfig(error, _)) if !is_named && error.kind() == ErrorKind::NotFound => {
            return Ok(Kubeconfig::default());
        }
        // The error's text may quote the line before, with a token.
        Err(KubeconfigError::Parse(error)) => {
            let line = error.location().map_or(1, |location| location.line());
            return Err(is_none(format!("line {line} is no YAML that belongs in one")));
        }
        read => read.map_err(unusable)?,
    };
    let is = |own: Option<String>, expected| own.is_none_or(|own| own.is_empty() || own == expected);
    if !is(read.api_version.take(), "v1") || !is(read.kind.take(), "Config") {
        return Err(is_none("its apiVersion and kind are not v1 and Config".to_owned()));
    }
    read.current_context = read.current_context.filter(|name| !name.is_empty());
    Ok(read)
}

#[cfg(test)]
mod tests;
