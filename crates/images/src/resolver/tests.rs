//! The resolver against a registry in this process: how many requests it sends, and how long Pods wait.

use testregistry::{Auth, Fault, Kind, Registry as Remote, Reply, Repo};

use futures_util::{FutureExt, StreamExt};
use tokio::time::timeout;

use super::*;
use crate::registry::testing::registry_metrics;
use crate::registry::{AddressGuard, HostSettings};
use tolerarch_core::image::{PlatformSet, Support};
use tolerarch_support::metrics::Metrics;
use tolerarch_support::testing::StoppedClock;

const BOTH: Support = Support::Index(PlatformSet::AMD64_AND_ARM64);
const SECOND: Duration = Duration::from_secs(1);

/// Looks up images, and returns their outcomes in the order of the images.
async fn outcomes(
    resolver: &Resolver,
    tenant: Tenant,
    images: &[&ImageRef],
    candidates: impl Fn(&ImageRef) -> Cow<'static, [CredentialCandidate]>,
    budget: Duration,
) -> Vec<Outcome> {
    let namespace = match &tenant {
        Tenant::Namespace(namespace) => Some(&**namespace),
        Tenant::Operator => None,
    };
    let requester = Requester {
        namespace,
        review: Some("3f1d"),
    };
    let lookups = resolver.lookups(requester, images, candidates, Instant::now() + budget);
    let mut outcomes: Vec<(usize, Outcome)> = lookups.collect().await;
    outcomes.sort_unstable_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// A resolver and its registry. Time passes only in [`later`].
struct ResolverTest {
    remote: Remote,
    resolver: Resolver,
    metrics: Metrics,
    /// Clock, while it is stopped.
    clock: Option<StoppedClock>,
}

impl ResolverTest {
    async fn new() -> Self {
        Self::with(|_, _| {}).await
    }

    async fn with(change: impl FnOnce(&mut LookupSettings, &mut CacheSettings)) -> Self {
        let remote = Remote::builder().plain_http().start().await;
        Self {
            clock: Some(StoppedClock::stop()),
            ..Self::of(remote, &[], change)
        }
    }

    /// Makes a test that does not stop the clock.
    async fn on_another_clock() -> Self {
        Self::of(Remote::builder().plain_http().start().await, &[], |_, _| {})
    }

    /// Makes a test with a running clock, for answers that arrive byte by byte, however slowly.
    async fn on_a_running_clock() -> Self {
        let remote = Remote::builder().plain_http().start().await;
        Self::of(remote, &[], |lookup, _| lookup.timeout = 600 * SECOND)
    }

    /// Makes a test with these other registries.
    fn of(
        remote: Remote,
        others: &[Remote],
        change: impl FnOnce(&mut LookupSettings, &mut CacheSettings),
    ) -> Self {
        let metrics = Metrics::new([remote.address().as_str()]).unwrap();
        let mut lookup = LookupSettings::default();
        let mut cache = CacheSettings::default();
        change(&mut lookup, &mut cache);
        let counts = ResolverMetrics::register(&metrics).unwrap();
        let registry = registry([&remote].into_iter().chain(others));
        let resolver = Resolver::new(registry, lookup, cache, counts, None);
        Self {
            remote,
            resolver,
            metrics,
            clock: None,
        }
    }

    fn multi(&self, name: &str) -> (Repo, ImageRef) {
        let repo = self.remote.repo(name);
        repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
        (repo.clone(), repo.reference("v1").parse().unwrap())
    }

    async fn look_up(&self, image: &ImageRef) -> Outcome {
        self.look_up_within(image, 5 * SECOND).await
    }

    async fn look_up_within(&self, image: &ImageRef, budget: Duration) -> Outcome {
        self.look_up_as(image, &[CredentialCandidate::anonymous()], budget)
            .await
    }

    async fn look_up_as(
        &self,
        image: &ImageRef,
        candidates: &[CredentialCandidate],
        budget: Duration,
    ) -> Outcome {
        let images = [image];
        let candidates = |_: &ImageRef| candidates.to_vec().into();
        let lookup = outcomes(
            &self.resolver,
            Tenant::Operator,
            &images,
            candidates,
            budget,
        );
        self.within(budget, lookup).await[0]
    }

    /// Returns the outcome of `lookup`; a budget of zero ends at once.
    async fn within<T>(&self, budget: Duration, lookup: impl Future<Output = T>) -> T {
        let passing = async {
            if budget.is_zero() && self.clock.is_some() {
                later(budget).await;
            }
        };
        tokio::join!(lookup, passing).0
    }

    /// Returns the methods of the manifest requests since the last call.
    fn new_requests(&self) -> Vec<String> {
        let requests = self.remote.requests();
        self.remote.forget_requests();
        requests
            .iter()
            .filter(|r| r.kind == Kind::Manifest)
            .map(|r| r.method.to_string())
            .collect()
    }

    /// Returns the outcome of `lookup` if the registry does not answer its request for `time`.
    async fn without_answer<T>(&self, lookup: impl Future<Output = T>, time: Duration) -> T {
        let before = self.remote.requests().len();
        let waiting = async {
            self.remote.wait_until(|seen| seen.len() > before).await;
            later(time).await;
        };
        tokio::join!(lookup, waiting).0
    }

    /// Waits until no lookup is in flight.
    async fn wait_until_idle(&self) {
        while self.resolver.fetcher.flights.count() > 0 {
            tokio::task::yield_now().await;
        }
    }

    fn lookup_count(&self, result: &str) -> u64 {
        let name = format!(
            "tolerarch_lookups_total{{registry=\"{}\",result=\"{result}\"}} ",
            self.remote.address()
        );
        let text = self.metrics.render().unwrap();
        text.lines()
            .find_map(|line| line.strip_prefix(&name))
            .unwrap()
            .parse()
            .unwrap()
    }
}

/// Makes a client of these registries, which have no TLS.
fn registry<'r>(remotes: impl IntoIterator<Item = &'r Remote>) -> Registry {
    let guard = AddressGuard {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        deny: vec![],
    };
    let plain = HostSettings {
        plain_http: true,
        ..HostSettings::default()
    };
    let hosts: Vec<_> = remotes
        .into_iter()
        .map(|remote| (remote.address(), plain.clone()))
        .collect();
    Registry::new(hosts, guard, registry_metrics()).unwrap()
}

