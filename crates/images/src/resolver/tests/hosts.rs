//! Registries that throttle or fail: pauses, circuits and probes.

use super::isolation::tenant;
use super::*;
use crate::registry::FailureClass;
use crate::resolver::access::Access;
use crate::resolver::host::{Ending, FORGOTTEN, LONG_SILENCE, PATIENCE};
use tokio::time::sleep;

#[tokio::test]
async fn throttled_repository_is_paused() {
    for retry_after in [Some("300"), None] {
        let test = ResolverTest::new().await;
        let (repo, image) = test.multi("app");
        let (_, other) = test.multi("other");
        let tag: ImageRef = repo.reference("v2").parse().unwrap();
        repo.index(Some("v2"), ["linux/amd64", "linux/arm64"]);
        repo.fault(Some(too_many(retry_after)));
        assert_eq!(test.look_up(&image).await, Err(LookupError::Throttled));
        assert_eq!(
            test.look_up(&tag).await,
            Err(LookupError::Throttled),
            "the whole repository"
        );
        assert_eq!(test.look_up(&other).await, Ok(BOTH), "no other one");
        assert_eq!(test.new_requests(), ["GET"; 2]);
        repo.fault(None);
        later(if retry_after.is_some() { 250 } else { 50 } * SECOND).await;
        assert_eq!(test.look_up(&tag).await, Err(LookupError::Throttled));
        later(61 * SECOND).await;
        assert_eq!(test.look_up(&tag).await, Ok(BOTH));
        assert_eq!(test.look_up(&image).await, Ok(BOTH));
    }
}

fn too_many(retry_after: Option<&str>) -> Fault {
    let reply = Reply::error(429, "TOOMANYREQUESTS");
    match retry_after {
        Some(seconds) => Fault::reply(reply.header("retry-after", seconds)),
        None => Fault::reply(reply),
    }
}

/// As Docker Hub does, whose limit for anonymous pulls counts for the whole address.
#[tokio::test]
async fn registry_is_paused_after_two_throttled_repositories() {
    let test = ResolverTest::new().await;
    for (name, namespace) in [("one", "a"), ("two", "b")] {
        let (repo, image) = test.multi(name);
        repo.fault(Some(too_many(Some("3600"))));
        assert_eq!(
            test.pod(namespace, &[image], SECOND).await,
            [Err(LookupError::Throttled)]
        );
    }
    let (repo, image) = test.multi("three");
    let images = [image];
    test.new_requests();
    assert_eq!(
        test.pod("c", &images, SECOND).await,
        [Err(LookupError::Throttled)]
    );
    assert_eq!(test.new_requests(), [""; 0], "no request is sent");
    // Once a minute the namespace's own lookup shows whether the registry still throttles.
    repo.fault(Some(too_many(None)));
    later(61 * SECOND).await;
    assert_eq!(
        test.pod("c", &images, SECOND).await,
        [Err(LookupError::Throttled)]
    );
    assert_eq!(test.new_requests(), ["GET"]);
    let (_, image) = test.multi("four");
    let images = [image];
    assert_eq!(
        test.pod("c", &images, SECOND).await,
        [Err(LookupError::Throttled)]
    );
    assert_eq!(test.new_requests(), [""; 0]);
    later(61 * SECOND).await;
    assert_eq!(test.pod("c", &images, SECOND).await, [Ok(BOTH)]);
}

/// Goal: whatever two tenants cause to be throttled, a third one's images are found, except for one minute in eleven.
#[tokio::test]
async fn throttled_tenants_pause_the_registry_for_no_other() {
    let test = ResolverTest::new().await;
    let mut answered = 0;
    for round in 0..40 {
        for namespace in ["a", "b"] {
            let (repo, image) = test.multi(&format!("{namespace}{round}"));
            repo.fault(Some(too_many(Some("3600"))));
            assert_eq!(
                test.pod(namespace, &[image], SECOND).await,
                [Err(LookupError::Throttled)]
            );
        }
        let (_, image) = test.multi(&format!("good{round}"));
        answered += usize::from(test.pod("c", &[image], SECOND).await == [Ok(BOTH)]);
        later(31 * SECOND).await;
    }
    assert_eq!(answered, 38, "all rounds after the first minute");
}

