//! Limits on requests to servers that registries have named: targets of redirects, and token servers.

use std::collections::BTreeMap;

use super::*;

const GOAL: Duration = Duration::from_millis(1500);
/// Lookups of one namespace that run at a time, with the default of `lookup.concurrency`.
const LOOKUPS: usize = 24;
/// `lookup.perRegistry`. It allows 16 requests at a target, half of them for one namespace.
const PER_REGISTRY: usize = 4;
const FROM_ONE: usize = 8;

/// Registries that redirect to one server, which does not answer requests for the attacker's images.
struct TargetTest {
    base: ResolverTest,
    /// The registries that redirect, and after them the server.
    remotes: Vec<Remote>,
}

impl TargetTest {
    async fn new() -> Self {
        let mut remotes = Vec::new();
        for _ in 0..LOOKUPS + 2 {
            remotes.push(Remote::builder().plain_http().start().await);
        }
        let own = Remote::builder().plain_http().start().await;
        let base = ResolverTest::of(own, &remotes, |lookup, _| {
            lookup.per_registry = PER_REGISTRY;
        });
        let test = Self {
            base: ResolverTest {
                clock: Some(StoppedClock::stop()),
                ..base
            },
            remotes,
        };
        test.target().repo("hanging").fault(Some(Fault::hang()));
        test
    }

    fn target(&self) -> &Remote {
        &self.remotes[LOOKUPS + 1]
    }

    /// Returns an image of a source whose manifests are in the repository of this name at the target.
    fn redirected(&self, source: usize, repository: &str) -> ImageRef {
        let repo = self.remotes[source].repo(repository);
        let url = format!("{}/v2/{repository}/manifests/v1", self.target().url());
        repo.fault(Some(Fault::redirect(307, &url).only_manifests()));
        repo.reference("v1").parse().unwrap()
    }

    /// Returns an image that the target has, at a separate source.
    fn shared(&self, repository: &str) -> ImageRef {
        self.target()
            .repo(repository)
            .index(Some("v1"), ["linux/amd64", "linux/arm64"]);
        self.redirected(LOOKUPS, repository)
    }

    fn hanging(&self) -> Vec<ImageRef> {
        (0..LOOKUPS)
            .map(|source| self.redirected(source, "hanging"))
            .collect()
    }

    /// Begins lookups of these images, and waits until each of their registries has a request.
    async fn begin(&self, namespace: &str, images: &[ImageRef]) {
        self.base.pod(namespace, images, Duration::ZERO).await;
        for image in images {
            let source = self
                .remotes
                .iter()
                .find(|source| source.address() == image.host())
                .unwrap();
            source.wait_until(|seen| !seen.is_empty()).await;
        }
    }

    fn at_target(&self) -> usize {
        self.target()
            .count(|request| request.path.contains("hanging") || request.kind == Kind::Token)
    }
}

/// Each lookup queries a different registry. All of them redirect to one server, which hangs.
#[tokio::test]
async fn one_namespace_has_a_share_of_a_redirect_target() {
    let test = TargetTest::new().await;
    test.begin("attacker", &test.hanging()).await;
    test.target()
        .wait_until(|seen| seen.len() >= FROM_ONE)
        .await;
    for round in 0..5 {
        let image = test.shared(&format!("app{round}"));
        assert_eq!(
            test.base.pod("victim", &[image], GOAL).await,
            [Ok(BOTH)],
            "{round}"
        );
    }
    assert_eq!(test.at_target(), FROM_ONE);
}

/// The load is the server's, whichever port is used.
#[tokio::test]
async fn other_ports_of_a_target_add_no_share() {
    let test = TargetTest::new().await;
    let other = &test.remotes[LOOKUPS];
    other.repo("hanging").fault(Some(Fault::hang()));
    let images = test.hanging();
    for source in &test.remotes[..LOOKUPS / 2] {
        let url = format!("{}/v2/hanging/manifests/v1", other.url());
        source
            .repo("hanging")
            .fault(Some(Fault::redirect(307, &url).only_manifests()));
    }
    test.begin("attacker", &images).await;
    while test.at_target() + other.requests().len() < FROM_ONE
        || !test
            .base
            .resolver
            .fetcher
            .registry
            .named_servers()
            .is_waited_for()
    {
        tokio::task::yield_now().await;
    }
    let image = test.shared("app");
    assert_eq!(test.base.pod("victim", &[image], GOAL).await, [Ok(BOTH)]);
    let at_other = other.count(|request| request.path.contains("hanging"));
    assert_eq!(test.at_target() + at_other, FROM_ONE);
}

/// Two namespaces take all permits except those that are reserved for namespaces without any.
#[tokio::test]
async fn two_namespaces_leave_a_share_for_a_third() {
    let test = TargetTest::new().await;
    let images = test.hanging();
    let halves = images.split_at(LOOKUPS / 2);
    test.begin("first", halves.0).await;
    test.begin("second", halves.1).await;
    let image = test.shared("app");
    assert_eq!(test.base.pod("victim", &[image], GOAL).await, [Ok(BOTH)]);
    assert!(test.at_target() < 4 * PER_REGISTRY, "{}", test.at_target());
}

