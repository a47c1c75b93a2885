//! The kubeconfig, so that tolerarch reaches the same cluster as kubectl, with the same rights. Files are found, merged
//! and interpreted as in client-go (`ClientConfigLoadingRules.Load` in `tools/clientcmd/loader.go`,
//! `DirectClientConfig.ClientConfig` in `client_config.go`).

mod file;
mod server;
mod user;

use std::path::{Path, PathBuf};

use kube::config::Config;

use super::access::Access;
use super::error::ConnectError;
use file::{Cluster, Context, User};
use tolerarch_support::environment::Environment;
use tolerarch_support::proxy::Proxies;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A service: the mounted service account, or else `KUBECONFIG`. The service does not start without either.
    Service,
    /// A person who runs a command: the kubeconfig, or else the service account. The command continues without either.
    Person,
}

impl Caller {
    pub(super) fn access(self, environment: &Environment) -> Result<Access, ConnectError> {
        if self == Self::Person {
            return Ok(load(None, None, environment)?.0);
        }
        let config = Config::incluster().map_err(ConnectError::ServiceAccount);
        match config {
            Err(_) if environment.get("KUBECONFIG").is_some() => {}
            config => return Ok(config?.into()),
        }
        // The proxies of a service's environment are for registries.
        Ok(load_with(None, None, environment, &Proxies::default())?.0)
    }
}

/// Loads the file `named`, or else the files of `KUBECONFIG`, or else the file in the home directory. If there is no
/// current context, uses the mounted service account, unless a file was named. Also returns the name of the context.
pub(super) fn load(
    named: Option<&Path>,
    context: Option<&str>,
    environment: &Environment,
) -> Result<(Access, String), ConnectError> {
    let proxies = Proxies::of_kubectl(|name| environment.text(name));
    load_with(named, context, environment, &proxies)
}

/// Loads as [`load`] does; `proxies` apply where the kubeconfig names no proxy.
fn load_with(
    named: Option<&Path>,
    context: Option<&str>,
    environment: &Environment,
    proxies: &Proxies,
) -> Result<(Access, String), ConnectError> {
    let files = match named {
        Some(named) => vec![named.to_owned()],
        None => files(environment),
    };
    let mut merged = Merged::default();
    for file in &files {
        merged.add(file, named.is_some())?;
    }
    let context = context.unwrap_or(&merged.current_context).to_owned();
    if context.is_empty() && named.is_none() {
        return match Config::incluster() {
            Ok(config) => Ok((config.into(), String::new())),
            Err(error) => Err(ConnectError::NoContext(joined(&files), error)),
        };
    }
    Ok((merged.access(&context, proxies)?, context))
}

fn files(environment: &Environment) -> Vec<PathBuf> {
    let value = |name| environment.get(name).filter(|value| !value.is_empty());
    if let Some(list) = value("KUBECONFIG") {
        let mut files: Vec<PathBuf> = std::env::split_paths(list).collect();
        files.retain(|file| !file.as_os_str().is_empty());
        return files;
    }
    let home = Path::new(value("HOME").unwrap_or_default());
    vec![home.join(".kube/config")]
}

fn joined(files: &[PathBuf]) -> String {
    let files = files.iter().map(|file| file.display().to_string());
    let files: Vec<String> = files.collect();
    files.join(", ")
}

/// The entries of all files. If several have the same name, the first one counts; entries are not merged.
#[derive(Default)]
struct Merged {
    current_context: String,
    contexts: Vec<Entry<Context>>,
    clusters: Vec<Entry<Cluster>>,
    users: Vec<Entry<User>>,
}

struct Entry<T> {
    name: String,
    value: T,
    /// Directory of the entry's file, to which its paths are relative.
    directory: PathBuf,
}

impl Merged {
    /// Adds the entries of a file. A missing file counts as empty, unless it was named explicitly.
    fn add(&mut self, path: &Path, is_named: bool) -> Result<(), ConnectError> {
        let Some(file) = file::read(path, is_named)? else {
            return Ok(());
        };
        if self.current_context.is_empty() {
            self.current_context = file.current_context;
        }
        let directory = path.parent().unwrap_or(Path::new(""));
        for file::NamedContext { name, context } in file.contexts {
            add(&mut self.contexts, name, context, directory);
        }
        for file::NamedCluster { name, cluster } in file.clusters {
            add(&mut self.clusters, name, cluster, directory);
        }
        for file::NamedUser { name, user } in file.users {
            add(&mut self.users, name, user, directory);
        }
        Ok(())
    }

    /// Returns the access to the cluster of a context.
    fn access(&self, name: &str, proxies: &Proxies) -> Result<Access, ConnectError> {
        if name.is_empty() {
            return Err(ConnectError::Unusable(
                "it has no current context".to_owned(),
            ));
        }
        let Some(context) = find(&self.contexts, name) else {
            let missing = format!("there is no context {name:?}");
            return Err(ConnectError::Unusable(missing));
        };
        let context = &context.value;
        let Some(cluster) = find(&self.clusters, &context.cluster) else {
            let missing = format!(
                "there is no cluster {:?}, which the context {name:?} names",
                context.cluster
            );
            return Err(ConnectError::Unusable(missing));
        };
        let mut access = server::access(&cluster.value, &cluster.directory, proxies)?;
        // As in client-go, a user who does not exist is anonymous.
        if let Some(user) = find(&self.users, &context.user) {
            user::authenticate(&mut access, &user.value, &user.directory, &cluster.value)?;
        }
        if !context.namespace.is_empty() {
            let namespace = &mut access.config.default_namespace;
            namespace.clone_from(&context.namespace);
        }
        Ok(access)
    }
}

fn add<T>(entries: &mut Vec<Entry<T>>, name: String, value: T, directory: &Path) {
    if find(entries, &name).is_none() {
        entries.push(Entry {
            name,
            value,
            directory: directory.to_owned(),
        });
    }
}

fn find<'e, T>(entries: &'e [Entry<T>], name: &str) -> Option<&'e Entry<T>> {
    entries.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests;