#[tokio::test]
async fn throttling_redirect_target_pauses_its_repository() {
    let test = ResolverTest::new().await;
    let elsewhere = Remote::builder().plain_http().start().await;
    let (_, good) = test.multi("good");
    let at_target = elsewhere.repo("app");
    at_target.fault(Some(too_many(Some("3600"))));
    for name in ["one", "two", "three"] {
        let (repo, image) = test.multi(name);
        repo.fault(Some(Fault::redirect(
            307,
            &format!("{}/v2/app/manifests/v1", elsewhere.url()),
        )));
        assert_eq!(
            test.look_up(&image).await,
            Err(LookupError::Throttled),
            "{name}"
        );
        let tag: ImageRef = repo.reference("v2").parse().unwrap();
        test.new_requests();
        assert_eq!(
            test.look_up(&tag).await,
            Err(LookupError::Throttled),
            "{name}"
        );
        assert_eq!(test.new_requests(), [""; 0]);
    }
    assert_eq!(test.look_up(&good).await, Ok(BOTH));
}

#[tokio::test]
async fn throttling_token_server_pauses_its_repository() {
    let test = ResolverTest::new().await;
    let (repo, image) = test.multi("app");
    let auth = Auth::bearer().or_anonymous();
    repo.require(auth.clone());
    auth.fault(Some(too_many(Some("3600"))));
    let (_, good) = test.multi("good");
    assert_eq!(test.look_up(&image).await, Err(LookupError::Throttled));
    assert_eq!(test.look_up(&good).await, Ok(BOTH));
    auth.fault(None);
    later(3500 * SECOND).await;
    assert_eq!(test.look_up(&image).await, Err(LookupError::Throttled));
    later(101 * SECOND).await;
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
}

#[tokio::test]
async fn failing_registry_delays_no_pod_until_it_recovers() {
    let test = ResolverTest::new().await;
    let mut images = Vec::new();
    for i in 0..20 {
        let (repo, image) = test.multi(&format!("app{i}"));
        repo.fault(Some(Fault::status(503)));
        images.push((repo, image));
    }
    let mut outcomes = Vec::new();
    for (_, image) in &images[..6] {
        outcomes.push(test.look_up(image).await);
    }
    let faults = Err(LookupError::Unreachable);
    let open = Err(LookupError::CircuitOpen);
    assert_eq!(outcomes, [faults, faults, faults, open, open, open]);
    assert_eq!(test.new_requests().len(), 3);

    // A Pod's probe shows that the registry still fails.
    later(circuit::OPEN).await;
    assert_eq!(
        [
            test.look_up(&images[6].1).await,
            test.look_up(&images[7].1).await
        ],
        [faults, open]
    );
    assert_eq!(test.new_requests().len(), 1);

    images.iter().for_each(|(repo, _)| repo.fault(None));
    assert_eq!(test.look_up(&images[7].1).await, open);
    later(circuit::OPEN).await;
    assert_eq!(test.look_up(&images[8].1).await, Ok(BOTH));
    // Failed images are looked up again after their negative lifetime.
    later(15 * SECOND).await;
    for (_, image) in &images {
        assert_eq!(test.look_up(image).await, Ok(BOTH), "{image}");
    }
}

/// Goal: the registry is in use again within ten seconds, and until then no Pod waits for half a second.
#[tokio::test]
async fn pod_waits_briefly_for_a_probe() {
    let test = ResolverTest::new().await;
    let ((repo, image), (other, next)) = (test.multi("app"), test.multi("next"));
    fail(&test).await;
    [&repo, &other]
        .iter()
        .for_each(|repo| repo.fault(Some(Fault::hang())));
    test.new_requests();
    later(circuit::OPEN).await;
    let (outcome, ()) = tokio::join!(test.look_up(&image), later(circuit::PROBE_PATIENCE));
    assert_eq!(outcome, Err(LookupError::CircuitOpen));
    for image in [&image, &next] {
        assert_eq!(
            test.look_up_within(image, Duration::ZERO).await,
            Err(LookupError::CircuitOpen)
        );
    }
    test.remote.wait_until(|seen| seen.len() == 1).await;

    // The probe hangs until its timeout, although the registry works again before that.
    other.fault(None);
    later(circuit::PROBE_TIME).await;
    test.wait_until_idle().await;
    assert_eq!(test.look_up(&next).await, Err(LookupError::CircuitOpen));
    later(circuit::OPEN).await;
    assert_eq!(test.look_up(&next).await, Ok(BOTH));
    assert!(
        circuit::PROBE_TIME + circuit::OPEN < 10 * SECOND && circuit::PROBE_PATIENCE < SECOND / 2
    );
}

