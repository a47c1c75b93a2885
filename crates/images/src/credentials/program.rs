//! Runs and cached answers of a program that gives credentials: a helper of docker or a plugin of kubelet. The rules
//! are kubelet's (pkg/credentialprovider/plugin/plugin.go): an image has one run at a time, and an answer is cached for
//! the time and the scope that it names. The answer's keys are matched against the image like those of docker's files.
//! An answer of a helper is for one registry, whose host takes the place of the image.

use std::sync::Arc;

use tokio::process::Command;
use tokio::time::{Duration, Instant, timeout};

use super::credential::{Credential, CredentialId};
use super::pattern::{self, DockerKeyring};
use super::process::{self, Output, ProcessError};
use crate::ttl_cache::TtlCache;
use tolerarch_support::concurrency::{Capacity, ConcurrencyLimit, Permit, Tenant};
use tolerarch_support::single_flight::SingleFlight;
use tolerarch_support::sync::Mutex;

/// Maximum number of cached answers of one program.
const CAPACITY: usize = 1000;
/// Time for which a failed run is cached, so that a program that fails is not run for every lookup.
const FAILURE_LIFE: Duration = Duration::from_secs(30);
/// Minimum time for which an answer is cached although the registry refuses its credentials: a tenant may name many
/// images that the registry denies.
const REFUSED_LIFE: Duration = Duration::from_secs(10);
/// Maximum number of concurrent runs of one program; one namespace gets two of the four.
const RUNS: usize = 4;
/// Maximum time that a run waits for others: half of `lookup.timeout`, so that the next credential can still be tried.
const WAIT: Duration = Duration::from_secs(5);
/// Number of places in the queue for each run; one namespace gets a quarter of them.
const QUEUE: usize = 32;

/// Error: too many runs of a program are under way. It says nothing about the program's credentials, so it is never
/// cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

/// Protocol between tolerarch and a kind of program.
pub(super) trait Protocol: Send + Sync {
    /// Returns the ID of the candidate for an image, which does not depend on the program's answer.
    fn id(&self, image: &str) -> CredentialId;

    /// Returns the command for an image, and its input.
    fn request(&self, image: &str) -> (Command, Vec<u8>);

    /// Parses the output of a run. An error quotes nothing of the output, which may be secret.
    fn response(
        &self,
        image: &str,
        output: Result<Output, ProcessError>,
    ) -> Result<Response, String>;
}

/// Scope of an answer, as a function: it returns the part of an image's name that all images in the scope share.
pub(super) type Scope = fn(&str) -> &str;

pub(super) const IMAGE: Scope = |image| image;
/// `parseRegistry` of kubelet's plugin.go.
pub(super) const REGISTRY: Scope = |image| image.split('/').next().unwrap_or_default();
pub(super) const GLOBAL: Scope = |_| "";
/// All scopes, the narrowest first. Their parts never coincide: only an image has a slash.
const SCOPES: [Scope; 3] = [IMAGE, REGISTRY, GLOBAL];

#[derive(Debug)]
pub(super) struct Response {
    pub(super) scope: Scope,
    /// Time for which the answer is valid; zero if it is valid for this lookup alone.
    pub(super) life: Duration,
    pub(super) keyring: DockerKeyring<Arc<Credential>>,
}

pub(super) struct Program {
    /// Kind of source, for people.
    pub(super) kind: &'static str,
    pub(super) protocol: Box<dyn Protocol>,
    /// Limit on the runs of this program alone, so that a program that hangs delays no other.
    limit: ConcurrencyLimit,
    /// Scope of the last answer; failures are cached with this scope.
    scope: Mutex<Scope>,
    /// Answers, by the part of an image's name that their scope returns.
    answers: Arc<TtlCache<Box<str>, Arc<Answer>>>,
    /// Runs by image. Each holds the permit of the lookup that started it.
    runs: SingleFlight<Box<str>, Arc<Answer>>,
}

struct Answer {
    failed: bool,
    /// Time from which a refusal drops the answer.
    droppable_from: Instant,
    keyring: DockerKeyring<Arc<Credential>>,
}

