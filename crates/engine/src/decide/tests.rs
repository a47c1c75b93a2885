use serde_json::json;
use testregistry::{Auth, Fault};

use super::lookup::IMAGES;
use super::testing::{BOTH, TestEngine, pod};
use super::*;
use crate::lessons::{Evidence, FailedImage, Lesson, RecreatingOwner, node_id};
use tolerarch_core::policy::Override;
use tolerarch_images::credentials::testing::{secret, with_cluster};
use tolerarch_images::registry::Digest;
use tolerarch_images::resolver::LookupSettings;
use tolerarch_kubernetes::cluster::testing::ApiServer;
use tolerarch_support::testing::StoppedClock;

#[tokio::test]
async fn pull_secrets_are_read_only_for_uncached_images() {
    let api = ApiServer::start().await;
    let engine = TestEngine::with(with_cluster(&api, &[])).await;
    let cached = engine.image("cached", &BOTH);
    assert_eq!(engine.reason(&[&cached]).await, "tolerated");
    let with_secret = |images: &[&str]| {
        let mut pod = pod(images);
        pod["spec"]["imagePullSecrets"] = json!([{"name": "pull"}]);
        pod
    };
    let reason = engine.decide(&with_secret(&[&cached, &cached])).await;
    assert_eq!((reason, api.requests()), ("tolerated", 0));
    let fresh = engine.image("fresh", &BOTH);
    let reason = engine.decide(&with_secret(&[&cached, &fresh])).await;
    assert_eq!((reason, api.requests()), ("tolerated", 1));
}

#[tokio::test]
async fn refused_lookup_names_pull_secrets_without_a_credential() {
    let api = ApiServer::start().await;
    let secret = |config| secret("dockerconfigjson", &config);
    api.answer("shop", "empty", 200, &secret(json!({"auths": {}})));
    api.answer(
        "shop",
        "other",
        200,
        &secret(json!({"auths": {"a.b": {"username": "canary", "password": "canary"}}})),
    );
    let engine = TestEngine::with(with_cluster(&api, &[])).await;
    let image = engine.image("fresh", &BOTH);
    engine.remote.repo("fresh").fault(Some(Fault::status(401)));
    let mut created = pod(&[&image]);
    created["spec"]["imagePullSecrets"] = json!([{"name": "empty"}, {"name": "other"}]);
    let snapshot = engine.current.load_full();
    let pod = Pod::of_value(&created).unwrap();
    let wait = Wait::Until {
        deadline: Instant::now() + Duration::from_secs(60),
        review: None,
    };
    let decision = snapshot.decide(&snapshot.policy, "shop", &pod, wait).await;
    let expected = [
        "pull secret \"empty\" gives no credential: it has no entry for any registry".to_owned(),
        format!(
            "pull secret \"other\" has no entry for {}",
            engine.remote.address()
        ),
    ];
    assert_eq!(decision.reason.as_str(), "denied");
    assert_eq!(decision.unused_secrets, expected);
    let limits = BatchLimits::new(&LookupSettings {
        timeout: Duration::from_secs(60),
        ..LookupSettings::default()
    });
    let examined = snapshot
        .examine(&snapshot.policy, "shop", &pod, &limits)
        .await;
    assert_eq!(examined.images[0].unused_secrets, expected);
}

#[tokio::test]
async fn tags_are_listed_only_with_pull_secrets_of_the_pod() {
    let api = ApiServer::start().await;
    let engine = TestEngine::with(with_cluster(&api, &[])).await;
    let auths = json!({engine.remote.address(): {"username": "ci", "password": "canary"}});
    let pull = secret("dockerconfigjson", &json!({"auths": auths}));
    api.answer("shop", "pull", 200, &pull);
    let image = engine.image("private", &BOTH);
    let repo = engine.remote.repo("private");
    repo.require(Auth::basic("ci", "canary"));
    let limits = BatchLimits::new(&LookupSettings::default());
    let snapshot = engine.current.load_full();
    let reference = image.parse().unwrap();
    let mut with_secret = pod(&[&image]);
    with_secret["spec"]["imagePullSecrets"] = json!([{"name": "pull"}]);
    let without = pod(&[&image]);
    for (namespace, created, is_listed) in [
        ("shop", &without, false),
        ("other", &with_secret, false),
        ("shop", &with_secret, true),
        ("other", &with_secret, false),
    ] {
        let pod = Pod::of_value(created).unwrap();
        let tags = snapshot.tags(namespace, &pod, &reference, &limits).await;
        assert_eq!(tags.is_ok(), is_listed, "{namespace}: {tags:?}");
    }
}

