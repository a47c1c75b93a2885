//! Kubelet's image credential provider plugins: which of them is for an image, and what it said.
//!
//! As kubelet does (pkg/credentialprovider/plugin/plugin.go): one run at a time for an image, its answer cached for the
//! time and the scope that it names, and its keys matched against the image like those of docker's files.

mod config;
mod protocol;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::process::Command;
use tokio::time::{Duration, timeout};

pub(super) use config::{files, read};

use super::credential::{Credential, CredentialId};
use super::docker_keyring::{self, DockerKeyring};
use super::process::{Busy, Limits, Runner};
use super::ttl_cache::TtlCache;
use config::Provider;
use protocol::{CacheKeyType, Response};
use tolerarch_support::concurrency::{Callers, Permit};

/// Cached answers of one plugin.
const CAPACITY: usize = 1000;
/// How long a failed run is cached, so that a plugin that fails is not run for every lookup.
const FAILED: Duration = Duration::from_secs(30);
/// How long after a run it is not run again because a registry refused its credential; for no image of that registry, or
/// a tenant that names many images could have it run all the time.
const AGAIN: Duration = Duration::from_secs(10);
/// How long to wait for a run for another image whose answer may be for this one as well: a tenant can make up an account
/// for which a plugin hangs.
const JOINED: Duration = Duration::from_secs(1);

/// One plugin.
pub(super) struct Plugin {
    provider: Provider,
    id: CredentialId,
    runner: Runner,
    /// The scope of its last answer, which is also that of its failures.
    scope: Mutex<CacheKeyType>,
    answers: Arc<TtlCache<CacheKey, Arc<PluginCredentials>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum CacheKey {
    Answer(Scope),
    /// A run without an answer.
    Failed(Scope),
    /// A run a moment ago, with any result.
    Recent(Scope),
    /// A run because this registry refused a credential.
    Again(Box<str>),
    /// A run for this image alone.
    Alone(Box<str>),
}

/// What an answer is valid for.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Scope {
    Image(Box<str>),
    Registry(Box<str>),
    Global,
}

impl Scope {
    fn of(cache_key: CacheKeyType, image: &str) -> Self {
        match cache_key {
            CacheKeyType::Image => Self::Image(image.into()),
            CacheKeyType::Registry => Self::Registry(registry(image).into()),
            CacheKeyType::Global => Self::Global,
        }
    }

    /// All that hold an image.
    fn all(image: &str) -> impl Iterator<Item = Self> {
        [CacheKeyType::Image, CacheKeyType::Registry, CacheKeyType::Global]
            .into_iter()
            .map(|key| Self::of(key, image))
    }
}

#[derive(Default)]
struct PluginCredentials {
    /// The image that the plugin was run for.
    image: Box<str>,
    keyring: DockerKeyring<Arc<Credential>>,
}