/// Lets this time pass, and one millisecond more: timers end at the next whole millisecond.
async fn later(time: Duration) {
    tokio::time::advance(time + Duration::from_millis(1)).await;
}

#[tokio::test]
async fn tag_costs_one_get_then_one_head_an_hour() {
    let test = ResolverTest::new().await;
    let (repo, image) = test.multi("app");
    for _ in 0..3 {
        assert_eq!(test.look_up(&image).await, Ok(BOTH));
    }
    assert_eq!(test.new_requests(), ["GET"]);
    later(3601 * SECOND).await;
    for _ in 0..3 {
        assert_eq!(
            test.look_up(&image).await,
            Ok(BOTH),
            "an expired answer is served at once"
        );
        test.wait_until_idle().await;
    }
    assert_eq!(test.new_requests(), ["HEAD"]);
    assert_eq!(
        (
            test.lookup_count("hit"),
            test.lookup_count("stale"),
            test.lookup_count("fetched")
        ),
        (4, 1, 2)
    );

    repo.index(Some("v1"), ["linux/amd64"]);
    later(3601 * SECOND).await;
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
    test.wait_until_idle().await;
    assert_eq!(
        test.look_up(&image).await,
        Ok(Support::Index("linux/amd64".parse().unwrap()))
    );
    assert_eq!(
        test.new_requests(),
        ["HEAD", "GET"],
        "only a changed digest costs a GET"
    );

    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    later(3601 * SECOND).await;
    let _ = test.look_up(&image).await;
    test.wait_until_idle().await;
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
    assert_eq!(
        test.new_requests(),
        ["HEAD"],
        "a cached digest costs no GET"
    );
}