#[tokio::test]
async fn pull_secret_is_awaited_only_until_the_deadline() {
    let api = ApiServer::start().await;
    api.answer("shop", "pull", 0, &json!(""));
    let engine = TestEngine::with(with_cluster(&api, &[])).await;
    let mut created = pod(&[&engine.image("fresh", &BOTH)]);
    created["spec"]["imagePullSecrets"] = json!([{"name": "pull"}]);
    let pod = Pod::of_value(&created).unwrap();
    let snapshot = engine.current.load_full();
    let _clock = StoppedClock::stop();
    let image = pod.images().remove(0).image.unwrap();
    let second = Duration::from_secs(1);
    let images = [&image];
    let reading = snapshot.keyring("shop", &pod, &images, Instant::now() + second);
    tokio::pin!(reading);
    assert!(futures_util::poll!(&mut reading).is_pending());
    tokio::time::advance(second + Duration::from_millis(1)).await;
    assert!(futures_util::poll!(&mut reading).is_ready());
}

#[tokio::test]
async fn equal_images_are_looked_up_once() {
    let engine = TestEngine::new().await;
    let multi = engine.image("multi", &BOTH);
    assert_eq!(engine.reason(&[multi.as_str(); 100]).await, "tolerated");
    assert_eq!(engine.remote.requests().len(), 1);
    assert_eq!(engine.reason(&[multi.as_str(); 100]).await, "tolerated");
    assert_eq!(engine.remote.requests().len(), 1);
}

#[tokio::test]
async fn different_images_are_looked_up_concurrently() {
    let engine = TestEngine::new().await;
    let images = ["a", "b", "c"].map(|name| engine.image(name, &BOTH));
    for name in ["a", "b", "c"] {
        engine.remote.repo(name).fault(Some(Fault::hang()));
    }
    let images: Vec<&str> = images.iter().map(String::as_str).collect();
    tokio::select! {
        reason = engine.reason(&images) => panic!("they hang: {reason}"),
        () = engine.remote.wait_until(|seen| seen.len() == 3) => {}
    }
}

#[tokio::test]
async fn too_many_images_are_not_looked_up() {
    let engine = TestEngine::new().await;
    let images: Vec<String> = (0..=IMAGES)
        .map(|i| format!("{}/app:{i}", engine.remote.address()))
        .collect();
    let images: Vec<&str> = images.iter().map(String::as_str).collect();
    assert_eq!(engine.reason(&images).await, "too-many-images");
    assert_eq!(engine.remote.requests().len(), 0);
}

#[tokio::test]
async fn decisive_image_ends_the_wait_for_the_others() {
    let engine = TestEngine::new().await;
    let hanging = engine.image("hanging", &BOTH);
    let amd = engine.image("amd", &["linux/amd64"]);
    engine.remote.repo("hanging").fault(Some(Fault::hang()));
    // The clock stands still, so the budget does not end the wait.
    let _clock = StoppedClock::stop();
    assert_eq!(engine.reason(&[&hanging, &amd]).await, "platform-missing");
    assert_eq!(
        engine.reason(&[&hanging, "Bad Image"]).await,
        "image-invalid"
    );
}

