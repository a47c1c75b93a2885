//! Limits of what one tenant's Pods can take from the Pods of others.

use std::net::TcpListener;

use super::*;
use crate::credentials::Credential;
use crate::credentials::testing::of_pod;
use crate::resolver::circuit::{FAILURES, OPEN, PROBE_TIME};

/// Registries that accept connections and never answer.
struct Hanging(Vec<TcpListener>);

impl Hanging {
    fn new(count: usize) -> Self {
        Self(
            (0..count)
                .map(|_| TcpListener::bind("127.0.0.2:0").unwrap())
                .collect(),
        )
    }

    fn images(&self) -> Vec<ImageRef> {
        let image = |registry: &TcpListener| format!("{}/app:v1", registry.local_addr().unwrap());
        self.0
            .iter()
            .map(|registry| image(registry).parse().unwrap())
            .collect()
    }
}

impl Bench {
    /// Resolves the images of a Pod of this namespace, which waits no longer than `budget`.
    pub(super) async fn pod(
        &self,
        namespace: &str,
        images: &[ImageRef],
        budget: Duration,
    ) -> Vec<Outcome> {
        let images: Vec<&ImageRef> = images.iter().collect();
        let candidates = |_: &ImageRef| vec![CredentialCandidate::anonymous()].into();
        let tenant = Tenant::of(namespace);
        let asking = outcomes(&self.resolver, tenant, &images, candidates, budget);
        self.within(budget, asking).await
    }
}

const GOAL: Duration = Duration::from_millis(1500);

#[tokio::test]
async fn a_pod_with_many_hosts_that_hang_keeps_no_other_tenant_waiting() {
    let bench = Bench::new().await;
    let hanging = Hanging::new(320);
    for (round, images) in hanging.images().chunks(64).enumerate() {
        bench.pod("attacker", images, Duration::ZERO).await;
        let (_, image) = bench.multi(&format!("new{round}"));
        assert_eq!(
            bench.pod("victim", &[image], GOAL).await,
            [Ok(BOTH)],
            "{round}"
        );
    }
}

/// The goal: 13 of 13 healthy new registries get in.
#[tokio::test]
async fn a_flood_of_names_that_hang_keeps_no_new_registry_out() {
    let mut registries = Vec::new();
    for _ in 0..14 {
        registries.push(Remote::builder().plain_http().start().await);
    }
    let bench = Bench::of(registries.pop().unwrap(), &registries, |_, _| {});
    let bench = Bench {
        clock: Some(StoppedClock::stop()),
        ..bench
    };
    let hanging = Hanging::new(320);
    let images = hanging.images();
    for pod in images.chunks(64) {
        bench.pod("attacker", pod, Duration::ZERO).await;
    }
    for registry in &registries {
        let repo = registry.repo("app");
        repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
        let image = repo.reference("v1").parse().unwrap();
        assert_eq!(bench.pod("victim", &[image], GOAL).await, [Ok(BOTH)]);
    }
}

/// A tenant's own repositories of a shared registry fail, again and again.
#[tokio::test]
async fn one_tenants_failing_repositories_rest_the_registry_for_no_other() {
    let bench = Bench::new().await;
    for round in 0..10 {
        for name in ["bad1", "bad2", "bad3"] {
            let (repo, _) = bench.multi(name);
            repo.fault(Some(Fault::status(500)));
            let image: ImageRef = repo.reference(&format!("t{round}")).parse().unwrap();
            assert!(bench.pod("attacker", &[image], GOAL).await[0].is_err());
        }
        let (_, image) = bench.multi(&format!("new{round}"));
        assert_eq!(
            bench.pod("victim", &[image], GOAL).await,
            [Ok(BOTH)],
            "{round}"
        );
    }
}

#[tokio::test]
async fn a_pod_does_not_wait_for_the_queued_lookup_of_another_tenant() {
    let bench = Bench::new().await;
    let (_, image) = bench.multi("app");
    let hanging = Hanging::new(63);
    let mut images = hanging.images();
    images.push(image.clone());
    bench.pod("attacker", &images, Duration::ZERO).await;
    assert_eq!(bench.seen(), [""; 0], "it waits for its turn");
    assert_eq!(bench.pod("victim", &[image], GOAL).await, [Ok(BOTH)]);
    assert_eq!(bench.counted("joined"), 0);
}

#[tokio::test]
async fn a_cold_image_costs_one_request_however_many_namespaces_ask_for_it() {
    let bench = Bench::new().await;
    let (_, image) = bench.multi("app");
    let images = [image];
    let names = (0..50)
        .map(|team| format!("team-{team}"))
        .collect::<Vec<_>>();
    let pods = names.iter().map(|name| bench.pod(name, &images, GOAL));
    let outcomes = futures_util::future::join_all(pods).await;
    assert!(outcomes.iter().all(|outcome| *outcome == [Ok(BOTH)]));
    assert_eq!(bench.seen(), ["GET"]);
    assert_eq!(
        (
            bench.counted("fetched"),
            bench.counted("joined") + bench.counted("hit")
        ),
        (1, 49)
    );
    assert_eq!(bench.resolver.fetcher.queries.count(), 0);
}

