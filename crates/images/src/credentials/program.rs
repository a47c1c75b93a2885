//! A program that gives credentials, a helper of docker's or a plugin of kubelet's: its runs, and its answers.
//!
//! As kubelet does (pkg/credentialprovider/plugin/plugin.go): one run at a time for an image, its answer cached for the
//! time and the scope that it names, and its keys matched against the image like those of docker's files. An answer of a
//! helper is for one registry, which stands for the image.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use super::credential::{Credential, CredentialId};
use super::docker_keyring::{self, DockerKeyring};
use super::helper::Helper;
use super::process::{Busy, Limits, Runner};
use super::provider::{CacheKey, Provider, Response, Scope, registry};
use crate::ttl_cache::TtlCache;
use tolerarch_support::concurrency::{Permit, Tenant};
use tolerarch_support::single_flight::SingleFlight;
use tolerarch_support::sync::Mutex;

/// Cached answers of one program.
const CAPACITY: usize = 1000;
/// How long a failed run is cached, so that a program that fails is not run for every lookup.
const FAILED: Duration = Duration::from_secs(30);
/// How long an answer is kept although a registry refuses its credential, as a tenant may name many images which that denies.
const AGAIN: Duration = Duration::from_secs(10);

pub(super) struct Program {
    protocol: Protocol,
    pub(super) runner: Runner,
    /// The scope of its last answer, which is also that of its failures.
    scope: Mutex<Scope>,
    answers: Arc<TtlCache<CacheKey, Arc<Answer>>>,
    /// By the image. Each holds the permit of who started it.
    runs: SingleFlight<Box<str>, Arc<Answer>>,
}

enum Protocol {
    Helper(Helper),
    /// With the id of all its candidates: it is the operator's, so its credentials are the same for all tenants.
    Plugin(Provider, CredentialId),
}

struct Answer {
    /// From when on a refusal drops it.
    droppable: Instant,
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
        let found = docker_keyring::lookup(std::iter::once(&answer.keyring), image);
        Ok(found.into_iter().cloned().collect())
    }

    /// Drops the answer for an image, unless the program ran a moment ago.
    pub(super) fn refused(&self, image: &str) {
        for key in Scope::ALL.map(|scope| scope.key(image)) {
            if self.answers.get(&key).is_some_and(|answer| answer.droppable <= Instant::now()) {
                self.answers.remove(&key);
            }
        }
    }

    fn cached(&self, image: &str) -> Option<Arc<Answer>> {
        Scope::ALL.into_iter().find_map(|scope| self.answers.get(&scope.key(image)))
    }

    /// Runs it when it is the tenant's turn, unless there is an answer by then, or joins the image's run, which is by the
    /// share of who began it: who joins gives the permit back.
    async fn ask(self: &Arc<Self>, image: &str, tenant: &Tenant) -> Result<Arc<Answer>, Busy> {
        let permit = self.runner.turn(registry(image), tenant).await?;
        let (program, own) = (Arc::clone(self), image.to_owned());
        let work = move || async move {
            match program.cached(&own) {
                Some(answer) => answer,
                None => program.run(&own, &permit).await,
            }
        };
        self.runs.run(image.into(), work).await.map_err(|_| Busy)
    }

    async fn run(&self, image: &str, permit: &Permit) -> Arc<Answer> {
        let (command, input) = match &self.protocol {
            Protocol::Helper(helper) => helper.request(image),
            Protocol::Plugin(provider, _) => provider.request(image),
        };
        let program = command.as_std().get_program().to_owned();
        let output = self.runner.run(permit, command, &input).await;
        let response = match &self.protocol {
            Protocol::Helper(helper) => helper.response(image, output),
            Protocol::Plugin(provider, _) => provider.response(output),
        };
        let now = Instant::now();
        let Response { scope, life, keyring } = match response {
            Ok(response) => response,
            Err(fault) => {
                tracing::warn!(?program, fault, "a {} gives nothing", self.kind());
                let failure = Arc::new(Answer { droppable: now + FAILED, keyring: DockerKeyring::default() });
                // What came meanwhile for other images of this scope stays.
                if self.cached(image).is_none() {
                    self.answers.put(self.scope.lock().key(image), Arc::clone(&failure), FAILED);
                }
                return failure;
            }
        };
        *self.scope.lock() = scope;
        let answer = Arc::new(Answer { droppable: now + AGAIN, keyring });
        self.answers.put(scope.key(image), Arc::clone(&answer), life);
        answer
    }
}

#[cfg(test)]
mod tests;
