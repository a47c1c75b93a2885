//! Replicas share answers through a real server: each once, and only with tenants that could have got it themselves.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use tempfile::TempDir;
use testregistry::OCI_INDEX;
use tokio::task::JoinHandle;

use super::isolation::tenant;
use super::*;
use crate::shared_cache::{SharedCacheKeeper, SharedCacheMetrics, SharedCacheSettings};
use redis::Redis;
use tolerarch_support::health::{Reported, State};

#[path = "../../../../../e2e/support/redis.rs"]
mod redis;
mod servers;

const ONLY_AMD64: &str = "linux/amd64";

/// A replica of the webhook.
struct Replica {
    remote: Arc<Remote>,
    resolver: Resolver,
    metrics: Metrics,
    state: Reported,
    keeper: JoinHandle<()>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Replica {
    async fn new(remote: &Arc<Remote>, redis: &Redis) -> Self {
        Self::with(remote, &redis.url(), |_, _| {}).await
    }

    async fn with(
        remote: &Arc<Remote>,
        url: &str,
        change: impl FnOnce(&mut SharedCacheSettings, &mut CacheSettings),
    ) -> Self {
        let metrics = Metrics::new([remote.address().as_str()]).unwrap();
        let lookup = LookupSettings::default();
        let mut cache = CacheSettings::default();
        // So long that a machine under load does not look like a dead server.
        let mut settings = SharedCacheSettings {
            url: Some(url.parse().unwrap()),
            timeout: 5 * SECOND,
            ..SharedCacheSettings::default()
        };
        change(&mut settings, &mut cache);
        let counts = SharedCacheMetrics::register(&metrics).unwrap();
        let (shared, mut keeper) = SharedCacheKeeper::begin(settings, counts).await.unwrap();
        let counts = ResolverMetrics::register(&metrics).unwrap();
        let resolver = Resolver::new(registry([&**remote]), lookup, cache, counts, Some(shared));
        let state = keeper.state.clone();
        let keeper = tokio::spawn(async move { keeper.run().await });
        Self {
            remote: Arc::clone(remote),
            resolver,
            metrics,
            state,
            keeper,
        }
    }

    async fn look_up(&self, image: &ImageRef) -> Outcome {
        self.look_up_as(image, &CredentialCandidate::anonymous())
            .await
    }

    async fn look_up_as(&self, image: &ImageRef, candidate: &CredentialCandidate) -> Outcome {
        let candidates = |_: &ImageRef| vec![candidate.clone()].into();
        let budget = 60 * SECOND;
        outcomes(
            &self.resolver,
            Tenant::Operator,
            &[image],
            candidates,
            budget,
        )
        .await[0]
    }

    /// Returns the number of images that were looked up with this result.
    fn lookup_count(&self, result: &str) -> u64 {
        let host = self.remote.address();
        self.metric(&format!(
            "tolerarch_lookups_total{{registry=\"{host}\",result=\"{result}\"}} "
        ))
    }

    fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.render().unwrap();
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
            .parse()
            .unwrap()
    }

    fn operation_count(&self, operation: &str, result: &str) -> u64 {
        const NAME: &str = "tolerarch_shared_cache_requests_total";
        let all = self.metrics.render().unwrap();
        let all = all
            .lines()
            .filter(|line| line.starts_with(&format!("{NAME}{{")));
        assert_eq!(all.count(), 3 * 8, "operations and results are closed sets");
        self.metric(&format!(
            "{NAME}{{operation=\"{operation}\",result=\"{result}\"}} "
        ))
    }

    /// Waits until this many entries have been written.
    async fn wrote(&self, entries: u64) {
        until("writes", || self.operation_count("set", "ok") >= entries).await;
    }

    async fn is(&self, healthy: bool) {
        until("its state", || {
            (self.state.get() == State::Healthy) == healthy
        })
        .await;
    }
}

