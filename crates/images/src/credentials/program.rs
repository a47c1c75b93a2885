//! A program that gives credentials, a helper of docker's or a plugin of kubelet's: its runs, and its answers.
//!
//! As kubelet does (pkg/credentialprovider/plugin/plugin.go): one run at a time for an image, its answer cached for the
//! time and the scope that it names, and its keys matched against the image like those of docker's files. An answer of a
//! helper is for one registry, which stands for the image.

use std::sync::Arc;

use tokio::time::{Duration, Instant, timeout};

use super::credential::{Credential, CredentialId};
use super::docker_keyring::{self, DockerKeyring};
use super::helper::Helper;
use super::process::{Busy, Limits, Runner};
use super::provider::Provider;
use super::ttl_cache::TtlCache;
use tolerarch_support::concurrency::{Permit, Tenant};
use tolerarch_support::single_flight::SingleFlight;
use tolerarch_support::sync::Mutex;

/// Cached answers of one program.
const CAPACITY: usize = 1000;
/// How long a failed run is cached, so that a program that fails is not run for every lookup.
const FAILED: Duration = Duration::from_secs(30);
/// How long an answer is kept although a registry refuses its credential, as a tenant may name many images which that denies.
const AGAIN: Duration = Duration::from_secs(10);
/// How long to wait for another image's run, whose answer may be for this one too: an account can make a program hang.
const JOINED: Duration = Duration::from_secs(1);

pub(super) struct Program {
    protocol: Protocol,
    pub(super) runner: Runner,
    /// The scope of its last answer, which is also that of its failures.
    scope: Mutex<Scope>,
    answers: Arc<TtlCache<CacheKey, Arc<Answer>>>,
    /// Each holds the permit of who started it.
    runs: SingleFlight<CacheKey, Option<Arc<Answer>>>,
}

enum Protocol {
    Helper(Helper),
    /// With the id of all its candidates: it is the operator's, so its credentials are the same for all tenants.
    Plugin(Provider, CredentialId),
}

/// For which images an answer is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    Image,
    Registry,
    Global,
}

#[derive(Debug)]
pub(super) struct Response {
    pub(super) scope: Scope,
    /// How long it is good; zero for this time only.
    pub(super) life: Duration,
    pub(super) keyring: DockerKeyring<Arc<Credential>>,
}

impl Scope {
    const ALL: [Self; 3] = [Self::Image, Self::Registry, Self::Global];

    /// What an image shares with all others that are in this scope with it.
    fn part(self, image: &str) -> &str {
        match self {
            Self::Image => image,
            Self::Registry => registry(image),
            Self::Global => "",
        }
    }
}

/// What is cached or under way, for the images of a scope.
#[derive(Clone, PartialEq, Eq, Hash)]
struct CacheKey(Kind, Scope, Box<str>);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Answer,
    /// A run without an answer.
    Failure,
    /// A run for this image alone.
    Alone,
}

impl CacheKey {
    fn new(kind: Kind, scope: Scope, image: &str) -> Self {
        Self(kind, scope, scope.part(image).into())
    }
}

struct Answer {
    image: Box<str>,
    ran: Instant,
    keyring: DockerKeyring<Arc<Credential>>,
}

impl Program {
    pub(super) fn helper(helper: Helper, limits: Limits) -> Arc<Self> {
        Self::new(Protocol::Helper(helper), limits)
    }

    pub(super) fn plugin(provider: Provider, limits: Limits) -> Arc<Self> {
        let id = provider.id();
        Self::new(Protocol::Plugin(provider, id), limits)
    }

    fn new(protocol: Protocol, limits: Limits) -> Arc<Self> {
        let (runner, answers) = (Runner::new(limits), TtlCache::new(CAPACITY));
        // Until its first answer: a program that fails must not be run for every image.
        Arc::new(Self {
            protocol,
            runner,
            scope: Mutex::new(Scope::Registry),
            answers,
            runs: SingleFlight::default(),
        })
    }

