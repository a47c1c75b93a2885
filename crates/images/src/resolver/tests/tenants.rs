//! Limits on what one tenant's Pods can take from the Pods of others.

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

impl ResolverTest {
    /// Looks up the images of a Pod of this namespace, which waits no longer than `budget`.
    pub(super) async fn pod(
        &self,
        namespace: &str,
        images: &[ImageRef],
        budget: Duration,
    ) -> Vec<Outcome> {
        let images: Vec<&ImageRef> = images.iter().collect();
        let candidates = |_: &ImageRef| vec![CredentialCandidate::anonymous()].into();
        let tenant = Tenant::of(namespace);
        let lookup = outcomes(&self.resolver, tenant, &images, candidates, budget);
        self.within(budget, lookup).await
    }
}

const GOAL: Duration = Duration::from_millis(1500);

#[tokio::test]
async fn many_hanging_hosts_delay_no_other_tenant() {
    let test = ResolverTest::new().await;
    let hanging = Hanging::new(320);
    for (round, images) in hanging.images().chunks(64).enumerate() {
        test.pod("attacker", images, Duration::ZERO).await;
        let (_, image) = test.multi(&format!("new{round}"));
        assert_eq!(
            test.pod("victim", &[image], GOAL).await,
            [Ok(BOTH)],
            "{round}"
        );
    }
}

/// Goal: the images of all of 13 healthy new registries are found.
#[tokio::test]
async fn many_hanging_names_keep_no_new_registry_out() {
    let mut registries = Vec::new();
    for _ in 0..14 {
        registries.push(Remote::builder().plain_http().start().await);
    }
    let test = ResolverTest::of(registries.pop().unwrap(), &registries, |_, _| {});
    let test = ResolverTest {
        clock: Some(StoppedClock::stop()),
        ..test
    };
    let hanging = Hanging::new(320);
    let images = hanging.images();
    for pod in images.chunks(64) {
        test.pod("attacker", pod, Duration::ZERO).await;
    }
    for registry in &registries {
        let repo = registry.repo("app");
        repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
        let image = repo.reference("v1").parse().unwrap();
        assert_eq!(test.pod("victim", &[image], GOAL).await, [Ok(BOTH)]);
    }
}

/// A tenant's repositories at a shared registry fail again and again.
#[tokio::test]
async fn failing_repositories_open_no_circuit_for_other_tenants() {
    let test = ResolverTest::new().await;
    for round in 0..10 {
        for name in ["bad1", "bad2", "bad3"] {
            let (repo, _) = test.multi(name);
            repo.fault(Some(Fault::status(500)));
            let image: ImageRef = repo.reference(&format!("t{round}")).parse().unwrap();
            assert!(test.pod("attacker", &[image], GOAL).await[0].is_err());
        }
        let (_, image) = test.multi(&format!("new{round}"));
        assert_eq!(
            test.pod("victim", &[image], GOAL).await,
            [Ok(BOTH)],
            "{round}"
        );
    }
}

#[tokio::test]
async fn queued_lookup_of_another_tenant_delays_no_pod() {
    let test = ResolverTest::new().await;
    let (_, image) = test.multi("app");
    let hanging = Hanging::new(63);
    let mut images = hanging.images();
    images.push(image.clone());
    test.pod("attacker", &images, Duration::ZERO).await;
    assert_eq!(test.new_requests(), [""; 0], "it waits for a permit");
    assert_eq!(test.pod("victim", &[image], GOAL).await, [Ok(BOTH)]);
    assert_eq!(test.lookup_count("joined"), 0);
}

#[tokio::test]
async fn namespaces_share_one_query_of_a_cold_image() {
    let test = ResolverTest::new().await;
    let (_, image) = test.multi("app");
    let images = [image];
    let names = (0..50)
        .map(|team| format!("team-{team}"))
        .collect::<Vec<_>>();
    let pods = names.iter().map(|name| test.pod(name, &images, GOAL));
    let outcomes = futures_util::future::join_all(pods).await;
    assert!(outcomes.iter().all(|outcome| *outcome == [Ok(BOTH)]));
    assert_eq!(test.new_requests(), ["GET"]);
    assert_eq!(
        (
            test.lookup_count("fetched"),
            test.lookup_count("joined") + test.lookup_count("hit")
        ),
        (1, 49)
    );
    assert_eq!(test.resolver.fetcher.queries.count(), 0);
}