/// The request is one failure, and all lookups that joined it have its outcome.
#[tokio::test]
async fn a_request_that_hangs_ends_for_all_who_joined_it() {
    let bench = Bench::with(|lookup, _| lookup.timeout = 2 * SECOND).await;
    let (repo, image) = bench.multi("app");
    repo.fault(Some(Fault::hang()));
    let images = [image];
    assert_eq!(
        bench.pod("first", &images, Duration::ZERO).await,
        [Err(LookupError::BudgetExceeded)]
    );
    bench.remote.wait_until(|seen| seen.len() == 1).await;
    let others = ["second", "third"].map(|name| bench.pod(name, &images, 5 * SECOND));
    let time = async {
        while bench.resolver.fetcher.flights.count() < 3 {
            tokio::task::yield_now().await;
        }
        later(2 * SECOND).await;
    };
    let (outcomes, ()) = tokio::join!(futures_util::future::join_all(others), time);
    assert_eq!(
        outcomes,
        [[Err(LookupError::Timeout)], [Err(LookupError::Timeout)]]
    );
    assert_eq!(
        (bench.seen().len(), bench.resolver.fetcher.queries.count()),
        (1, 0)
    );
}

/// Anonymous access is every tenant's, and was asked for a second only.
#[tokio::test]
async fn a_timeout_is_remembered_for_no_candidate_that_had_little_of_the_time() {
    let bench = Bench::new().await;
    let (repo, image) = bench.multi("app");
    repo.fault(Some(Fault::custom(|request| {
        if request.authorization.is_none() {
            return Some(Fault::hang());
        }
        tokio::spawn(later(9 * SECOND));
        Some(Fault::status(403))
    })));
    let slow = of_pod(Credential::Bearer("slow".to_owned().into()));
    let all = vec![slow, CredentialCandidate::anonymous()];
    let images = [&image];
    let attacker = Tenant::of("attacker");
    let candidates = |_: &ImageRef| all.clone().into();
    let asking = outcomes(&bench.resolver, attacker, &images, candidates, 60 * SECOND);
    let timeout = async {
        bench.remote.wait_until(|seen| seen.len() == 2).await;
        later(SECOND).await;
    };
    let outcome = tokio::join!(asking, timeout).0;
    assert_eq!(outcome, [Err(LookupError::Timeout)]);
    repo.fault(None);
    assert_eq!(bench.pod("victim", &[image], GOAL).await, [Ok(BOTH)]);
}

#[tokio::test]
async fn the_timeout_of_a_probe_is_remembered_for_no_other_tenant() {
    let bench = Bench::new().await;
    for number in 0..FAILURES {
        let (repo, image) = bench.multi(&format!("bad{number}"));
        repo.fault(Some(Fault::status(500)));
        assert!(bench.pod("attacker", &[image], GOAL).await[0].is_err());
    }
    later(OPEN).await;
    let (repo, image) = bench.multi("app");
    let images = [image];
    repo.fault(Some(Fault::hang()));
    bench.seen();
    bench.pod("attacker", &images, Duration::ZERO).await;
    bench.remote.wait_until(|seen| seen.len() == 1).await;
    later(PROBE_TIME).await;
    bench.landed().await;
    repo.fault(None);
    assert_eq!(bench.pod("victim", &images, GOAL).await, [Ok(BOTH)]);
}

/// The goal: whatever two tenants' repositories of a registry do, a third one's images are known.
#[tokio::test]
async fn two_tenants_whose_lookups_hang_leave_their_registry_to_a_third_one() {
    let bench = Bench::new().await;
    let mut begun = 0;
    for namespace in ["a", "b"] {
        let mut images = Vec::new();
        for number in 0..20 {
            let (repo, image) = bench.multi(&format!("{namespace}{number}"));
            repo.fault(Some(Fault::hang()));
            images.push(image);
        }
        bench.pod(namespace, &images, Duration::ZERO).await;
        begun += if begun == 0 { 8 } else { 6 };
        bench.remote.wait_until(|seen| seen.len() == begun).await;
    }
    for number in 0..10 {
        let (_, image) = bench.multi(&format!("new{number}"));
        assert_eq!(bench.pod("c", &[image], GOAL).await, [Ok(BOTH)], "{number}");
    }
    let burst: Vec<ImageRef> = (0..40)
        .map(|number| bench.multi(&format!("burst{number}")).1)
        .collect();
    assert_eq!(bench.pod("d", &burst, GOAL).await, [Ok(BOTH); 40]);
}
