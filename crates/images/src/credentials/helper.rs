//! Docker's credential helpers: `docker-credential-NAME get`, the server on standard input, JSON back
//! (github.com/docker/docker-credential-helpers, README). Only those that the operator's own files name.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use tokio::process::Command;
use tokio::time::Duration;

use super::credential::{Credential, CredentialId, Sensitive};
use super::process::{self, Busy, Limits, Runner};
use super::ttl_cache::TtlCache;
use tolerarch_core::image::DOCKER_HUB;
use tolerarch_support::concurrency::Callers;

/// Servers whose answers are cached, for one helper.
const CAPACITY: usize = 1000;
/// How long a credential is cached; helpers do not say. Those that get tokens cache them themselves.
const FOUND: Duration = Duration::from_secs(300);
/// How long a run without a credential is cached.
const NOTHING: Duration = Duration::from_secs(60);
/// How long after a run it is not run again because a registry refused its credential.
const AGAIN: Duration = Duration::from_secs(10);
/// What docker calls Docker Hub.
const HUB_SERVER: &str = "https://index.docker.io/v1/";

/// One helper program.
pub(super) struct Helper {
    name: String,
    program: PathBuf,
    runner: Runner,
    answers: Arc<TtlCache<CacheKey, Option<Arc<Credential>>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum CacheKey {
    Server(String),
    /// A run a moment ago, with any result.
    Recent(String),
}

#[derive(Deserialize)]
struct HelperOutput {
    #[serde(rename = "Username", default)]
    username: String,
    #[serde(rename = "Secret", default)]
    secret: Sensitive,
}

impl Helper {
    /// The helper of this name in these directories.
    ///
    /// # Errors
    /// What is wrong with the name.
    pub(super) fn new(name: &str, directories: &[PathBuf], limits: Limits) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || !name.chars().all(plain) {
            return Err("the name of a credential helper has letters, digits and ._- only".into());
        }
        let file = format!("docker-credential-{name}");
        let program = process::find(&file, directories.iter().map(PathBuf::as_path))
            .ok_or_else(|| format!("{file} is in no directory of the PATH"))?;
        Ok(Self { name: name.into(), program, runner: Runner::new(limits), answers: TtlCache::new(CAPACITY) })
    }

    /// The id of the candidate for this host, whatever its credential is.
    pub(super) fn id(&self, host: &str) -> CredentialId {
        CredentialId::of(&["helper", &self.name, server(host)])
    }

    /// The credential for a host; runs the helper if none is cached.
    pub(super) async fn credential(
        self: &Arc<Self>,
        host: &str,
        callers: &Callers,
    ) -> Result<Option<Arc<Credential>>, Busy> {
        match self.answers.get(&CacheKey::Server(host.into())) {
            Some(answer) => Ok(answer),
            None => self.ask(host, callers).await,
        }
    }

    /// The registry accepted its credential.
    pub(super) fn accepted(&self, host: &str) {
        self.runner.accepted(host);
    }

    #[cfg(test)]
    pub(super) fn has_accepted(&self, host: &str) -> bool {
        self.runner.has_accepted(host)
    }

    /// Runs it once more, unless it ran a moment ago. Whether it has another credential now.
    pub(super) async fn refetch(self: &Arc<Self>, host: &str, callers: &Callers) -> bool {
        if self.answers.get(&CacheKey::Recent(host.into())).is_some() {
            return false;
        }
        let before = self.answers.get(&CacheKey::Server(host.into())).flatten();
        let after = self.ask(host, callers).await.unwrap_or_default();
        after.is_some() && before != after
    }

    async fn ask(self: &Arc<Self>, host: &str, callers: &Callers) -> Result<Option<Arc<Credential>>, Busy> {
        let (helper, name) = (Arc::clone(self), host.to_owned());
        let work = |callers| async move {
            let answer = helper.run(&name, &callers).await.ok()?;
            let life = if answer.is_some() { FOUND } else { NOTHING };
            helper.answers.put(CacheKey::Server(name.clone()), answer.clone(), life);
            helper.answers.put(CacheKey::Recent(name), None, AGAIN);
            Some(answer)
        };
        self.answers.join(&CacheKey::Server(host.into()), callers, work).await.ok_or(Busy)
    }

    async fn run(&self, host: &str, callers: &Callers) -> Result<Option<Arc<Credential>>, Busy> {
        let turn = self.runner.turn(host, callers).await?;
        let mut command = Command::new(&self.program);
        command.arg("get");
        let fault = match self.runner.run(turn, command, server(host).as_bytes()).await {
            // A helper that knows no credential ends with an error as well.
            Ok(output) if !output.success => {
                tracing::debug!(helper = self.name, "a credential helper has nothing for a registry");
                return Ok(None);
            }
            Ok(output) => match serde_json::from_slice::<HelperOutput>(&output.text) {
                Ok(answer) => return Ok(answer.credential().map(Arc::new)),
                Err(_) => "its answer is not what docker's protocol says".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        tracing::warn!(helper = self.name, fault, "a credential helper gives nothing");
        Ok(None)
    }
}

impl HelperOutput {
    fn credential(self) -> Option<Credential> {
        let Self { username, secret } = self;
        match username.as_str() {
            _ if secret.reveal().is_empty() => None,
            "<token>" => Some(Credential::Identity(secret)),
            _ => Some(Credential::Basic { user: username, password: secret }),
        }
    }
}

fn server(host: &str) -> &str {
    if host == DOCKER_HUB { HUB_SERVER } else { host }
}

#[cfg(test)]
mod tests;