/// Waits for another process.
async fn until(what: &str, yes: impl Fn() -> bool) {
    let mut times = tokio::time::interval(Duration::from_millis(5));
    let wait = async {
        while !yes() {
            times.tick().await;
        }
    };
    timeout(120 * SECOND, wait)
        .await
        .unwrap_or_else(|_| panic!("waited in vain: {what}"));
}

async fn remote() -> Arc<Remote> {
    Remote::builder().plain_http().start().await.into()
}

/// Returns the methods of the manifest requests since the last call.
fn new_requests(remote: &Remote) -> Vec<String> {
    let requests = remote.requests();
    remote.forget_requests();
    requests
        .iter()
        .filter(|r| r.kind == Kind::Manifest)
        .map(|r| r.method.to_string())
        .collect()
}

fn multi(remote: &Remote, name: &str) -> (Repo, ImageRef) {
    let repo = remote.repo(name);
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    (repo.clone(), repo.reference("v1").parse().unwrap())
}

/// Makes the file with the secret of all replicas.
fn key_file() -> (TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, "a secret of the operator's, 32 bytes\n").unwrap();
    (directory, file)
}

#[tokio::test]
async fn replicas_share_one_query() {
    let Some(redis) = Redis::start(&[]).await else {
        return;
    };
    let remote = remote().await;
    let (repo, tag) = multi(&remote, "app");
    let digest: ImageRef = repo
        .reference(&repo.digest_of("v1").unwrap())
        .parse()
        .unwrap();
    let one = Replica::new(&remote, &redis).await;
    let two = Replica::new(&remote, &redis).await;
    assert_eq!(one.look_up(&tag).await, Ok(BOTH));
    one.wrote(2).await;
    assert_eq!(two.look_up(&tag).await, Ok(BOTH));
    assert_eq!(
        two.look_up(&digest).await,
        Ok(BOTH),
        "the digest is shared with its tag"
    );
    let three = Replica::new(&remote, &redis).await;
    assert_eq!(three.look_up(&digest).await, Ok(BOTH));
    assert_eq!(new_requests(&remote), ["GET"], "one request in sum");
    assert_eq!(
        (two.lookup_count("shared"), two.lookup_count("fetched")),
        (1, 0)
    );
    assert_eq!(
        (
            two.operation_count("get", "hit"),
            two.operation_count("get", "miss")
        ),
        (1, 0),
        "a warm answer needs no server"
    );
    for key in redis.keys() {
        let life: i64 = redis.cli(&["PTTL", &key]).parse().unwrap();
        assert!(
            (1..=7 * 24 * 3_600_000).contains(&life),
            "{key} lives for {life} ms"
        );
        assert!(key.starts_with("tolerarch:"), "{key}");
    }
}

#[tokio::test]
async fn old_shared_answer_is_confirmed_or_served_on_failure() {
    let Some(redis) = Redis::start(&[]).await else {
        return;
    };
    let remote = remote().await;
    let (repo, image) = multi(&remote, "app");
    let old = |_: &mut SharedCacheSettings, cache: &mut CacheSettings| {
        cache.tag = Duration::from_millis(1);
    };
    let one = Replica::with(&remote, &redis.url(), old).await;
    assert_eq!(one.look_up(&image).await, Ok(BOTH));
    one.wrote(2).await;
    until("a millisecond", || redis.cli(&["PING"]) == "PONG").await;
    let two = Replica::with(&remote, &redis.url(), old).await;
    assert_eq!(two.look_up(&image).await, Ok(BOTH));
    assert_eq!(
        new_requests(&remote),
        ["GET", "HEAD"],
        "the registry confirms what another replica fetched"
    );
    repo.fault(Some(Fault::status(503)));
    let three = Replica::with(&remote, &redis.url(), old).await;
    assert_eq!(
        three.look_up(&image).await,
        Ok(BOTH),
        "as after an answer of its own"
    );
}

