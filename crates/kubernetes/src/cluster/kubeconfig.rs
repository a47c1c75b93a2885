//! The kubeconfig, found, merged and understood as client-go does (`ClientConfigLoadingRules.Load` in
//! `tools/clientcmd/loader.go`, `DirectClientConfig.ClientConfig` in `client_config.go`), so that tolerarch reaches the
//! same cluster as kubectl, with the same rights.

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
    /// The mounted service account, else `KUBECONFIG`. A service does not start without either.
    Service,
    /// The person who runs a command: the kubeconfig, else the service account. The command continues without either.
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

/// Loads the named file, else those of `KUBECONFIG`, else the one in the home directory; if none of these has a current
/// context, the mounted service account. Also returns the name of the context.
pub(super) fn load(
    named: Option<&Path>,
    context: Option<&str>,
    environment: &Environment,
) -> Result<(Access, String), ConnectError> {
    let proxies = Proxies::of_kubectl(|name| environment.text(name));
    load_with(named, context, environment, &proxies)
}

/// Loads as [`load`] does; `proxies` count where the kubeconfig names none.
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
        let files: Vec<String> = files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        return match Config::incluster() {
            Ok(config) => Ok((config.into(), String::new())),
            Err(error) => Err(ConnectError::NoContext(files.join(", "), error)),
        };
    }
    Ok((merged.access(&context, proxies)?, context))
}

fn files(environment: &Environment) -> Vec<PathBuf> {
    let given = |name| environment.get(name).filter(|value| !value.is_empty());
    match given("KUBECONFIG") {
        Some(list) => std::env::split_paths(list)
            .filter(|file| !file.as_os_str().is_empty())
            .collect(),
        None => vec![Path::new(given("HOME").unwrap_or_default()).join(".kube/config")],
    }
}

/// The entries of all files. Of several with one name the first counts, as a whole.
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
    /// Directory of its file, to which paths are relative.
    directory: PathBuf,
}

impl Merged {
    /// Adds the entries of a file. A missing one counts as empty, unless it was named explicitly.
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

    /// Returns the way to the cluster of a context.
    fn access(&self, context: &str, proxies: &Proxies) -> Result<Access, ConnectError> {
        if context.is_empty() {
            return Err(ConnectError::Unusable(
                "it has no current context".to_owned(),
            ));
        }
        let Some(Entry { value: chosen, .. }) = find(&self.contexts, context) else {
            return Err(ConnectError::Unusable(format!(
                "there is no context {context:?}"
            )));
        };
        let Some(cluster) = find(&self.clusters, &chosen.cluster) else {
            let missing = format!(
                "there is no cluster {:?}, which the context {context:?} names",
                chosen.cluster
            );
            return Err(ConnectError::Unusable(missing));
        };
        let mut access = server::reach(&cluster.value, &cluster.directory, proxies)?;
        // As in client-go, a user who does not exist is anonymous.
        if let Some(user) = find(&self.users, &chosen.user) {
            user::identify(&mut access, &user.value, &user.directory, &cluster.value)?;
        }
        if !chosen.namespace.is_empty() {
            access
                .config
                .default_namespace
                .clone_from(&chosen.namespace);
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
