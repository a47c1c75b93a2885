//! Lookups that began before the configuration changed.

use serde_json::json;

use super::*;
use crate::credentials::CredentialId;
use crate::registry::Verified;
use crate::resolver::cache::Cached;
use tolerarch_core::testing::platforms;

impl Resolver {
    fn cached(&self, image: &ImageRef) -> Cached {
        self.fetcher.cache.get(image, CredentialId::ANONYMOUS)
    }
}

impl Bench {
    /// Changes the configuration. Returns the resolver of the former one.
    fn reload(&mut self) -> Resolver {
        self.reload_with(registry([&self.remote]))
    }

    fn reload_with(&mut self, registry: Registry) -> Resolver {
        let lookup = LookupSettings::default();
        let cache = CacheSettings::default();
        let resolver = self.resolver.reconfigured(registry, lookup, cache);
        std::mem::replace(&mut self.resolver, resolver)
    }
}

#[tokio::test]
async fn no_pod_joins_a_lookup_of_the_old_configuration() {
    let mut bench = Bench::new().await;
    let (repo, image) = bench.multi("app");
    repo.fault(Some(Fault::hang()));
    assert_eq!(
        bench.ask_within(&image, Duration::ZERO).await,
        Err(LookupError::BudgetExceeded)
    );
    bench.remote.wait_until(|seen| seen.len() == 1).await;
    bench.reload();
    repo.fault(None);
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
}

#[tokio::test]
async fn a_lookup_of_the_old_configuration_stores_nothing() {
    let mut bench = Bench::new().await;
    let old = bench.reload();
    let (repo, known) = bench.multi("app");
    let gone: ImageRef = repo.reference("gone").parse().unwrap();
    for (image, expected) in [(known, Ok(BOTH)), (gone, Err(LookupError::NotFound))] {
        let new = std::mem::replace(&mut bench.resolver, old.clone());
        assert_eq!(
            bench.ask(&image).await,
            expected,
            "its own Pod gets the answer"
        );
        bench.resolver = new;
        assert_eq!(bench.resolver.cached(&image), Cached::Nothing);
        assert_eq!(bench.ask(&image).await, expected);
        assert_eq!(bench.resolver.cached(&image), Cached::Fresh(expected));
    }
}

#[tokio::test]
async fn what_was_believed_is_forgotten_where_more_is_verified() {
    let mut bench = Bench::new().await;
    let (repo, image) = bench.multi("app");
    let lie = repo.image("linux/amd64", None);
    let entry = |platform: &str| {
        let mut entry = lie.clone();
        let (os, architecture) = platform.split_once('/').unwrap();
        entry["platform"] = json!({"os": os, "architecture": architecture});
        entry
    };
    repo.index(
        Some(image.target()),
        ["linux/amd64", "linux/arm64"].map(entry),
    );
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
    bench.reload();
    assert!(matches!(
        bench.resolver.cached(&image),
        Cached::Fresh(Ok(_))
    ));
    let verified = Verified {
        configs: PlatformSet::AMD64_AND_ARM64,
        ..Verified::default()
    };
    bench.reload_with(registry([&bench.remote]).verifying(verified));
    assert_eq!(
        bench.ask(&image).await,
        Ok(Support::Index(platforms(&["linux/amd64"])))
    );
}