/// Makes three repositories fail, so that the circuit opens.
async fn fail(test: &ResolverTest) {
    for name in ["bad1", "bad2", "bad3"] {
        let (repo, image) = test.multi(name);
        repo.fault(Some(Fault::status(503)));
        assert_eq!(test.look_up(&image).await, Err(LookupError::Unreachable));
    }
}

#[tokio::test]
async fn one_bad_image_fails_alone() {
    let test = ResolverTest::new().await;
    let (bad, _) = test.multi("bad");
    bad.fault(Some(Fault::status(500)));
    for tag in 0..100 {
        assert!(
            test.look_up(&bad.reference(&format!("t{tag}")).parse().unwrap())
                .await
                .is_err()
        );
        if tag % 10 == 0 {
            let (_, image) = test.multi(&format!("good{tag}"));
            assert_eq!(test.look_up(&image).await, Ok(BOTH), "{tag}");
        }
    }
}

#[tokio::test]
async fn bad_repositories_of_one_namespace_affect_no_other() {
    let test = ResolverTest::new().await;
    let (_, other) = test.multi("other");
    fail(&test).await;
    assert_eq!(test.look_up(&other).await, Err(LookupError::CircuitOpen));
    assert_eq!(
        test.pod("another", std::slice::from_ref(&other), SECOND)
            .await,
        [Ok(BOTH)]
    );
    assert_eq!(
        test.look_up(&test.multi("next").1).await,
        Ok(BOTH),
        "the registry has answered"
    );
}

/// The registry has answered with redirects, although the lookups time out.
#[tokio::test]
async fn hanging_redirect_target_affects_its_repository_only() {
    let own = Remote::builder().plain_http().start().await;
    let elsewhere = [Remote::builder().plain_http().start().await];
    let test = ResolverTest {
        clock: Some(StoppedClock::stop()),
        ..ResolverTest::of(own, &elsewhere, |_, _| {})
    };
    let target = &elsewhere[0];
    target.repo("app").fault(Some(Fault::hang()));
    let redirect = Fault::redirect(307, &format!("{}/v2/app/manifests/v1", target.url()));
    for (name, tag) in [
        ("bad1", "v1"),
        ("bad1", "v2"),
        ("bad1", "v3"),
        ("bad2", "v1"),
        ("bad3", "v1"),
    ] {
        let repo = test.remote.repo(name);
        repo.fault(Some(redirect.clone().only_manifests()));
        let image: ImageRef = repo.reference(tag).parse().unwrap();
        target.forget_requests();
        let hanging = async {
            target.wait_until(|seen| !seen.is_empty()).await;
            later(test.resolver.fetcher.timeout).await;
        };
        let outcome = tokio::join!(test.look_up(&image), hanging).0;
        assert!(outcome.is_err(), "{name}:{tag}");
        test.wait_until_idle().await;
        if tag == "v3" {
            let rested = repo.reference("v4").parse().unwrap();
            let outcome = test.look_up(&rested).await;
            assert_eq!(outcome, Err(LookupError::CircuitOpen));
        }
    }
    let (_, good) = test.multi("good");
    assert_eq!(test.look_up(&good).await, Ok(BOTH));
}

#[tokio::test]
async fn pod_of_the_probe_gets_its_answer() {
    let test = ResolverTest::new().await;
    let (_, other) = test.multi("other");
    fail(&test).await;
    assert_eq!(test.look_up(&other).await, Err(LookupError::CircuitOpen));
    later(circuit::OPEN).await;
    assert_eq!(test.look_up(&other).await, Ok(BOTH));
    let (_, next) = test.multi("next");
    assert_eq!(test.look_up(&next).await, Ok(BOTH), "the circuit is closed");
}