#[tokio::test]
async fn override_replaces_the_lookup() {
    let api = ApiServer::start().await;
    let engine = TestEngine::with(with_cluster(&api, &[])).await;
    let snapshot = engine.current.load_full();
    let host = engine.remote.address().to_string();
    let override_of = |images: &str, platforms: &[&str]| Override {
        images: format!("{host}/{images}").parse().unwrap(),
        platforms: tolerarch_core::testing::platforms(platforms),
    };
    let overrides = vec![
        override_of("team/legacy*", &["linux/amd64"]),
        override_of("team", &BOTH),
    ];
    let policy = Policy {
        overrides,
        ..snapshot.policy.clone()
    };
    engine.current.store(Arc::new(Snapshot {
        policy,
        ..Snapshot::clone(&snapshot)
    }));
    let image = |name: &str| format!("{host}/team/{name}");
    let app = image("app:1");
    let legacy = image("legacy-app");
    assert_eq!(engine.reason(&[&app]).await, "tolerated");
    assert_eq!(engine.reason(&[&app, &legacy]).await, "platform-missing");
    // An override applies even to images that are never pulled, and such images do not count as looked up.
    let mut pod = pod(&[app.as_str()]);
    pod["spec"]["containers"] = (0..=IMAGES)
        .map(|at| json!({"image": image(&format!("app:{at}")), "imagePullPolicy": "Never"}))
        .collect();
    pod["spec"]["imagePullSecrets"] = json!([{"name": "pull"}]);
    assert_eq!(engine.decide(&pod).await, "tolerated");
    assert_eq!((engine.remote.requests().len(), api.requests()), (0, 0));
    // An override that closes every pool decides without the other images.
    engine.remote.repo("hanging").fault(Some(Fault::hang()));
    assert_eq!(
        engine.reason(&[&format!("{host}/hanging"), &legacy]).await,
        "platform-missing"
    );
    assert_eq!(engine.remote.requests().len(), 0);
}

/// The architectures for the node affinity follow only from all images.
#[tokio::test]
async fn steering_awaits_every_image() {
    let engine = TestEngine::new().await;
    let arm = engine.image("arm", &["linux/arm64"]);
    let amd = engine.image("amd", &["linux/amd64"]);
    let both = engine.image("both", &BOTH);
    let rules = json!({"placement": {"require": "affinity", "whenUnknown": ["linux/amd64"]}});
    engine.decide_by(tolerarch_core::testing::policy(&rules));
    assert_eq!(engine.reason(&[&amd, &both]).await, "placed");
    assert_eq!(engine.reason(&[&amd, &arm]).await, "no-common-platform");
    assert_eq!(engine.reason(&[&both, "Bad Image", &amd]).await, "placed");
    assert_eq!(
        engine.reason(&["Bad Image", &arm]).await,
        "platform-missing"
    );
}

/// Records that the image `failing:v1` has failed on arm64: on two nodes if that counts in all namespaces.
fn record_failure(engine: &TestEngine, namespace: &str, is_for_all: bool) {
    let digest = engine.remote.repo("failing").digest_of("v1").unwrap();
    let nodes: &[&str] = if is_for_all {
        &["node-1", "node-2"]
    } else {
        &[]
    };
    let image = FailedImage {
        digest: Digest::of_text(&digest),
        architecture: "arm64".to_owned(),
        evidence: Evidence::ExecFormatError,
        namespace: namespace.to_owned(),
        nodes: nodes.iter().map(|name| node_id(name)).collect(),
    };
    let mut lessons = Lessons::default();
    lessons.record(Lesson::Image(image), Timestamp::now());
    engine.learn(lessons);
}

#[tokio::test]
async fn failed_image_closes_the_pool_where_the_failure_counts() {
    let engine = TestEngine::new().await;
    let failing = engine.image("failing", &BOTH);
    let other = engine.image("other", &["linux/amd64", "linux/arm64", "linux/s390x"]);
    let digest = engine.remote.repo("failing").digest_of("v1").unwrap();
    let pinned = engine.remote.repo("failing").reference(&digest);
    assert_eq!(engine.reason(&[&failing]).await, "tolerated");
    for (namespace, is_for_all, reason) in [
        ("shop", false, "failed-there"),
        ("other", true, "failed-there"),
        ("other", false, "tolerated"),
    ] {
        record_failure(&engine, namespace, is_for_all);
        for image in [&failing, &pinned] {
            assert_eq!(
                engine.reason(&[image, &other]).await,
                reason,
                "{namespace} {is_for_all}"
            );
        }
        assert_eq!(engine.reason(&[&other]).await, "tolerated");
    }
}

