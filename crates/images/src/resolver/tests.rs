//! The resolver against a registry in this process: the number of requests, and the time that a Pod waits.

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
    outcomes.sort_unstable_by_key(|(place, _)| *place);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// A resolver and its registry. Time passes only by [`later`].
struct Bench {
    remote: Remote,
    resolver: Resolver,
    metrics: Metrics,
    /// Clock, while it is stopped.
    clock: Option<StoppedClock>,
}

impl Bench {
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

    /// Makes a bench with the clock as it is.
    async fn on_another_clock() -> Self {
        Self::of(Remote::builder().plain_http().start().await, &[], |_, _| {})
    }

    /// Makes a bench with a running clock, for answers that come byte by byte, however slowly.
    async fn on_a_running_clock() -> Self {
        let remote = Remote::builder().plain_http().start().await;
        Self::of(remote, &[], |lookup, _| lookup.timeout = 600 * SECOND)
    }

    /// Makes a bench with these other registries.
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

    async fn ask(&self, image: &ImageRef) -> Outcome {
        self.ask_within(image, 5 * SECOND).await
    }

    async fn ask_within(&self, image: &ImageRef, budget: Duration) -> Outcome {
        self.ask_as(image, &[CredentialCandidate::anonymous()], budget)
            .await
    }

    async fn ask_as(
        &self,
        image: &ImageRef,
        candidates: &[CredentialCandidate],
        budget: Duration,
    ) -> Outcome {
        let images = [image];
        let candidates = |_: &ImageRef| candidates.to_vec().into();
        let asking = outcomes(
            &self.resolver,
            Tenant::Operator,
            &images,
            candidates,
            budget,
        );
        self.within(budget, asking).await[0]
    }

    /// Returns the outcome of `asking`; a budget of zero passes at once.
    async fn within<T>(&self, budget: Duration, asking: impl Future<Output = T>) -> T {
        let passing = async {
            if budget.is_zero() && self.clock.is_some() {
                later(budget).await;
            }
        };
        tokio::join!(asking, passing).0
    }

    /// Returns the methods of the manifest requests since the last call.
    fn seen(&self) -> Vec<String> {
        let requests = self.remote.requests();
        self.remote.forget_requests();
        requests
            .iter()
            .filter(|r| r.kind == Kind::Manifest)
            .map(|r| r.method.to_string())
            .collect()
    }

    /// Returns the outcome of `asking` when a registry leaves its request without an answer for `time`.
    async fn unanswered<T>(&self, asking: impl Future<Output = T>, time: Duration) -> T {
        let before = self.remote.requests().len();
        let waiting = async {
            self.remote.wait_until(|seen| seen.len() > before).await;
            later(time).await;
        };
        tokio::join!(asking, waiting).0
    }

    /// Waits until no lookup is in flight.
    async fn landed(&self) {
        while self.resolver.fetcher.flights.count() > 0 {
            tokio::task::yield_now().await;
        }
    }