impl TargetTest {
    /// Makes a namespace take all of its share of the target, and wait there with one more lookup.
    async fn crowd(&self, late: &ImageRef) {
        self.begin("attacker", &self.hanging()[..FROM_ONE]).await;
        self.target()
            .wait_until(|seen| seen.len() == FROM_ONE)
            .await;
        self.base
            .pod("attacker", std::slice::from_ref(late), Duration::ZERO)
            .await;
        while !self
            .base
            .resolver
            .fetcher
            .registry
            .named_servers()
            .is_waited_for()
        {
            tokio::task::yield_now().await;
        }
    }
}

/// A lookup that gets no permit says nothing about its registry or its image.
#[tokio::test]
async fn permit_of_a_target_is_awaited_for_a_limited_time() {
    let test = TargetTest::new().await;
    let late = test.shared("app");
    test.crowd(&late).await;
    later(2 * SECOND).await;
    while test.base.resolver.fetcher.flights.count() > FROM_ONE {
        tokio::task::yield_now().await;
    }
    assert_eq!(test.target().requests().len(), FROM_ONE);
    let outcome = test.base.pod("victim", &[late], GOAL).await;
    assert_eq!(outcome, [Ok(BOTH)], "nothing is cached");
}

impl TargetTest {
    /// Makes the registry of `base` the mirror of the last source.
    fn mirror(&mut self) {
        let mirror = &self.base.remote;
        let plain = HostSettings {
            plain_http: true,
            ..HostSettings::default()
        };
        let mut hosts = BTreeMap::from([(mirror.address(), plain.clone())]);
        for remote in &self.remotes {
            hosts.insert(remote.address(), plain.clone());
        }
        let source = hosts.get_mut(&self.remotes[LOOKUPS].address()).unwrap();
        source.mirrors = vec![mirror.address().parse().unwrap()];
        let guard = AddressGuard {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            deny: vec![],
        };
        let registry = Registry::new(hosts, guard, registry_metrics()).unwrap();
        let lookup = LookupSettings::default();
        let cache = CacheSettings::default();
        self.base.resolver = self.base.resolver.reconfigured(registry, lookup, cache);
    }
}

/// The registry's answer does not count for the mirror, at which other tenants may get a permit.
#[tokio::test]
async fn busy_mirror_outweighs_the_registrys_failure() {
    for status in [500, 403, 404] {
        let mut test = TargetTest::new().await;
        test.mirror();
        let image = test.shared("app");
        let repo = test.remotes[LOOKUPS].repo("app");
        repo.fault(Some(Fault::status(status)));
        let url = format!("{}/v2/app/manifests/v1", test.target().url());
        let mirrored = test.base.remote.repo("app");
        mirrored.fault(Some(Fault::redirect(307, &url).only_manifests()));
        test.crowd(&image).await;
        later(SECOND).await;
        while test.base.resolver.fetcher.flights.count() > FROM_ONE {
            tokio::task::yield_now().await;
        }
        let outcome = test.base.pod("victim", &[image], GOAL).await;
        assert_eq!(outcome, [Ok(BOTH)], "{status}");
    }
}

/// A lookup that others joined waits for the share of the namespace that began it.
#[tokio::test]
async fn lookup_joined_without_permit_is_repeated() {
    let test = TargetTest::new().await;
    let late = test.shared("app");
    test.crowd(&late).await;
    let images = [late];
    let joined = async {
        while test.base.resolver.fetcher.flights.count() < FROM_ONE + 2 {
            tokio::task::yield_now().await;
        }
        later(SECOND).await;
    };
    let outcomes = tokio::join!(test.base.pod("victim", &images, 2 * SECOND), joined).0;
    assert_eq!(outcomes, [Ok(BOTH)]);
}

/// Lookups of one repository share the request for its token.
#[tokio::test]
async fn token_joined_without_permit_is_fetched_again() {
    let test = TargetTest::new().await;
    let auth = Auth::bearer();
    let realm = test.target().serve_tokens(&auth);
    let repo = test.remotes[LOOKUPS].repo("app");
    repo.require(auth.realm(&realm));
    let mut images: Vec<ImageRef> = Vec::new();
    for tag in ["v1", "v2"] {
        repo.index(Some(tag), ["linux/amd64", "linux/arm64"]);
        images.push(repo.reference(tag).parse().unwrap());
    }
    test.crowd(&images[0]).await;
    let source = &test.remotes[LOOKUPS];
    let joined = async {
        source.wait_until(|seen| seen.len() == 2).await;
        later(SECOND).await;
    };
    let outcomes = tokio::join!(test.base.pod("victim", &images[1..], 2 * SECOND), joined).0;
    assert_eq!(outcomes, [Ok(BOTH)]);
}

/// A registry may name any host as its token server.
#[tokio::test]
async fn one_namespace_has_a_share_of_a_token_server() {
    let test = TargetTest::new().await;
    let auth = Auth::bearer();
    let realm = test.target().serve_tokens(&auth);
    auth.fault(Some(Fault::hang()));
    let mut images: Vec<ImageRef> = Vec::new();
    for source in &test.remotes[..LOOKUPS] {
        let repo = source.repo("app");
        repo.require(Auth::bearer().realm(&realm));
        images.push(repo.reference("v1").parse().unwrap());
    }
    test.begin("attacker", &images).await;
    test.target()
        .wait_until(|seen| seen.len() >= FROM_ONE)
        .await;
    let image = test.shared("app");
    assert_eq!(test.base.pod("victim", &[image], GOAL).await, [Ok(BOTH)]);
    assert_eq!(test.at_target(), FROM_ONE);
}