/// The query is one failure, and all lookups that joined it get its outcome.
#[tokio::test]
async fn hanging_query_ends_for_all_that_joined_it() {
    let test = ResolverTest::with(|lookup, _| lookup.timeout = 2 * SECOND).await;
    let (repo, image) = test.multi("app");
    repo.fault(Some(Fault::hang()));
    let images = [image];
    assert_eq!(
        test.pod("first", &images, Duration::ZERO).await,
        [Err(LookupError::BudgetExceeded)]
    );
    test.remote.wait_until(|seen| seen.len() == 1).await;
    let others = ["second", "third"].map(|name| test.pod(name, &images, 5 * SECOND));
    let time = async {
        while test.resolver.fetcher.flights.count() < 3 {
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
        (
            test.new_requests().len(),
            test.resolver.fetcher.queries.count()
        ),
        (1, 0)
    );
}

/// Anonymous access is shared by all tenants, and the registry had only a second to answer it.
#[tokio::test]
async fn timeout_is_not_cached_for_a_candidate_without_time() {
    let test = ResolverTest::new().await;
    let (repo, image) = test.multi("app");
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
    let lookup = outcomes(&test.resolver, attacker, &images, candidates, 60 * SECOND);
    let timeout = async {
        test.remote.wait_until(|seen| seen.len() == 2).await;
        later(SECOND).await;
    };
    let outcome = tokio::join!(lookup, timeout).0;
    assert_eq!(outcome, [Err(LookupError::Timeout)]);
    repo.fault(None);
    assert_eq!(test.pod("victim", &[image], GOAL).await, [Ok(BOTH)]);
}

#[tokio::test]
async fn timeout_of_a_probe_is_not_cached_for_other_tenants() {
    let test = ResolverTest::new().await;
    for number in 0..FAILURES {
        let (repo, image) = test.multi(&format!("bad{number}"));
        repo.fault(Some(Fault::status(500)));
        assert!(test.pod("attacker", &[image], GOAL).await[0].is_err());
    }
    later(OPEN).await;
    let (repo, image) = test.multi("app");
    let images = [image];
    repo.fault(Some(Fault::hang()));
    test.new_requests();
    test.pod("attacker", &images, Duration::ZERO).await;
    test.remote.wait_until(|seen| seen.len() == 1).await;
    later(PROBE_TIME).await;
    test.wait_until_idle().await;
    repo.fault(None);
    assert_eq!(test.pod("victim", &images, GOAL).await, [Ok(BOTH)]);
}

/// Goal: whatever two tenants' repositories of a registry do, a third tenant's images are found.
#[tokio::test]
async fn two_hanging_tenants_leave_the_registry_to_a_third() {
    let test = ResolverTest::new().await;
    let mut begun = 0;
    for namespace in ["a", "b"] {
        let mut images = Vec::new();
        for number in 0..20 {
            let (repo, image) = test.multi(&format!("{namespace}{number}"));
            repo.fault(Some(Fault::hang()));
            images.push(image);
        }
        test.pod(namespace, &images, Duration::ZERO).await;
        begun += if begun == 0 { 8 } else { 6 };
        test.remote.wait_until(|seen| seen.len() == begun).await;
    }
    for number in 0..10 {
        let (_, image) = test.multi(&format!("new{number}"));
        assert_eq!(test.pod("c", &[image], GOAL).await, [Ok(BOTH)], "{number}");
    }
    let burst: Vec<ImageRef> = (0..40)
        .map(|number| test.multi(&format!("burst{number}")).1)
        .collect();
    assert_eq!(test.pod("d", &burst, GOAL).await, [Ok(BOTH); 40]);
}