#[tokio::test]
async fn answer_past_its_stale_time_is_refetched() {
    let test = ResolverTest::new().await;
    let (repo, image) = test.multi("app");
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
    repo.index(Some("v1"), ["linux/amd64"]);
    later(2 * 3600 * SECOND).await;
    assert_eq!(
        test.look_up(&image).await,
        Ok(Support::Index("linux/amd64".parse().unwrap()))
    );
}

#[tokio::test]
async fn digest_is_looked_up_once() {
    let test = ResolverTest::new().await;
    let (repo, _) = test.multi("app");
    let image: ImageRef = repo
        .reference(&repo.digest_of("v1").unwrap())
        .parse()
        .unwrap();
    for _ in 0..3 {
        assert_eq!(test.look_up(&image).await, Ok(BOTH));
        later(100_000 * SECOND).await;
    }
    assert_eq!(test.new_requests(), ["GET"]);
}

#[tokio::test]
async fn registry_without_head_gets_one_head_request() {
    for (name, fault) in [
        ("405", Some(Fault::status(405).only_head())),
        ("401", Some(Fault::status(401).only_head())),
        ("403", Some(Fault::status(403).only_head())),
        ("no digest", None),
    ] {
        let test = ResolverTest::new().await;
        let (repo, image) = test.multi("app");
        let (_, other) = test.multi("other");
        for image in [&image, &other] {
            assert_eq!(test.look_up(image).await, Ok(BOTH), "{name}");
        }
        match fault {
            Some(fault) => {
                [&repo, &test.remote.repo("other")]
                    .iter()
                    .for_each(|repo| repo.fault(Some(fault.clone())));
            }
            None => repo.header("docker-content-digest", None),
        }
        test.new_requests();
        later(3601 * SECOND).await;
        for image in [&image, &other] {
            assert_eq!(test.look_up(image).await, Ok(BOTH), "{name}");
            test.wait_until_idle().await;
        }
        assert_eq!(test.new_requests(), ["HEAD", "GET", "GET"], "{name}");
    }
}

#[tokio::test]
async fn fifty_pods_of_a_cold_image_cost_one_request() {
    let test = ResolverTest::new().await;
    let (_, image) = test.multi("app");
    let all = futures_util::future::join_all((0..50).map(|_| test.look_up(&image))).await;
    assert!(all.iter().all(|outcome| *outcome == Ok(BOTH)));
    assert_eq!(test.new_requests(), ["GET"]);
    assert_eq!(
        (
            test.lookup_count("fetched"),
            test.lookup_count("joined") + test.lookup_count("hit")
        ),
        (1, 49)
    );
}

#[tokio::test]
async fn lookup_outlives_a_pod_that_cannot_wait() {
    let test = ResolverTest::on_a_running_clock().await;
    let (repo, image) = test.multi("app");
    repo.fault(Some(Fault::drip(Duration::from_millis(1))));
    assert_eq!(
        test.look_up_within(&image, Duration::ZERO).await,
        Err(LookupError::BudgetExceeded)
    );
    test.wait_until_idle().await;
    assert_eq!(test.look_up_within(&image, Duration::ZERO).await, Ok(BOTH));
    assert_eq!(test.new_requests(), ["GET"]);
}

#[tokio::test]
async fn cached_failures_expire() {
    let test = ResolverTest::new().await;
    let (repo, image) = test.multi("app");
    let gone: ImageRef = repo.reference("gone").parse().unwrap();
    for _ in 0..3 {
        assert_eq!(test.look_up(&gone).await, Err(LookupError::NotFound));
    }
    assert_eq!(test.new_requests(), ["GET"]);
    repo.index(Some("gone"), ["linux/amd64", "linux/arm64"]);
    later(61 * SECOND).await;
    assert_eq!(test.look_up(&gone).await, Ok(BOTH));
    assert_eq!(test.lookup_count("negative"), 2);

    repo.fault(Some(Fault::status(500)));
    assert_eq!(test.look_up(&image).await, Err(LookupError::Unreachable));
    repo.fault(None);
    assert_eq!(test.look_up(&image).await, Err(LookupError::Unreachable));
    later(16 * SECOND).await;
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
}