#[tokio::test]
async fn failure_does_not_matter_for_a_mounted_image() {
    let engine = TestEngine::new().await;
    let failing = engine.image("failing", &BOTH);
    // With the same platforms, both images would have one digest.
    let other = engine.image("other", &["linux/amd64", "linux/arm64", "linux/s390x"]);
    record_failure(&engine, "shop", true);
    let mut volume = pod(&[&other]);
    volume["spec"]["volumes"] = json!([{"name": "v", "image": {"reference": failing}}]);
    assert_eq!(engine.decide(&volume).await, "tolerated");
}

#[tokio::test]
async fn required_affinity_omits_the_architecture_of_a_failure() {
    let engine = TestEngine::new().await;
    let failing = engine.image("failing", &BOTH);
    let mut policy = Policy::default();
    policy.placement.require = tolerarch_core::policy::Require::Affinity;
    engine.decide_by(policy);
    record_failure(&engine, "shop", true);
    let snapshot = engine.current.load_full();
    let created = pod(&[&failing]);
    let pod = Pod::of_value(&created).unwrap();
    let limits = BatchLimits::new(&LookupSettings::default());
    let wait = Wait::ForAll(&limits);
    let decision = snapshot.decide(&snapshot.policy, "shop", &pod, wait).await;
    assert_eq!(decision.reason.as_str(), "placed");
    assert_eq!(decision.edits.annotations["tolerarch.io/required"], "amd64");
    let cause = decision.blockers[0].cause.to_string();
    assert!(cause.starts_with("failed on linux/arm64 at 2"), "{cause}");
}

#[tokio::test]
async fn override_counts_more_than_a_failure() {
    let engine = TestEngine::new().await;
    let failing = engine.image("failing", &BOTH);
    let overrides = vec![Override {
        images: failing.trim_end_matches(":v1").parse().unwrap(),
        platforms: tolerarch_core::testing::platforms(&BOTH),
    }];
    engine.decide_by(Policy {
        overrides,
        ..Policy::default()
    });
    record_failure(&engine, "shop", true);
    assert_eq!(engine.reason(&[&failing]).await, "tolerated");
}

#[tokio::test]
async fn pods_of_a_recreating_owner_stay_unchanged() {
    let engine = TestEngine::new().await;
    let image = engine.image("app", &BOTH);
    let owned = |kind: &str, controller: bool| {
        let mut pod = pod(&[&image]);
        pod["metadata"]["ownerReferences"] =
            json!([{"kind": kind, "name": "one", "controller": controller}]);
        pod
    };
    let [kind, name, namespace] = ["Broker", "one", "shop"].map(str::to_owned);
    let mut lessons = Lessons::default();
    lessons.record(
        Lesson::Owner(RecreatingOwner {
            kind,
            name,
            namespace,
        }),
        Timestamp::now(),
    );
    assert_eq!(engine.decide(&owned("Broker", true)).await, "tolerated");
    engine.learn(lessons);
    assert_eq!(
        engine.decide(&owned("Broker", true)).await,
        "owner-recreates"
    );
    for other in [owned("Broker", false), owned("Other", true), pod(&[&image])] {
        assert_eq!(engine.decide(&other).await, "tolerated", "{other}");
    }
    // Commands look up the images all the same.
    let created = owned("Broker", true);
    let snapshot = engine.current.load_full();
    let pod = Pod::of_value(&created).unwrap();
    let limits = BatchLimits::new(&LookupSettings::default());
    let examined = snapshot
        .examine(&snapshot.policy, "shop", &pod, &limits)
        .await;
    assert_eq!(
        (examined.decision, examined.reason),
        ("unchanged", Reason::OwnerRecreates)
    );
    assert_eq!(examined.images.len(), 1);
}