    pub(super) fn kind(&self) -> &'static str {
        match self.protocol {
            Protocol::Helper(_) => "credential helper",
            Protocol::Plugin(..) => "credential provider plugin",
        }
    }

    /// The id of its candidate for an image, whatever its credential is.
    pub(super) fn id(&self, image: &str) -> CredentialId {
        match &self.protocol {
            Protocol::Helper(helper) => helper.id(image),
            Protocol::Plugin(_, id) => *id,
        }
    }

    /// Whether the plugin is to be asked for an image (`host/repository`). Files say for what a helper is.
    pub(super) fn is_for(&self, image: &str) -> bool {
        matches!(&self.protocol, Protocol::Plugin(provider, _) if provider.is_for(image))
    }

    /// The credentials for an image, most specific first; runs the program if none are cached.
    pub(super) async fn credentials(
        self: &Arc<Self>,
        image: &str,
        tenant: &Tenant,
    ) -> Result<Vec<Arc<Credential>>, Busy> {
        let answer = match self.cached(image) {
            Some(answer) => answer,
            None => self.ask(image, tenant).await?,
        };
        Ok(answer.credentials(image))
    }

    /// Drops the answer for an image, unless the program ran a moment ago.
    pub(super) fn refused(&self, image: &str) {
        for key in Scope::ALL.map(|scope| CacheKey::new(Kind::Answer, scope, image)) {
            if let Some(answer) = self.answers.get(&key).filter(|answer| answer.ran.elapsed() >= AGAIN) {
                self.answers.put(key, answer, Duration::ZERO);
            }
        }
    }

    fn cached(&self, image: &str) -> Option<Arc<Answer>> {
        let mut kinds = [Kind::Answer, Kind::Failure].into_iter();
        kinds.find_map(|kind| {
            Scope::ALL.into_iter().find_map(|scope| self.answers.get(&CacheKey::new(kind, scope, image)))
        })
    }

    /// Runs it when it is the tenant's turn, or joins a run that is probably for this image as well: many new images of
    /// one registry cost one run.
    async fn ask(self: &Arc<Self>, image: &str, tenant: &Tenant) -> Result<Arc<Answer>, Busy> {
        let turn = Arc::new(self.runner.turn(registry(image), tenant).await?);
        let key = CacheKey::new(Kind::Answer, *self.scope.lock(), image);
        let alone = || Arc::clone(self).ask_alone(image.to_owned(), Arc::clone(&turn));
        let shared = timeout(JOINED, self.runs.run(key, alone)).await.ok().and_then(Result::ok).flatten();
        match shared.filter(|answer| *answer.image == *image).or_else(|| self.cached(image)) {
            Some(answer) => Ok(answer),
            None => alone().await.ok_or(Busy),
        }
    }

    /// Runs it for this very image, unless there is an answer by now. `None` if that panics.
    async fn ask_alone(self: Arc<Self>, image: String, turn: Arc<Permit>) -> Option<Arc<Answer>> {
        let key = CacheKey::new(Kind::Alone, Scope::Image, &image);
        let program = Arc::clone(&self);
        let work = || async move {
            match program.cached(&image) {
                Some(answer) => Some(answer),
                None => Some(program.run(&image, &turn).await),
            }
        };
        self.runs.run(key, work).await.ok().flatten()
    }

    async fn run(&self, image: &str, turn: &Permit) -> Arc<Answer> {
        let (command, input) = match &self.protocol {
            Protocol::Helper(helper) => helper.request(image),
            Protocol::Plugin(provider, _) => provider.request(image),
        };
        let output = self.runner.run(turn, command, &input).await;
        let response = match &self.protocol {
            Protocol::Helper(helper) => Some(helper.response(image, output)),
            Protocol::Plugin(provider, _) => provider.response(output),
        };
        let scope = {
            let mut last = self.scope.lock();
            *last = response.as_ref().map_or(*last, |response| response.scope);
            *last
        };
        let (kind, life, keyring) = match response {
            Some(Response { life, keyring, .. }) => (Kind::Answer, life, keyring),
            None => (Kind::Failure, FAILED, DockerKeyring::default()),
        };
        let answer = Arc::new(Answer { image: image.into(), ran: Instant::now(), keyring });
        self.answers.put(CacheKey::new(kind, scope, image), Arc::clone(&answer), life);
        answer
    }
}

impl Answer {
    fn credentials(&self, image: &str) -> Vec<Arc<Credential>> {
        let found = docker_keyring::lookup(std::iter::once(((), &self.keyring)), image);
        found.into_iter().map(|(_, _, credential)| Arc::clone(credential)).collect()
    }
}

/// `parseRegistry` of kubelet's plugin.go.
fn registry(image: &str) -> &str {
    image.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