#[tokio::test]
async fn refreshes_are_no_evictions() {
    let test = ResolverTest::new().await;
    let (repo, image) = test.multi("app");
    for _ in 0..3 {
        assert_eq!(test.look_up(&image).await, Ok(BOTH));
        test.wait_until_idle().await;
        later(3601 * SECOND).await;
    }
    repo.fault(Some(Fault::status(500)));
    let _ = test.look_up(&image).await;
    test.wait_until_idle().await;
    let text = test.metrics.render().unwrap();
    for level in ["tag", "platforms"] {
        assert!(
            text.contains(&format!(
                "tolerarch_cache_evictions_total{{level=\"{level}\"}} 0"
            )),
            "{text}"
        );
        assert!(
            text.contains(&format!("tolerarch_cache_entries{{level=\"{level}\"}} 1")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn refusals_open_no_circuit() {
    let test = ResolverTest::new().await;
    for i in 0..30 {
        let (repo, image) = test.multi(&format!("app{i}"));
        match i % 3 {
            0 => repo.require(Auth::basic("u", "p")),
            1 => repo.fault(Some(Fault::status(403))),
            _ => repo.fault(Some(Fault::status(404))),
        }
        assert!(matches!(
            test.look_up(&image).await,
            Err(LookupError::Denied | LookupError::NotFound)
        ));
    }
    let (_, image) = test.multi("good");
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
}

#[tokio::test]
async fn hanging_registry_delays_no_other_and_has_a_limited_queue() {
    let test =
        ResolverTest::with(|lookup, _| (lookup.concurrency, lookup.per_registry) = (8, 2)).await;
    let (_, good) = test.multi("good");
    let stuck = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let images: Vec<ImageRef> = (0..80)
        .map(|i| {
            format!("{}/app{i}:v1", stuck.local_addr().unwrap())
                .parse()
                .unwrap()
        })
        .collect();
    let outcomes = futures_util::future::join_all(
        images
            .iter()
            .map(|image| test.look_up_within(image, Duration::ZERO)),
    )
    .await;
    let count = |outcome: Outcome| outcomes.iter().filter(|other| **other == outcome).count();
    assert_eq!(count(Err(LookupError::BudgetExceeded)), 2 + 8 * QUEUE);
    assert_eq!(count(Err(LookupError::Overloaded)), 80 - 2 - 8 * QUEUE);
    assert_eq!(test.look_up(&good).await, Ok(BOTH));
}

#[tokio::test]
async fn lookup_beyond_the_full_queue_is_overloaded() {
    let test =
        ResolverTest::with(|lookup, _| (lookup.concurrency, lookup.per_registry) = (2, 2)).await;
    let stuck = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let images: Vec<ImageRef> = (0..=2 * (1 + QUEUE))
        .map(|i| {
            format!(
                "127.0.0.{}:{}/app:v{i}",
                2 + i,
                stuck.local_addr().unwrap().port()
            )
            .parse()
            .unwrap()
        })
        .collect();
    let outcomes = futures_util::future::join_all(
        images
            .iter()
            .map(|image| test.look_up_within(image, Duration::ZERO)),
    )
    .await;
    assert_eq!(outcomes.last(), Some(&Err(LookupError::Overloaded)));
}

#[tokio::test]
async fn cancelled_pods_cancel_no_lookup() {
    let test = ResolverTest::on_a_running_clock().await;
    let (repo, image) = test.multi("app");
    repo.fault(Some(Fault::drip(Duration::from_millis(1))));
    assert!(test.look_up(&image).now_or_never().is_none());
    test.wait_until_idle().await;
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
    assert_eq!(test.new_requests(), ["GET"]);
}

mod hosts;
mod isolation;
mod log;
mod model;
mod outlived;
mod partial;
mod plugins;
mod reload;
mod shared;
mod stress;
mod tags;
mod targets;
mod tenants;