impl Plugin {
    fn new(provider: Provider, limits: Limits) -> Self {
        let mut parts = vec!["plugin", provider.api_version.as_str(), provider.name.as_str()];
        parts.extend(provider.args.iter().map(String::as_str));
        parts.extend(provider.env.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]));
        let id = CredentialId::of(&parts);
        let (runner, answers) = (Runner::new(limits), TtlCache::new(CAPACITY));
        // Until its first answer: a plugin that fails must not be run for every image.
        Self { provider, id, runner, scope: Mutex::new(CacheKeyType::Registry), answers }
    }

    /// The id of its candidates: it is the operator's, so its credentials are the same for all tenants.
    pub(super) fn id(&self) -> CredentialId {
        self.id
    }

    /// Whether it is to be asked for an image (`host/repository`).
    pub(super) fn is_for(&self, image: &str) -> bool {
        self.provider.match_images.iter().any(|pattern| pattern.matches(image))
    }

    /// The credentials for an image, most specific first; runs the plugin if none are cached.
    pub(super) async fn credentials(
        self: &Arc<Self>,
        image: &str,
        callers: &Callers,
    ) -> Result<Vec<Arc<Credential>>, Busy> {
        let answer = match self.cached(image) {
            Some(answer) => answer,
            None => self.ask(image, callers).await?,
        };
        Ok(answer.credentials(image))
    }

    /// The registry of this image accepted one of its credentials.
    pub(super) fn accepted(&self, image: &str) {
        self.runner.accepted(registry(image));
    }

    /// Runs it once more, unless it ran a moment ago, for this image or for another that its registry refused. Whether it
    /// has other credentials now.
    pub(super) async fn refetch(self: &Arc<Self>, image: &str, callers: &Callers) -> bool {
        let again = CacheKey::Again(registry(image).into());
        let mut recent = Scope::all(image).map(CacheKey::Recent).chain([again.clone()]);
        if recent.any(|key| self.answers.get(&key).is_some()) {
            return false;
        }
        self.answers.put(again, Arc::default(), AGAIN);
        let refused = self.cached(image);
        let before = refused.as_ref().map(|answer| answer.credentials(image)).unwrap_or_default();
        let after = self.ask_alone(image, refused, callers).await;
        let after = after.map(|answer| answer.credentials(image)).unwrap_or_default();
        !after.is_empty() && before != after
    }

    fn cached(&self, image: &str) -> Option<Arc<PluginCredentials>> {
        let mut keys = Scope::all(image).map(CacheKey::Answer).chain(Scope::all(image).map(CacheKey::Failed));
        keys.find_map(|key| self.answers.get(&key))
    }

    /// Runs it, or joins a run whose answer will probably be for this image as well: many new images of one registry
    /// cost one run.
    async fn ask(self: &Arc<Self>, image: &str, callers: &Callers) -> Result<Arc<PluginCredentials>, Busy> {
        let scope = *self.scope.lock().unwrap_or_else(PoisonError::into_inner);
        let key = CacheKey::Answer(Scope::of(scope, image));
        let (plugin, name) = (Arc::clone(self), image.to_owned());
        let work = |callers| async move { plugin.ask_alone(&name, None, &callers).await.ok() };
        let shared = timeout(JOINED, self.answers.join(&key, callers, work)).await.ok().flatten();
        match shared.filter(|answer| *answer.image == *image).or_else(|| self.cached(image)) {
            Some(answer) => Ok(answer),
            None => self.ask_alone(image, None, callers).await,
        }
    }

    /// Runs it for this very image, unless there is an answer by the time that it may run; `refused` is none.
    async fn ask_alone(
        self: &Arc<Self>,
        image: &str,
        refused: Option<Arc<PluginCredentials>>,
        callers: &Callers,
    ) -> Result<Arc<PluginCredentials>, Busy> {
        let (plugin, name) = (Arc::clone(self), image.to_owned());
        let work = |callers| async move {
            let turn = plugin.runner.turn(registry(&name), &callers).await.ok()?;
            let is_refused =
                |answer: &_| refused.as_ref().is_some_and(|refused| Arc::ptr_eq(refused, answer));
            match plugin.cached(&name).filter(|answer| !is_refused(answer)) {
                Some(answer) => Some(answer),
                None => Some(plugin.run(&name, turn).await),
            }
        };
        self.answers.join(&CacheKey::Alone(image.into()), callers, work).await.ok_or(Busy)
    }

    async fn run(&self, image: &str, turn: Permit) -> Arc<PluginCredentials> {
        let response = self.response(turn, image).await;
        let scope = {
            let mut last = self.scope.lock().unwrap_or_else(PoisonError::into_inner);
            *last = response.as_ref().map_or(*last, |response| response.cache_key);
            Scope::of(*last, image)
        };
        let answer = match response {
            Ok(Response { cache_duration, keyring, .. }) => {
                let answer = Arc::new(PluginCredentials { image: image.into(), keyring });
                let life = cache_duration.unwrap_or(self.provider.default_cache_duration);
                self.answers.put(CacheKey::Answer(scope.clone()), Arc::clone(&answer), life);
                answer
            }
            Err(fault) => {
                tracing::warn!(
                    plugin = self.provider.name,
                    fault,
                    "a credential provider plugin gives nothing"
                );
                let answer =
                    Arc::new(PluginCredentials { image: image.into(), ..PluginCredentials::default() });
                self.answers.put(CacheKey::Failed(scope.clone()), Arc::clone(&answer), FAILED);
                answer
            }
        };
        self.answers.put(CacheKey::Recent(scope), Arc::clone(&answer), AGAIN);
        answer
    }

    async fn response(&self, turn: Permit, image: &str) -> Result<Response, String> {
        let Provider { program, args, env, api_version, .. } = &self.provider;
        let mut command = Command::new(program);
        command.args(args).envs(env.iter().map(|(name, value)| (name, value)));
        let request = protocol::request(api_version, image);
        match self.runner.run(turn, command, &request).await {
            Err(error) => Err(error.to_string()),
            Ok(output) if !output.success => Err("ended with an error; run it by hand to see which".into()),
            Ok(output) => protocol::response(&output.text, api_version).map_err(|error| error.to_string()),
        }
    }
}

impl PluginCredentials {
    fn credentials(&self, image: &str) -> Vec<Arc<Credential>> {
        let found = docker_keyring::lookup(std::iter::once(((), &self.keyring)), image);
        found.into_iter().map(|(_, _, credential)| Arc::clone(credential)).collect()
    }
}

/// `parseRegistry` of kubelet's plugin.go.
fn registry(image: &str) -> &str {
    image.split('/').next().unwrap_or_default()
}

/// The plugins of these providers, in their order.
pub(super) fn plugins(providers: Vec<Provider>, limits: Limits) -> Vec<Arc<Plugin>> {
    let mut plugins = Vec::new();
    for provider in providers {
        if provider.needs_token {
            tracing::warn!(
                plugin = provider.name,
                "tokenAttributes: plugins that need a service account token are not supported; left out"
            );
        } else {
            plugins.push(Arc::new(Plugin::new(provider, limits)));
        }
    }
    plugins
}

#[cfg(test)]
mod tests;
