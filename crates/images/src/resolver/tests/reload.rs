//! Lookups that began before the configuration changed.

use serde_json::json;

use super::*;
use crate::credentials::CredentialId;
use crate::registry::VerifiedPlatforms;
use crate::resolver::cache::Cached;
use tolerarch_core::testing::platforms;

impl Resolver {
    fn cached(&self, image: &ImageRef) -> Cached {
        self.fetcher.cache.get(image, CredentialId::ANONYMOUS)
    }
}

impl ResolverTest {
    /// Changes the configuration. Returns the resolver of the former configuration.
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
async fn lookup_of_the_old_configuration_is_not_joined() {
    let mut test = ResolverTest::new().await;
    let (repo, image) = test.multi("app");
    repo.fault(Some(Fault::hang()));
    assert_eq!(
        test.look_up_within(&image, Duration::ZERO).await,
        Err(LookupError::BudgetExceeded)
    );
    test.remote.wait_until(|seen| seen.len() == 1).await;
    test.reload();
    repo.fault(None);
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
}

#[tokio::test]
async fn lookup_of_the_old_configuration_stores_nothing() {
    let mut test = ResolverTest::new().await;
    let old = test.reload();
    let (repo, existing) = test.multi("app");
    let gone: ImageRef = repo.reference("gone").parse().unwrap();
    for (image, expected) in [(existing, Ok(BOTH)), (gone, Err(LookupError::NotFound))] {
        let new = std::mem::replace(&mut test.resolver, old.clone());
        assert_eq!(
            test.look_up(&image).await,
            expected,
            "its own Pod gets the answer"
        );
        test.resolver = new;
        assert_eq!(test.resolver.cached(&image), Cached::Nothing);
        assert_eq!(test.look_up(&image).await, expected);
        assert_eq!(test.resolver.cached(&image), Cached::Fresh(expected));
    }
}

#[tokio::test]
async fn cache_is_dropped_when_more_is_verified() {
    let mut test = ResolverTest::new().await;
    let (repo, image) = test.multi("app");
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
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
    test.reload();
    assert!(matches!(test.resolver.cached(&image), Cached::Fresh(Ok(_))));
    let verified = VerifiedPlatforms {
        configs: PlatformSet::AMD64_AND_ARM64,
        ..VerifiedPlatforms::default()
    };
    test.reload_with(registry([&test.remote]).verifying(verified));
    assert_eq!(
        test.look_up(&image).await,
        Ok(Support::Index(platforms(&["linux/amd64"])))
    );
}