/// Goal: while one repository answers 500, nine of ten new tags of other repositories are tolerated. This holds for
/// anonymous access and with a pull secret.
#[tokio::test]
async fn bad_repository_leaves_others_answered() {
    let anonymous = CredentialCandidate::anonymous();
    let secret = tenant("a");
    for candidate in [anonymous, secret] {
        let test = ResolverTest::new().await;
        let (bad, _) = test.multi("bad");
        bad.fault(Some(Fault::status(500)));
        let mut tolerated = 0;
        for number in 0..10 {
            for tag in 0..5 {
                let image: ImageRef = bad.reference(&format!("t{number}-{tag}")).parse().unwrap();
                let outcome = test
                    .look_up_as(&image, std::slice::from_ref(&candidate), SECOND)
                    .await;
                assert!(outcome.is_err());
            }
            let (_, image) = test.multi(&format!("good{}", number % 5));
            let image: ImageRef = image
                .as_str()
                .replace(":v1", &format!(":v{number}"))
                .parse()
                .unwrap();
            test.remote
                .repo(&format!("good{}", number % 5))
                .index(Some(&format!("v{number}")), ["linux/amd64"]);
            let outcome = test
                .look_up_as(&image, std::slice::from_ref(&candidate), SECOND)
                .await;
            tolerated += usize::from(outcome.is_ok());
        }
        assert_eq!(tolerated, 10, "{candidate:?}");
    }
}

#[tokio::test]
async fn one_bad_tag_opens_no_circuit() {
    let test = ResolverTest::new().await;
    let (repo, good) = test.multi("app");
    repo.fault(Some(Fault::custom(|request| {
        request.path.ends_with("/bad").then(|| Fault::status(500))
    })));
    let bad: ImageRef = repo.reference("bad").parse().unwrap();
    for _ in 0..4 {
        later(15 * SECOND).await;
        assert_eq!(test.look_up(&bad).await, Err(LookupError::Unreachable));
    }
    assert_eq!(test.look_up(&good).await, Ok(BOTH));
}

/// Goal: half a minute after the whole registry begins to fail, no Pod of any tenant waits for half a second.
#[tokio::test]
async fn hanging_registry_delays_no_tenant_for_long() {
    let test = ResolverTest::with(|lookup, _| lookup.timeout = 60 * SECOND).await;
    for namespace in ["one", "two"] {
        let (repo, image) = test.multi(&format!("of-{namespace}"));
        repo.fault(Some(Fault::hang()));
        let images = [image];
        let lookup = test.pod(namespace, &images, 3 * SECOND);
        let outcome = test.without_answer(lookup, 3 * SECOND).await;
        assert_eq!(outcome, [Err(LookupError::BudgetExceeded)]);
    }
    let (repo, image) = test.multi("new");
    repo.fault(Some(Fault::hang()));
    let images = [image];
    for (wait, silence) in [
        (PATIENCE, Duration::ZERO),
        (circuit::PROBE_PATIENCE, LONG_SILENCE),
    ] {
        later(silence).await;
        for namespace in ["one", "two", "three"] {
            let lookup = test.pod(namespace, &images, 3 * SECOND);
            let (outcome, ()) = tokio::join!(lookup, later(wait));
            assert_eq!(
                outcome,
                [Err(LookupError::BudgetExceeded)],
                "{namespace} {wait:?}"
            );
        }
    }
    assert!(circuit::PROBE_PATIENCE < SECOND / 2);
}

