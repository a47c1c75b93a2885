//! Kubelet's image credential provider plugins: which of them is for an image, and what it said.
//!
//! As kubelet does it (pkg/credentialprovider/plugin/plugin.go): one run at a time for an image, its answer remembered
//! as long and as widely as it says, and its keys matched against the image like those of docker's files.

mod config;
mod protocol;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::process::Command;
use tokio::time::Duration;

pub(super) use config::read;

use super::credential::{Credential, CredentialId};
use super::docker_keyring::{self, DockerKeyring};
use super::process::{Limits, ProcessError, Runner};
use super::ttl_cache::TtlCache;
use config::Provider;
use protocol::{CacheKeyType, Response};

/// Answers of one plugin that are remembered.
const CAPACITY: usize = 1000;
/// How long it is left alone after a run that came to nothing, so that a plugin that fails is not run for every lookup.
const FAILED: Duration = Duration::from_secs(30);
/// How long after a run it is not run again because a registry refuses what it gave; for no name of that registry, as
/// whoever names images could otherwise have it run all the time.
const AGAIN: Duration = Duration::from_secs(10);

/// One plugin.
pub(super) struct Plugin {
    provider: Provider,
    id: CredentialId,
    runner: Runner,
    /// For what its last answer was good. Whatever else is remembered of its runs counts for the same.
    scope: Mutex<CacheKeyType>,
    answers: Arc<TtlCache<CacheKey, Arc<PluginCredentials>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum CacheKey {
    Answer(Scope),
    /// A run that came to nothing.
    Failed(Scope),
    /// A run a moment ago, whatever came of it.
    Recent(Scope),
    /// A run because this registry refused what had been given.
    Again(Box<str>),
}

/// For what something is good.
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
struct PluginCredentials(DockerKeyring<Arc<Credential>>);

impl Plugin {
    fn new(provider: Provider, limits: Limits) -> Self {
        let mut parts = vec!["plugin", provider.api_version.as_str(), provider.name.as_str()];
        parts.extend(provider.args.iter().map(String::as_str));
        parts.extend(provider.env.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]));
        let id = CredentialId::of(&parts);
        let (runner, answers) = (Runner::new(limits), TtlCache::new(CAPACITY));
        // Until it has said more: were it run for every image while it fails, it would hardly do anything else.
        Self { provider, id, runner, scope: Mutex::new(CacheKeyType::Registry), answers }
    }

    /// What tells this plugin from others, whatever it says: it speaks for the operator, to everybody alike.
    pub(super) fn id(&self) -> CredentialId {
        self.id
    }

    /// Whether it is to be asked for an image (`host/repository`).
    pub(super) fn is_for(&self, image: &str) -> bool {
        self.provider.match_images.iter().any(|pattern| pattern.matches(image))
    }

    /// What it has for an image, most specific first; runs it where no answer is remembered.
    pub(super) async fn credentials(self: &Arc<Self>, image: &str) -> Vec<Arc<Credential>> {
        let answer = match self.remembered(image) {
            Some(answer) => Some(answer),
            None => self.ask(image).await,
        };
        answer.map(|answer| answer.credentials(image)).unwrap_or_default()
    }

    /// Runs it once more, unless it ran a moment ago, for this image or for another that its registry refused. Whether it
    /// has something else now.
    pub(super) async fn refetch(self: &Arc<Self>, image: &str) -> bool {
        let again = CacheKey::Again(registry(image).into());
        let mut recent = Scope::all(image).map(CacheKey::Recent).chain([again.clone()]);
        if recent.any(|key| self.answers.get(&key).is_some()) {
            return false;
        }
        self.answers.put(again, Arc::default(), AGAIN);
        let before = self.remembered(image).map(|answer| answer.credentials(image)).unwrap_or_default();
        let after = self.ask(image).await.map(|answer| answer.credentials(image)).unwrap_or_default();
        !after.is_empty() && before != after
    }

    fn remembered(&self, image: &str) -> Option<Arc<PluginCredentials>> {
        let mut keys = Scope::all(image).map(CacheKey::Answer).chain(Scope::all(image).map(CacheKey::Failed));
        keys.find_map(|key| self.answers.get(&key))
    }

    async fn ask(self: &Arc<Self>, image: &str) -> Option<Arc<PluginCredentials>> {
        let (plugin, name) = (Arc::clone(self), image.to_owned());
        let work = async move { plugin.run(&name).await };
        self.answers.join(&CacheKey::Answer(Scope::Image(image.into())), work).await
    }

    /// `None` where it did not come to its turn.
    async fn run(&self, image: &str) -> Option<Arc<PluginCredentials>> {
        let response = self.response(image).await?;
        let scope = {
            let mut last = self.scope.lock().unwrap_or_else(PoisonError::into_inner);
            *last = response.as_ref().map_or(*last, |response| response.cache_key);
            Scope::of(*last, image)
        };
        let answer = match response {
            Ok(Response { cache_duration, keyring, .. }) => {
                let answer = Arc::new(PluginCredentials(keyring));
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
                let answer = Arc::new(PluginCredentials::default());
                self.answers.put(CacheKey::Failed(scope.clone()), Arc::clone(&answer), FAILED);
                answer
            }
        };
        self.answers.put(CacheKey::Recent(scope), Arc::clone(&answer), AGAIN);
        Some(answer)
    }

    async fn response(&self, image: &str) -> Option<Result<Response, String>> {
        let Provider { program, args, env, api_version, .. } = &self.provider;
        let mut command = Command::new(program);
        command.args(args).envs(env.iter().map(|(name, value)| (name, value)));
        let request = protocol::request(api_version, image);
        Some(match self.runner.run(command, &request).await {
            Err(ProcessError::Busy) => return None,
            Err(error) => Err(error.to_string()),
            Ok(output) if !output.success => Err("ended with an error; run it by hand to see which".into()),
            Ok(output) => protocol::response(&output.text, api_version).map_err(|error| error.to_string()),
        })
    }
}

impl PluginCredentials {
    fn credentials(&self, image: &str) -> Vec<Arc<Credential>> {
        let found = docker_keyring::lookup(std::iter::once(((), &self.0)), image);
        found.into_iter().map(|(_, _, credential)| Arc::clone(credential)).collect()
    }
}

/// `parseRegistry` of kubelet's plugin.go.
fn registry(image: &str) -> &str {
    image.split('/').next().unwrap_or_default()
}

/// The plugins that these files name, in their order.
pub(super) fn plugins(providers: Vec<Provider>, limits: Limits) -> Vec<Arc<Plugin>> {
    providers.into_iter().map(|provider| Arc::new(Plugin::new(provider, limits))).collect()
}

#[cfg(test)]
mod tests;