#[tokio::test]
async fn moved_tag_uses_the_manifest_of_another_replica() {
    let Some(redis) = Redis::start(&[]).await else {
        return;
    };
    let remote = remote().await;
    let (repo, image) = multi(&remote, "app");
    let old = |_: &mut SharedCacheSettings, cache: &mut CacheSettings| {
        cache.tag = Duration::from_millis(1);
    };
    let one = Replica::with(&remote, &redis.url(), old).await;
    assert_eq!(one.look_up(&image).await, Ok(BOTH));
    one.wrote(2).await;
    repo.index(Some("v1"), [ONLY_AMD64]);
    repo.index(Some("v2"), [ONLY_AMD64]);
    let moved: ImageRef = repo.reference("v2").parse().unwrap();
    let two = Replica::with(&remote, &redis.url(), old).await;
    let amd64 = Ok(Support::Index(ONLY_AMD64.parse().unwrap()));
    assert_eq!(two.look_up(&moved).await, amd64);
    two.wrote(2).await;
    new_requests(&remote);
    let three = Replica::with(&remote, &redis.url(), old).await;
    assert_eq!(three.look_up(&image).await, amd64);
    assert_eq!(new_requests(&remote), ["HEAD"]);
}

#[tokio::test]
async fn replicas_share_answers_while_a_registry_fails() {
    let Some(redis) = Redis::start(&[]).await else {
        return;
    };
    let remote = remote().await;
    let [shared, next] = ["shared", "next"].map(|name| multi(&remote, name).1);
    let one = Replica::new(&remote, &redis).await;
    for image in [&shared, &next] {
        assert_eq!(one.look_up(image).await, Ok(BOTH));
    }
    one.wrote(4).await;
    let broken = |name: &str| {
        let (repo, image) = multi(&remote, name);
        repo.fault(Some(Fault::status(503)));
        image
    };
    let two = Replica::new(&remote, &redis).await;
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        assert!(two.look_up(&broken(name)).await.is_err());
    }
    let open = two.look_up(&broken("z")).await;
    assert_eq!(open, Err(LookupError::CircuitOpen));
    assert_eq!(
        two.look_up(&shared).await,
        Ok(BOTH),
        "although the circuit is open"
    );
    let _clock = StoppedClock::stop();
    later(circuit::OPEN).await;
    new_requests(&remote);
    assert_eq!(two.look_up(&next).await, Ok(BOTH));
    assert_eq!(
        (new_requests(&remote).len(), two.lookup_count("shared")),
        (0, 2),
        "a shared answer needs no probe"
    );
    assert_eq!(
        two.look_up(&broken("last")).await,
        Err(LookupError::Unreachable),
        "the next one is the probe"
    );
}

#[tokio::test]
async fn definite_answer_removes_the_shared_one() {
    for (fault, expected) in [
        (Fault::status(403), LookupError::Denied),
        // The tag was pushed again, and is no manifest any more.
        (Fault::body("[]", OCI_INDEX), LookupError::BadManifest),
    ] {
        let Some(redis) = Redis::start(&[]).await else {
            return;
        };
        let remote = remote().await;
        let (repo, image) = multi(&remote, "app");
        let old = |_: &mut SharedCacheSettings, cache: &mut CacheSettings| {
            cache.tag = Duration::from_millis(1);
        };
        let one = Replica::with(&remote, &redis.url(), old).await;
        assert_eq!(one.look_up(&image).await, Ok(BOTH));
        one.wrote(2).await;
        repo.fault(Some(fault));
        let two = Replica::with(&remote, &redis.url(), old).await;
        assert_eq!(two.look_up(&image).await, Err(expected));
        until("the deletion", || two.operation_count("delete", "ok") == 1).await;
        assert_eq!(redis.keys().len(), 1, "the digest's, which is unchanged");
    }
}