/// The clock runs while nothing is answered. One Pod a second is created, in turn of some namespaces and images.
#[tokio::test(start_paused = true)]
async fn only_the_first_pods_wait_for_a_hanging_registry() {
    for (images, namespaces) in [(1, 1), (1, 3), (3, 1), (3, 3), (60, 60)] {
        let test = ResolverTest::on_another_clock().await;
        let images: Vec<ImageRef> = (0..images)
            .map(|i| {
                let (repo, image) = test.multi(&format!("app{i}"));
                repo.fault(Some(Fault::hang()));
                image
            })
            .collect();
        let pods = (0..60).map(|i| {
            let resolver = test.resolver.clone();
            let image = images[i as usize % images.len()].clone();
            let namespace = format!("team-{}", i % namespaces);
            async move {
                sleep(i * SECOND).await;
                let begun = Instant::now();
                let candidates = |_: &ImageRef| vec![CredentialCandidate::anonymous()].into();
                let tenant = Tenant::of(&namespace);
                let images = [&image];
                let lookup = outcomes(&resolver, tenant, &images, candidates, 3 * SECOND);
                assert!(lookup.await[0].is_err());
                begun.elapsed()
            }
        });
        let waits = futures_util::future::join_all(pods).await;
        let long = waits
            .iter()
            .filter(|wait| **wait > PATIENCE + Duration::from_millis(5))
            .count();
        let all: Duration = waits.iter().sum();
        assert!(long <= namespaces.min(2) as usize, "{long} of {waits:?}");
        assert!(all < 40 * SECOND, "{all:?} of {waits:?}");
    }
}

/// The second command joins a lookup that has been without an answer for a second.
#[tokio::test(start_paused = true)]
async fn commands_wait_for_lookups_at_a_silent_registry() {
    let test = ResolverTest::on_another_clock().await;
    let (repo, image) = test.multi("app");
    repo.fault(Some(Fault::hang()));
    let commands = (0..2).map(|i| {
        let resolver = test.resolver.clone();
        let image = image.clone();
        async move {
            sleep(i * SECOND).await;
            let candidates = |_: &ImageRef| vec![CredentialCandidate::anonymous()].into();
            let budget = 60 * SECOND;
            outcomes(&resolver, Tenant::Operator, &[&image], candidates, budget).await[0]
        }
    });
    let outcomes = futures_util::future::join_all(commands).await;
    assert_eq!(outcomes, [Err(LookupError::Timeout); 2]);
}

/// One tenant's images that hang do not shorten the wait of others.
#[tokio::test]
async fn silence_for_one_tenant_shortens_no_other_wait() {
    let test = ResolverTest::new().await;
    let image = test.multi("app").1;
    let access = |namespace| Access {
        namespace,
        ..access_of(&test, &image)
    };
    let host = test.resolver.hosts.get(image.host());
    let patience = |namespaces: &[u64]| -> Vec<Duration> {
        namespaces
            .iter()
            .map(|namespace| host.patience(access(*namespace)))
            .collect()
    };
    let begin = |namespace| {
        let mut attempt = host.enter(access(namespace)).unwrap();
        attempt.begin_query();
        attempt
    };
    let _hanging = begin(1);
    later(PATIENCE).await;
    assert_eq!(patience(&[1, 2]), [PATIENCE, Duration::MAX]);
    later(LONG_SILENCE).await;
    assert_eq!(patience(&[1, 2]), [PATIENCE, Duration::MAX]);
    // An answer to another namespace ends the silence for all.
    begin(2).finish(Ending::Failed(FailureClass::Missing));
    assert_eq!(patience(&[1]), [Duration::MAX]);
    let [_first, _second, of_other] = [1, 1, 2].map(begin);
    later(PATIENCE).await;
    assert_eq!(patience(&[3]), [PATIENCE], "two have no answer");
    later(LONG_SILENCE).await;
    assert_eq!(patience(&[3]), [circuit::PROBE_PATIENCE], "for long");
    drop(of_other);
    assert_eq!(patience(&[1, 3]), [PATIENCE, Duration::MAX]);
    // After a minute a silence no longer counts, unless another lookup began since.
    later(FORGOTTEN / 2).await;
    let _later = begin(1);
    later(FORGOTTEN / 2).await;
    assert_eq!(patience(&[1]), [PATIENCE]);
    later(FORGOTTEN / 2).await;
    assert_eq!(patience(&[1]), [Duration::MAX]);
}

fn access_of(test: &ResolverTest, image: &ImageRef) -> Access {
    let candidates = vec![CredentialCandidate::anonymous()].into();
    let request = LookupRequest::new(image, candidates, Requester::OPERATOR);
    test.resolver.hosts.access(&request)
}
