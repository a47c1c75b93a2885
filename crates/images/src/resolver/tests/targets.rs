//! Limits of requests to servers that registries have named: targets of redirects, and token servers.

use std::collections::BTreeMap;

use super::*;

const GOAL: Duration = Duration::from_millis(1500);
/// Lookups of one namespace that run at a time, with the default of `lookup.concurrency`.
const LOOKUPS: usize = 24;
/// `lookup.perRegistry`, from which follow 16 requests at a target, half of them for one namespace.
const PER_REGISTRY: usize = 4;
const FROM_ONE: usize = 8;

/// Registries that send requests to one server, which does not answer what the attacker's images lead to.
struct World {
    bench: Bench,
    /// The sources, and behind them the server.
    remotes: Vec<Remote>,
}

impl World {
    async fn new() -> Self {
        let mut remotes = Vec::new();
        for _ in 0..LOOKUPS + 2 {
            remotes.push(Remote::builder().plain_http().start().await);
        }
        let own = Remote::builder().plain_http().start().await;
        let bench = Bench::of(own, &remotes, |lookup, _| {
            lookup.per_registry = PER_REGISTRY;
        });
        let world = Self {
            bench: Bench {
                clock: Some(StoppedClock::stop()),
                ..bench
            },
            remotes,
        };
        world.target().repo("hanging").fault(Some(Fault::hang()));
        world
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

    /// Returns an image that the target has, at a source of its own.
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

    /// Begins lookups of these images, and waits until each of their registries has been asked.
    async fn begin(&self, namespace: &str, images: &[ImageRef]) {
        self.bench.pod(namespace, images, Duration::ZERO).await;
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

/// Each lookup asks a registry of its own, and all of these redirect to one server, which hangs.
#[tokio::test]
async fn one_namespace_has_a_share_of_the_target_of_redirects() {
    let world = World::new().await;
    world.begin("attacker", &world.hanging()).await;
    world
        .target()
        .wait_until(|seen| seen.len() >= FROM_ONE)
        .await;
    for round in 0..5 {
        let image = world.shared(&format!("app{round}"));
        assert_eq!(
            world.bench.pod("victim", &[image], GOAL).await,
            [Ok(BOTH)],
            "{round}"
        );
    }
    assert_eq!(world.at_target(), FROM_ONE);
}

/// The server has the load, whatever its ports are.
#[tokio::test]
async fn other_ports_of_the_target_give_no_share_more() {
    let world = World::new().await;
    let other = &world.remotes[LOOKUPS];
    other.repo("hanging").fault(Some(Fault::hang()));
    let images = world.hanging();
    for source in &world.remotes[..LOOKUPS / 2] {
        let url = format!("{}/v2/hanging/manifests/v1", other.url());
        source
            .repo("hanging")
            .fault(Some(Fault::redirect(307, &url).only_manifests()));
    }
    world.begin("attacker", &images).await;
    while world.at_target() + other.requests().len() < FROM_ONE
        || !world
            .bench
            .resolver
            .fetcher
            .registry
            .named_servers()
            .is_waited_for()
    {
        tokio::task::yield_now().await;
    }
    let image = world.shared("app");
    assert_eq!(world.bench.pod("victim", &[image], GOAL).await, [Ok(BOTH)]);
    let at_other = other.count(|request| request.path.contains("hanging"));
    assert_eq!(world.at_target() + at_other, FROM_ONE);
}

/// Two namespaces fill what is for all, but for what is kept for those who have nothing there.
#[tokio::test]
async fn two_namespaces_do_not_keep_a_third_from_the_target() {
    let world = World::new().await;
    let images = world.hanging();
    let halves = images.split_at(LOOKUPS / 2);
    world.begin("first", halves.0).await;
    world.begin("second", halves.1).await;
    let image = world.shared("app");
    assert_eq!(world.bench.pod("victim", &[image], GOAL).await, [Ok(BOTH)]);
    assert!(
        world.at_target() < 4 * PER_REGISTRY,
        "{}",
        world.at_target()
    );
}

impl World {
    /// Has a namespace take all of its share of the target, and wait there with one lookup more.
    async fn crowd(&self, late: &ImageRef) {
        self.begin("attacker", &self.hanging()[..FROM_ONE]).await;
        self.target()
            .wait_until(|seen| seen.len() == FROM_ONE)
            .await;
        self.bench
            .pod("attacker", std::slice::from_ref(late), Duration::ZERO)
            .await;
        while !self
            .bench
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

/// A lookup that gets no turn says nothing about its registry or its image.
#[tokio::test]
async fn a_turn_at_the_target_is_waited_for_and_then_given_up() {
    let world = World::new().await;
    let late = world.shared("app");
    world.crowd(&late).await;
    later(2 * SECOND).await;
    while world.bench.resolver.fetcher.flights.count() > FROM_ONE {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.target().requests().len(), FROM_ONE);
    let outcome = world.bench.pod("victim", &[late], GOAL).await;
    assert_eq!(outcome, [Ok(BOTH)], "nothing is remembered of it");
}

impl World {
    /// Makes the bench's own registry the mirror of the last source.
    fn mirror(&mut self) {
        let mirror = &self.bench.remote;
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
        self.bench.resolver = self.bench.resolver.reconfigured(registry, lookup, cache);
    }
}

/// What the registry says does not stand for the mirror, at which others have their turn.
#[tokio::test]
async fn a_mirror_without_a_turn_is_outweighed_by_no_failure_of_the_registry() {
    for status in [500, 403, 404] {
        let mut world = World::new().await;
        world.mirror();
        let image = world.shared("app");
        let repo = world.remotes[LOOKUPS].repo("app");
        repo.fault(Some(Fault::status(status)));
        let url = format!("{}/v2/app/manifests/v1", world.target().url());
        let mirrored = world.bench.remote.repo("app");
        mirrored.fault(Some(Fault::redirect(307, &url).only_manifests()));
        world.crowd(&image).await;
        later(SECOND).await;
        while world.bench.resolver.fetcher.flights.count() > FROM_ONE {
            tokio::task::yield_now().await;
        }
        let outcome = world.bench.pod("victim", &[image], GOAL).await;
        assert_eq!(outcome, [Ok(BOTH)], "{status}");
    }
}

/// A lookup that others have joined waits for the share of the namespace that began it.
#[tokio::test]
async fn who_has_joined_a_lookup_without_a_turn_does_its_own() {
    let world = World::new().await;
    let late = world.shared("app");
    world.crowd(&late).await;
    let images = [late];
    let joined = async {
        while world.bench.resolver.fetcher.flights.count() < FROM_ONE + 2 {
            tokio::task::yield_now().await;
        }
        later(SECOND).await;
    };
    let outcomes = tokio::join!(world.bench.pod("victim", &images, 2 * SECOND), joined).0;
    assert_eq!(outcomes, [Ok(BOTH)]);
}

/// Lookups of one repository share the request for its token.
#[tokio::test]
async fn who_waits_for_a_token_without_a_turn_fetches_its_own() {
    let world = World::new().await;
    let auth = Auth::bearer();
    let realm = world.target().serve_tokens(&auth);
    let repo = world.remotes[LOOKUPS].repo("app");
    repo.require(auth.realm(&realm));
    let mut images: Vec<ImageRef> = Vec::new();
    for tag in ["v1", "v2"] {
        repo.index(Some(tag), ["linux/amd64", "linux/arm64"]);
        images.push(repo.reference(tag).parse().unwrap());
    }
    world.crowd(&images[0]).await;
    let source = &world.remotes[LOOKUPS];
    let joined = async {
        source.wait_until(|seen| seen.len() == 2).await;
        later(SECOND).await;
    };
    let outcomes = tokio::join!(world.bench.pod("victim", &images[1..], 2 * SECOND), joined).0;
    assert_eq!(outcomes, [Ok(BOTH)]);
}

/// A registry may name any host as the one that gives its tokens.
#[tokio::test]
async fn one_namespace_has_a_share_of_a_token_server() {
    let world = World::new().await;
    let auth = Auth::bearer();
    let realm = world.target().serve_tokens(&auth);
    auth.fault(Some(Fault::hang()));
    let mut images: Vec<ImageRef> = Vec::new();
    for source in &world.remotes[..LOOKUPS] {
        let repo = source.repo("app");
        repo.require(Auth::bearer().realm(&realm));
        images.push(repo.reference("v1").parse().unwrap());
    }
    world.begin("attacker", &images).await;
    world
        .target()
        .wait_until(|seen| seen.len() >= FROM_ONE)
        .await;
    let image = world.shared("app");
    assert_eq!(world.bench.pod("victim", &[image], GOAL).await, [Ok(BOTH)]);
    assert_eq!(world.at_target(), FROM_ONE);
}