    fn counted(&self, result: &str) -> u64 {
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

/// Lets time pass, and a millisecond: timers end with the next whole one.
async fn later(time: Duration) {
    tokio::time::advance(time + Duration::from_millis(1)).await;
}

#[tokio::test]
async fn a_tag_costs_one_get_then_one_head_an_hour() {
    let bench = Bench::new().await;
    let (repo, image) = bench.multi("app");
    for _ in 0..3 {
        assert_eq!(bench.ask(&image).await, Ok(BOTH));
    }
    assert_eq!(bench.seen(), ["GET"]);
    later(3601 * SECOND).await;
    for _ in 0..3 {
        assert_eq!(
            bench.ask(&image).await,
            Ok(BOTH),
            "an expired answer serves at once"
        );
        bench.landed().await;
    }
    assert_eq!(bench.seen(), ["HEAD"]);
    assert_eq!(
        (
            bench.counted("hit"),
            bench.counted("stale"),
            bench.counted("fetched")
        ),
        (4, 1, 2)
    );

    repo.index(Some("v1"), ["linux/amd64"]);
    later(3601 * SECOND).await;
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
    bench.landed().await;
    assert_eq!(
        bench.ask(&image).await,
        Ok(Support::Index("linux/amd64".parse().unwrap()))
    );
    assert_eq!(
        bench.seen(),
        ["HEAD", "GET"],
        "only a changed digest costs a GET"
    );

    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    later(3601 * SECOND).await;
    let _ = bench.ask(&image).await;
    bench.landed().await;
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
    assert_eq!(bench.seen(), ["HEAD"], "and a known digest none");
}

#[tokio::test]
async fn an_answer_past_its_stale_time_is_waited_for() {
    let bench = Bench::new().await;
    let (repo, image) = bench.multi("app");
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
    repo.index(Some("v1"), ["linux/amd64"]);
    later(2 * 3600 * SECOND).await;
    assert_eq!(
        bench.ask(&image).await,
        Ok(Support::Index("linux/amd64".parse().unwrap()))
    );
}

#[tokio::test]
async fn a_digest_is_asked_for_once() {
    let bench = Bench::new().await;
    let (repo, _) = bench.multi("app");
    let image: ImageRef = repo
        .reference(&repo.digest_of("v1").unwrap())
        .parse()
        .unwrap();
    for _ in 0..3 {
        assert_eq!(bench.ask(&image).await, Ok(BOTH));
        later(100_000 * SECOND).await;
    }
    assert_eq!(bench.seen(), ["GET"]);
}

#[tokio::test]
async fn registries_without_head_are_asked_by_get_and_remembered() {
    for (name, fault) in [
        ("405", Some(Fault::status(405).only_head())),
        ("401", Some(Fault::status(401).only_head())),
        ("403", Some(Fault::status(403).only_head())),
        ("no digest", None),
    ] {
        let bench = Bench::new().await;
        let (repo, image) = bench.multi("app");
        let (_, other) = bench.multi("other");
        for image in [&image, &other] {
            assert_eq!(bench.ask(image).await, Ok(BOTH), "{name}");
        }
        match fault {
            Some(fault) => {
                [&repo, &bench.remote.repo("other")]
                    .iter()
                    .for_each(|repo| repo.fault(Some(fault.clone())));
            }
            None => repo.header("docker-content-digest", None),
        }
        bench.seen();
        later(3601 * SECOND).await;
        for image in [&image, &other] {
            assert_eq!(bench.ask(image).await, Ok(BOTH), "{name}");
            bench.landed().await;
        }
        assert_eq!(bench.seen(), ["HEAD", "GET", "GET"], "{name}");
    }
}

#[tokio::test]
async fn fifty_pods_of_a_cold_image_cost_one_request() {
    let bench = Bench::new().await;
    let (_, image) = bench.multi("app");
    let all = futures_util::future::join_all((0..50).map(|_| bench.ask(&image))).await;
    assert!(all.iter().all(|outcome| *outcome == Ok(BOTH)));
    assert_eq!(bench.seen(), ["GET"]);
    assert_eq!(
        (
            bench.counted("fetched"),
            bench.counted("joined") + bench.counted("hit")
        ),
        (1, 49)
    );
}

#[tokio::test]
async fn a_pod_that_cannot_wait_leaves_an_answer_behind() {
    let bench = Bench::on_a_running_clock().await;
    let (repo, image) = bench.multi("app");
    repo.fault(Some(Fault::drip(Duration::from_millis(1))));
    assert_eq!(
        bench.ask_within(&image, Duration::ZERO).await,
        Err(LookupError::BudgetExceeded)
    );
    bench.landed().await;
    assert_eq!(bench.ask_within(&image, Duration::ZERO).await, Ok(BOTH));
    assert_eq!(bench.seen(), ["GET"]);
}

#[tokio::test]
async fn failures_are_remembered_for_a_while_and_then_asked_about_again() {
    let bench = Bench::new().await;
    let (repo, image) = bench.multi("app");
    let gone: ImageRef = repo.reference("gone").parse().unwrap();
    for _ in 0..3 {
        assert_eq!(bench.ask(&gone).await, Err(LookupError::NotFound));
    }
    assert_eq!(bench.seen(), ["GET"]);
    repo.index(Some("gone"), ["linux/amd64", "linux/arm64"]);
    later(61 * SECOND).await;
    assert_eq!(bench.ask(&gone).await, Ok(BOTH));
    assert_eq!(bench.counted("negative"), 2);

    repo.fault(Some(Fault::status(500)));
    assert_eq!(bench.ask(&image).await, Err(LookupError::Unreachable));
    repo.fault(None);
    assert_eq!(bench.ask(&image).await, Err(LookupError::Unreachable));
    later(16 * SECOND).await;
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
}

#[tokio::test]
async fn refreshes_are_no_evictions() {
    let bench = Bench::new().await;
    let (repo, image) = bench.multi("app");
    for _ in 0..3 {
        assert_eq!(bench.ask(&image).await, Ok(BOTH));
        bench.landed().await;
        later(3601 * SECOND).await;
    }
    repo.fault(Some(Fault::status(500)));
    let _ = bench.ask(&image).await;
    bench.landed().await;
    let text = bench.metrics.render().unwrap();
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
async fn refusals_do_not_open_the_circuit() {
    let bench = Bench::new().await;
    for i in 0..30 {
        let (repo, image) = bench.multi(&format!("app{i}"));
        match i % 3 {
            0 => repo.require(Auth::basic("u", "p")),
            1 => repo.fault(Some(Fault::status(403))),
            _ => repo.fault(Some(Fault::status(404))),
        }
        assert!(matches!(
            bench.ask(&image).await,
            Err(LookupError::Denied | LookupError::NotFound)
        ));
    }
    let (_, image) = bench.multi("good");
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
}

#[tokio::test]
async fn a_hung_registry_delays_no_other_and_its_queue_is_bounded() {
    let bench = Bench::with(|lookup, _| (lookup.concurrency, lookup.per_registry) = (8, 2)).await;
    let (_, good) = bench.multi("good");
    let stuck = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let images: Vec<ImageRef> = (0..80)
        .map(|i| {
            format!("{}/app{i}:v1", stuck.local_addr().unwrap())
                .parse()
                .unwrap()
        })
        .collect();
    let asked = futures_util::future::join_all(
        images
            .iter()
            .map(|image| bench.ask_within(image, Duration::ZERO)),
    )
    .await;
    let count = |outcome: Outcome| asked.iter().filter(|asked| **asked == outcome).count();
    assert_eq!(count(Err(LookupError::BudgetExceeded)), 2 + 8 * QUEUE);
    assert_eq!(count(Err(LookupError::Overloaded)), 80 - 2 - 8 * QUEUE);
    assert_eq!(bench.ask(&good).await, Ok(BOTH));
}

#[tokio::test]
async fn too_many_lookups_in_all_let_pods_pass() {
    let bench = Bench::with(|lookup, _| (lookup.concurrency, lookup.per_registry) = (2, 2)).await;
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
    let asked = futures_util::future::join_all(
        images
            .iter()
            .map(|image| bench.ask_within(image, Duration::ZERO)),
    )
    .await;
    assert_eq!(asked.last(), Some(&Err(LookupError::Overloaded)));
}

#[tokio::test]
async fn cancelled_pods_cancel_no_lookup() {
    let bench = Bench::on_a_running_clock().await;
    let (repo, image) = bench.multi("app");
    repo.fault(Some(Fault::drip(Duration::from_millis(1))));
    assert!(bench.ask(&image).now_or_never().is_none());
    bench.landed().await;
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
    assert_eq!(bench.seen(), ["GET"]);
}

mod hosts;
mod isolation;
mod log;
mod model;
mod outlived;
mod partly;
mod plugins;
mod reload;
mod shared;
mod stress;
mod tags;
mod targets;
mod tenants;