#[tokio::test]
async fn credential_answers_are_shared_with_its_holders_only() {
    let Some(redis) = Redis::start(&[]).await else {
        return;
    };
    let remote = remote().await;
    let (repo, image) = multi(&remote, "team/canary-app");
    repo.require(Auth::basic("canary-user", "canary-user"));
    let canary = tenant("canary-user");
    let other = tenant("b");
    let anonymous = CredentialCandidate::anonymous();
    let (_directory, file) = key_file();
    let keyed = |settings: &mut SharedCacheSettings, _: &mut CacheSettings| {
        settings.key_file = Some(file.clone());
    };

    let plain = Replica::new(&remote, &redis).await;
    assert_eq!(plain.look_up_as(&image, &canary).await, Ok(BOTH));
    let (_, public) = multi(&remote, "public");
    assert_eq!(plain.look_up(&public).await, Ok(BOTH));
    plain.wrote(2).await;
    assert_eq!(
        redis.keys().len(),
        2,
        "without a key no answer to a credential is written"
    );

    let one = Replica::with(&remote, &redis.url(), keyed).await;
    assert_eq!(one.look_up(&public).await, Ok(BOTH));
    assert_eq!(
        one.lookup_count("shared"),
        0,
        "an entry without the key's proof is ignored"
    );
    assert_eq!(one.look_up_as(&image, &canary).await, Ok(BOTH));
    one.wrote(4).await;
    new_requests(&remote);
    let two = Replica::with(&remote, &redis.url(), keyed).await;
    assert_eq!(two.look_up_as(&image, &canary).await, Ok(BOTH));
    assert_eq!(
        new_requests(&remote),
        Vec::<String>::new(),
        "the same credential"
    );
    for candidate in [&other, &anonymous] {
        assert_eq!(
            two.look_up_as(&image, candidate).await,
            Err(LookupError::Denied)
        );
    }
    assert!(
        !new_requests(&remote).is_empty(),
        "others do their own lookups"
    );

    let content = redis.content();
    let basic = BASE64.encode("canary-user:canary-user");
    for secret in [
        "canary",
        "team/",
        &basic,
        &remote.address(),
        "secret of the operator",
    ] {
        let found = content
            .windows(secret.len())
            .any(|part| part == secret.as_bytes());
        assert!(!found, "{secret} in a key or a value");
    }
}

#[tokio::test]
async fn lookups_of_a_former_configuration_share_nothing() {
    let Some(redis) = Redis::start(&[]).await else {
        return;
    };
    let remote = remote().await;
    let (_, image) = multi(&remote, "app");
    let one = Replica::new(&remote, &redis).await;
    let lookup = LookupSettings::default();
    let cache = CacheSettings::default();
    let new = one
        .resolver
        .reconfigured(registry([&*remote]), lookup, cache);
    assert_eq!(one.look_up(&image).await, Ok(BOTH));
    until("the lookup's end", || {
        one.resolver.fetcher.flights.count() == 0
    })
    .await;
    let of_new = async |image: &ImageRef| {
        let candidates = |_: &ImageRef| vec![CredentialCandidate::anonymous()].into();
        let budget = 5 * SECOND;
        outcomes(&new, Tenant::Operator, &[image], candidates, budget).await[0]
    };
    assert_eq!(of_new(&multi(&remote, "other").1).await, Ok(BOTH));
    one.wrote(2).await;
    assert_eq!(redis.keys().len(), 2, "those of the second image");
}

#[tokio::test]
async fn lookup_during_a_reload_shares_nothing() {
    let Some(redis) = Redis::start(&[]).await else {
        return;
    };
    let remote = remote().await;
    let one = Replica::new(&remote, &redis).await;
    let (repo, image) = multi(&remote, "app");
    let resolver = one.resolver.clone();
    let reconfigure = move |registry| {
        let lookup = LookupSettings::default();
        drop(resolver.reconfigured(registry, lookup, CacheSettings::default()));
    };
    let queried = Arc::clone(&remote);
    repo.fault(Some(Fault::custom(move |_| {
        reconfigure(registry([&*queried]));
        None
    })));
    assert_eq!(one.look_up(&image).await, Ok(BOTH));
    repo.fault(None);
    let two = Replica::new(&remote, &redis).await;
    assert_eq!(two.look_up(&multi(&remote, "other").1).await, Ok(BOTH));
    two.wrote(2).await;
    assert_eq!(two.look_up(&image).await, Ok(BOTH));
    assert_eq!(
        (two.lookup_count("shared"), two.lookup_count("fetched")),
        (0, 2)
    );
}
