//! A program that gives credentials, a helper of docker's or a plugin of kubelet's: its runs, and its answers. As in
//! kubelet (pkg/credentialprovider/plugin/plugin.go), one run at a time serves an image, the answer is cached for the
//! time and the scope that it names, and the answer's keys are matched against the image like those of docker's files.
//! An answer of a helper is for one registry, which stands for the image.

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
const FAILED: Duration = Duration::from_secs(30);
/// Time for which an answer that a registry refuses is kept: a tenant may name many images which that registry denies.
const AGAIN: Duration = Duration::from_secs(10);
/// Runs of one program at a time; of four runs one namespace gets two.
const RUNS: usize = 4;
/// Maximum time that a run waits for others: half of `lookup.timeout`, so that the next credential can still be tried.
const WAIT: Duration = Duration::from_secs(5);
/// Places in the queue for each run: a quarter of them is for all lookups that one namespace has at a time.
const QUEUE: usize = 32;

/// Too many runs of a program are under way. Says nothing about the program's credentials, so it is never cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

/// Protocol between tolerarch and a kind of program.
pub(super) trait Protocol: Send + Sync {
    /// Returns the id of the candidate for an image, whatever its credential is.
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

/// Returns the part of an image's name that all images share for which an answer is good.
pub(super) type Scope = fn(&str) -> &str;

pub(super) const IMAGE: Scope = |image| image;
/// `parseRegistry` of kubelet's plugin.go.
pub(super) const REGISTRY: Scope = |image| image.split('/').next().unwrap_or_default();
pub(super) const GLOBAL: Scope = |_| "";
/// All scopes, whose parts differ: only an image has a slash.
const SCOPES: [Scope; 3] = [IMAGE, REGISTRY, GLOBAL];

#[derive(Debug)]
pub(super) struct Response {
    pub(super) scope: Scope,
    /// Time for which the answer is good; zero for this lookup alone.
    pub(super) life: Duration,
    pub(super) keyring: DockerKeyring<Arc<Credential>>,
}

pub(super) struct Program {
    /// Kind of source, for people.
    pub(super) kind: &'static str,
    pub(super) protocol: Box<dyn Protocol>,
    /// Limit of the runs of this program alone, so that a program that hangs delays no other.
    limit: ConcurrencyLimit,
    /// Scope of the last answer, under which failures are cached.
    scope: Mutex<Scope>,
    /// Answers by what their scope makes of an image.
    answers: Arc<TtlCache<Box<str>, Arc<Answer>>>,
    /// Runs by the image. Each holds the permit of the lookup that started it.
    runs: SingleFlight<Box<str>, Arc<Answer>>,
}

struct Answer {
    failed: bool,
    /// Time from which a refusal drops the answer.
    droppable: Instant,
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
            // Scope until the first answer: a program that fails must not be run for every image.
            scope: Mutex::new(REGISTRY),
            answers: TtlCache::new(CAPACITY, CAPACITY as u64, |_, _| 1),
            runs: SingleFlight::default(),
        })
    }

    /// Returns the credentials for an image, most specific first; runs the program if none are cached.
    pub(super) async fn credentials(
        self: &Arc<Self>,
        image: &str,
        tenant: &Tenant,
    ) -> Result<Vec<Arc<Credential>>, Busy> {
        let answer = match self.cached(image) {
            Some(answer) => answer,
            None => self.ask(image, tenant).await?,
        };
        let credentials = pattern::lookup(std::iter::once(&answer.keyring), image);
        Ok(credentials.into_iter().cloned().collect())
    }

    /// Drops the answer for an image, unless the program ran within the last seconds (`AGAIN`, `FAILED`).
    pub(super) fn refused(&self, image: &str) {
        for scope in SCOPES {
            let key = scope(image).into();
            if let Some(answer) = self.answers.get(&key)
                && answer.droppable <= Instant::now()
            {
                self.answers.remove(&key);
            }
        }
    }

    /// Returns the cached answer of the narrowest scope, or else the failure.
    fn cached(&self, image: &str) -> Option<Arc<Answer>> {
        let answer = |scope: Scope| self.answers.get(&scope(image).into());
        let cached = SCOPES.into_iter().filter_map(answer);
        cached.min_by_key(|answer| answer.failed)
    }

    async fn acquire(&self, image: &str, tenant: &Tenant) -> Result<Permit, Busy> {
        let queued = self.limit.queue(tenant, REGISTRY(image)).ok_or(Busy)?;
        timeout(WAIT, queued).await.map_err(|_| Busy)
    }

    /// Runs the program in the tenant's turn, unless an answer is cached by then, or joins the image's run. A run holds
    /// the permit of the lookup that started it; a lookup that joins gives its permit back.
    async fn ask(self: &Arc<Self>, image: &str, tenant: &Tenant) -> Result<Arc<Answer>, Busy> {
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
                life: FAILED,
                keyring: DockerKeyring::default(),
            }
        });
        *self.scope.lock() = response.scope;
        let answer = Arc::new(Answer {
            failed,
            droppable: Instant::now() + if failed { FAILED } else { AGAIN },
            keyring: response.keyring,
        });
        // A failure replaces no answer that came meanwhile for another image of its scope.
        if !failed || self.cached(image).is_none() {
            let key = (response.scope)(image).into();
            self.answers.put(key, Arc::clone(&answer), response.life);
        }
        answer
    }
}

#[cfg(test)]
mod tests;