impl Program {
    pub(super) fn new(kind: &'static str, protocol: impl Protocol + 'static) -> Arc<Self> {
        Arc::new(Self {
            kind,
            protocol: Box::new(protocol),
            limit: ConcurrencyLimit::new(Capacity {
                all: RUNS,
                per_host: RUNS,
                waiting: QUEUE * RUNS,
            }),
            // Until the first answer: a program that fails must not be run for every image.
            scope: Mutex::new(REGISTRY),
            answers: TtlCache::new(CAPACITY, CAPACITY as u64, |_, _| 1),
            runs: SingleFlight::default(),
        })
    }

    /// Returns the credentials for an image, the most specific first; runs the program if no answer is cached.
    pub(super) async fn credentials(
        self: &Arc<Self>,
        image: &str,
        tenant: &Tenant,
    ) -> Result<Vec<Arc<Credential>>, Busy> {
        let answer = match self.cached(image) {
            Some(answer) => answer,
            None => self.run_in_turn(image, tenant).await?,
        };
        let credentials = pattern::lookup(std::iter::once(&answer.keyring), image);
        Ok(credentials.into_iter().cloned().collect())
    }

    /// Drops the answer for an image, unless the program ran within the last seconds (`REFUSED_LIFE`, `FAILURE_LIFE`).
    pub(super) fn refused(&self, image: &str) {
        for scope in SCOPES {
            let key = scope(image).into();
            if let Some(answer) = self.answers.get(&key)
                && answer.droppable_from <= Instant::now()
            {
                self.answers.remove(&key);
            }
        }
    }

    /// Returns the cached answer of the narrowest scope, otherwise the cached failure.
    fn cached(&self, image: &str) -> Option<Arc<Answer>> {
        let mut failure = None;
        for scope in SCOPES {
            match self.answers.get(&scope(image).into()) {
                Some(answer) if answer.failed => failure = failure.or(Some(answer)),
                Some(answer) => return Some(answer),
                None => {}
            }
        }
        failure
    }

    async fn acquire(&self, image: &str, tenant: &Tenant) -> Result<Permit, Busy> {
        let queued = self.limit.queue(tenant, REGISTRY(image)).ok_or(Busy)?;
        timeout(WAIT, queued).await.map_err(|_| Busy)
    }

    /// Waits for the tenant's permit. Then joins the image's run, or runs the program unless an answer is cached by
    /// then. A run holds the permit of the lookup that started it; a lookup that joins returns its permit.
    async fn run_in_turn(
        self: &Arc<Self>,
        image: &str,
        tenant: &Tenant,
    ) -> Result<Arc<Answer>, Busy> {
        let permit = self.acquire(image, tenant).await?;
        let program = Arc::clone(self);
        let key = image.into();
        let image = image.to_owned();
        let work = move || async move {
            let _held = permit;
            match program.cached(&image) {
                Some(answer) => answer,
                None => program.run(&image).await,
            }
        };
        self.runs.run(key, work).await.map_err(|_| Busy)
    }

    async fn run(&self, image: &str) -> Arc<Answer> {
        let (command, input) = self.protocol.request(image);
        let program = command.as_std().get_program().to_owned();
        let output = process::run(command, &input).await;
        let result = self.protocol.response(image, output);
        let failed = result.is_err();
        let response = result.unwrap_or_else(|fault| {
            tracing::warn!(?program, fault, "a {} gives nothing", self.kind);
            Response {
                scope: *self.scope.lock(),
                life: FAILURE_LIFE,
                keyring: DockerKeyring::default(),
            }
        });
        *self.scope.lock() = response.scope;
        let min_life = if failed { FAILURE_LIFE } else { REFUSED_LIFE };
        let answer = Arc::new(Answer {
            failed,
            droppable_from: Instant::now() + min_life,
            keyring: response.keyring,
        });
        // A failure does not replace an answer that arrived meanwhile for another image of its scope.
        if !failed || self.cached(image).is_none() {
            let key = (response.scope)(image).into();
            self.answers.put(key, Arc::clone(&answer), response.life);
        }
        answer
    }
}

#[cfg(test)]
mod tests;
