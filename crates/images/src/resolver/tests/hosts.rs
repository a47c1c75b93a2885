//! Registries that throttle or fail: pauses, circuits and probes.

use super::isolation::tenant;
use super::*;
use crate::registry::FailureClass;
use crate::resolver::access::Access;
use crate::resolver::host::{Ending, FORGOTTEN, LONG_SILENCE, PATIENCE};
use tokio::time::sleep;

#[tokio::test]
async fn a_repository_that_is_throttled_has_its_pause() {
    for retry_after in [Some("300"), None] {
        let bench = Bench::new().await;
        let (repo, image) = bench.multi("app");
        let (_, other) = bench.multi("other");
        let tag: ImageRef = repo.reference("v2").parse().unwrap();
        repo.index(Some("v2"), ["linux/amd64", "linux/arm64"]);
        repo.fault(Some(too_many(retry_after)));
        assert_eq!(bench.ask(&image).await, Err(LookupError::Throttled));
        assert_eq!(
            bench.ask(&tag).await,
            Err(LookupError::Throttled),
            "the whole repository"
        );
        assert_eq!(bench.ask(&other).await, Ok(BOTH), "no other one");
        assert_eq!(bench.seen(), ["GET"; 2]);
        repo.fault(None);
        later(if retry_after.is_some() { 250 } else { 50 } * SECOND).await;
        assert_eq!(bench.ask(&tag).await, Err(LookupError::Throttled));
        later(61 * SECOND).await;
        assert_eq!(bench.ask(&tag).await, Ok(BOTH));
        assert_eq!(bench.ask(&image).await, Ok(BOTH));
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
async fn a_registry_that_throttles_everything_is_paused_after_two_repositories() {
    let bench = Bench::new().await;
    for (name, namespace) in [("one", "a"), ("two", "b")] {
        let (repo, image) = bench.multi(name);
        repo.fault(Some(too_many(Some("3600"))));
        assert_eq!(
            bench.pod(namespace, &[image], SECOND).await,
            [Err(LookupError::Throttled)]
        );
    }
    let (repo, image) = bench.multi("three");
    let images = [image];
    bench.seen();
    assert_eq!(
        bench.pod("c", &images, SECOND).await,
        [Err(LookupError::Throttled)]
    );
    assert_eq!(bench.seen(), [""; 0], "it is not asked");
    // Each minute a namespace finds out for itself.
    repo.fault(Some(too_many(None)));
    later(61 * SECOND).await;
    assert_eq!(
        bench.pod("c", &images, SECOND).await,
        [Err(LookupError::Throttled)]
    );
    assert_eq!(bench.seen(), ["GET"]);
    let (_, image) = bench.multi("four");
    let images = [image];
    assert_eq!(
        bench.pod("c", &images, SECOND).await,
        [Err(LookupError::Throttled)]
    );
    assert_eq!(bench.seen(), [""; 0]);
    later(61 * SECOND).await;
    assert_eq!(bench.pod("c", &images, SECOND).await, [Ok(BOTH)]);
}

/// The goal: whatever two tenants have throttled, a third one's images are known but for one minute in eleven.
#[tokio::test]
async fn tenants_whose_repositories_are_throttled_pause_the_registry_for_no_other() {
    let bench = Bench::new().await;
    let mut known = 0;
    for round in 0..40 {
        for namespace in ["a", "b"] {
            let (repo, image) = bench.multi(&format!("{namespace}{round}"));
            repo.fault(Some(too_many(Some("3600"))));
            assert_eq!(
                bench.pod(namespace, &[image], SECOND).await,
                [Err(LookupError::Throttled)]
            );
        }
        let (_, image) = bench.multi(&format!("good{round}"));
        known += usize::from(bench.pod("c", &[image], SECOND).await == [Ok(BOTH)]);
        later(31 * SECOND).await;
    }
    assert_eq!(known, 38, "but for the first minute");
}

#[tokio::test]
async fn what_throttles_elsewhere_pauses_its_repository_only() {
    let bench = Bench::new().await;
    let elsewhere = Remote::builder().plain_http().start().await;
    let (_, good) = bench.multi("good");
    let at_target = elsewhere.repo("app");
    at_target.fault(Some(too_many(Some("3600"))));
    for name in ["one", "two", "three"] {
        let (repo, image) = bench.multi(name);
        repo.fault(Some(Fault::redirect(
            307,
            &format!("{}/v2/app/manifests/v1", elsewhere.url()),
        )));
        assert_eq!(
            bench.ask(&image).await,
            Err(LookupError::Throttled),
            "{name}"
        );
        let tag: ImageRef = repo.reference("v2").parse().unwrap();
        bench.seen();
        assert_eq!(bench.ask(&tag).await, Err(LookupError::Throttled), "{name}");
        assert_eq!(bench.seen(), [""; 0]);
    }
    assert_eq!(bench.ask(&good).await, Ok(BOTH));
}

#[tokio::test]
async fn a_token_server_that_throttles_one_repository_pauses_that_one() {
    let bench = Bench::new().await;
    let (repo, image) = bench.multi("app");
    let auth = Auth::bearer().or_anonymous();
    repo.require(auth.clone());
    auth.fault(Some(too_many(Some("3600"))));
    let (_, good) = bench.multi("good");
    assert_eq!(bench.ask(&image).await, Err(LookupError::Throttled));
    assert_eq!(bench.ask(&good).await, Ok(BOTH));
    auth.fault(None);
    later(3500 * SECOND).await;
    assert_eq!(bench.ask(&image).await, Err(LookupError::Throttled));
    later(101 * SECOND).await;
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
}

#[tokio::test]
async fn a_registry_that_keeps_failing_delays_no_pod_until_it_works_again() {
    let bench = Bench::new().await;
    let mut images = Vec::new();
    for i in 0..20 {
        let (repo, image) = bench.multi(&format!("app{i}"));
        repo.fault(Some(Fault::status(503)));
        images.push((repo, image));
    }
    let mut outcomes = Vec::new();
    for (_, image) in &images[..6] {
        outcomes.push(bench.ask(image).await);
    }
    let faults = Err(LookupError::Unreachable);
    let open = Err(LookupError::CircuitOpen);
    assert_eq!(outcomes, [faults, faults, faults, open, open, open]);
    assert_eq!(bench.seen().len(), 3);

    // A Pod finds the registry still failing.
    later(circuit::OPEN).await;
    assert_eq!(
        [bench.ask(&images[6].1).await, bench.ask(&images[7].1).await],
        [faults, open]
    );
    assert_eq!(bench.seen().len(), 1);

    images.iter().for_each(|(repo, _)| repo.fault(None));
    assert_eq!(bench.ask(&images[7].1).await, open);
    later(circuit::OPEN).await;
    assert_eq!(bench.ask(&images[8].1).await, Ok(BOTH));
    // Failed images are looked up again after their negative lifetime.
    later(15 * SECOND).await;
    for (_, image) in &images {
        assert_eq!(bench.ask(image).await, Ok(BOTH), "{image}");
    }
}

/// The goal: the registry is in use again within ten seconds, and until then no Pod waits for half a second.
#[tokio::test]
async fn no_pod_waits_long_for_a_probe() {
    let bench = Bench::new().await;
    let ((repo, image), (other, next)) = (bench.multi("app"), bench.multi("next"));
    fail(&bench).await;
    [&repo, &other]
        .iter()
        .for_each(|repo| repo.fault(Some(Fault::hang())));
    bench.seen();
    later(circuit::OPEN).await;
    let (outcome, ()) = tokio::join!(bench.ask(&image), later(circuit::PROBE_PATIENCE));
    assert_eq!(outcome, Err(LookupError::CircuitOpen));
    for image in [&image, &next] {
        assert_eq!(
            bench.ask_within(image, Duration::ZERO).await,
            Err(LookupError::CircuitOpen)
        );
    }
    bench.remote.wait_until(|seen| seen.len() == 1).await;

    // The probe hangs until its timeout, though the registry works again before.
    other.fault(None);
    later(circuit::PROBE_TIME).await;
    bench.landed().await;
    assert_eq!(bench.ask(&next).await, Err(LookupError::CircuitOpen));
    later(circuit::OPEN).await;
    assert_eq!(bench.ask(&next).await, Ok(BOTH));
    assert!(
        circuit::PROBE_TIME + circuit::OPEN < 10 * SECOND && circuit::PROBE_PATIENCE < SECOND / 2
    );
}

/// Makes three repositories fail, so that the circuit opens.
async fn fail(bench: &Bench) {
    for name in ["bad1", "bad2", "bad3"] {
        let (repo, image) = bench.multi(name);
        repo.fault(Some(Fault::status(503)));
        assert_eq!(bench.ask(&image).await, Err(LookupError::Unreachable));
    }
}

#[tokio::test]
async fn one_bad_image_fails_alone() {
    let bench = Bench::new().await;
    let (bad, _) = bench.multi("bad");
    bad.fault(Some(Fault::status(500)));
    for tag in 0..100 {
        assert!(
            bench
                .ask(&bad.reference(&format!("t{tag}")).parse().unwrap())
                .await
                .is_err()
        );
        if tag % 10 == 0 {
            let (_, image) = bench.multi(&format!("good{tag}"));
            assert_eq!(bench.ask(&image).await, Ok(BOTH), "{tag}");
        }
    }
}

#[tokio::test]
async fn several_bad_repositories_of_one_namespace_rest_for_no_other() {
    let bench = Bench::new().await;
    let (_, other) = bench.multi("other");
    fail(&bench).await;
    assert_eq!(bench.ask(&other).await, Err(LookupError::CircuitOpen));
    assert_eq!(
        bench
            .pod("another", std::slice::from_ref(&other), SECOND)
            .await,
        [Ok(BOTH)]
    );
    assert_eq!(
        bench.ask(&bench.multi("next").1).await,
        Ok(BOTH),
        "the registry has answered"
    );
}

/// The registry has answered by its redirects, though what the lookups get are timeouts.
#[tokio::test]
async fn what_hangs_elsewhere_rests_for_its_repository_only() {
    let own = Remote::builder().plain_http().start().await;
    let elsewhere = [Remote::builder().plain_http().start().await];
    let bench = Bench {
        clock: Some(StoppedClock::stop()),
        ..Bench::of(own, &elsewhere, |_, _| {})
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
        let repo = bench.remote.repo(name);
        repo.fault(Some(redirect.clone().only_manifests()));
        let image: ImageRef = repo.reference(tag).parse().unwrap();
        target.forget_requests();
        let hanging = async {
            target.wait_until(|seen| !seen.is_empty()).await;
            later(bench.resolver.fetcher.timeout).await;
        };
        let outcome = tokio::join!(bench.ask(&image), hanging).0;
        assert!(outcome.is_err(), "{name}:{tag}");
        bench.landed().await;
        if tag == "v3" {
            let rested = repo.reference("v4").parse().unwrap();
            let outcome = bench.ask(&rested).await;
            assert_eq!(outcome, Err(LookupError::CircuitOpen));
        }
    }
    let (_, good) = bench.multi("good");
    assert_eq!(bench.ask(&good).await, Ok(BOTH));
}

#[tokio::test]
async fn a_pod_whose_lookup_is_the_probe_gets_its_answer() {
    let bench = Bench::new().await;
    let (_, other) = bench.multi("other");
    fail(&bench).await;
    assert_eq!(bench.ask(&other).await, Err(LookupError::CircuitOpen));
    later(circuit::OPEN).await;
    assert_eq!(bench.ask(&other).await, Ok(BOTH));
    let (_, next) = bench.multi("next");
    assert_eq!(bench.ask(&next).await, Ok(BOTH), "the circuit is closed");
}

/// The goal: with one repository that answers 500, nine of ten new tags of the others are tolerated.
#[tokio::test]
async fn with_one_bad_repository_the_others_are_answered_anonymously_and_with_a_pull_secret() {
    let anonymous = CredentialCandidate::anonymous();
    let secret = tenant("a");
    for candidate in [anonymous, secret] {
        let bench = Bench::new().await;
        let (bad, _) = bench.multi("bad");
        bad.fault(Some(Fault::status(500)));
        let mut tolerated = 0;
        for number in 0..10 {
            for tag in 0..5 {
                let image: ImageRef = bad.reference(&format!("t{number}-{tag}")).parse().unwrap();
                let outcome = bench
                    .ask_as(&image, std::slice::from_ref(&candidate), SECOND)
                    .await;
                assert!(outcome.is_err());
            }
            let (_, image) = bench.multi(&format!("good{}", number % 5));
            let image: ImageRef = image
                .as_str()
                .replace(":v1", &format!(":v{number}"))
                .parse()
                .unwrap();
            bench
                .remote
                .repo(&format!("good{}", number % 5))
                .index(Some(&format!("v{number}")), ["linux/amd64"]);
            let outcome = bench
                .ask_as(&image, std::slice::from_ref(&candidate), SECOND)
                .await;
            tolerated += usize::from(outcome.is_ok());
        }
        assert_eq!(tolerated, 10, "{candidate:?}");
    }
}

#[tokio::test]
async fn one_bad_tag_does_not_rest_its_repository() {
    let bench = Bench::new().await;
    let (repo, good) = bench.multi("app");
    repo.fault(Some(Fault::custom(|request| {
        request.path.ends_with("/bad").then(|| Fault::status(500))
    })));
    let bad: ImageRef = repo.reference("bad").parse().unwrap();
    for _ in 0..4 {
        later(15 * SECOND).await;
        assert_eq!(bench.ask(&bad).await, Err(LookupError::Unreachable));
    }
    assert_eq!(bench.ask(&good).await, Ok(BOTH));
}

/// The goal: when the whole registry fails, no Pod of any tenant waits for half a second after half a minute.
#[tokio::test]
async fn when_a_whole_registry_hangs_no_pod_of_any_tenant_waits_long() {
    let bench = Bench::with(|lookup, _| lookup.timeout = 60 * SECOND).await;
    for namespace in ["one", "two"] {
        let (repo, image) = bench.multi(&format!("of-{namespace}"));
        repo.fault(Some(Fault::hang()));
        let images = [image];
        let asking = bench.pod(namespace, &images, 3 * SECOND);
        let outcome = bench.unanswered(asking, 3 * SECOND).await;
        assert_eq!(outcome, [Err(LookupError::BudgetExceeded)]);
    }
    let (repo, image) = bench.multi("new");
    repo.fault(Some(Fault::hang()));
    let images = [image];
    for (wait, silence) in [
        (PATIENCE, Duration::ZERO),
        (circuit::PROBE_PATIENCE, LONG_SILENCE),
    ] {
        later(silence).await;
        for namespace in ["one", "two", "three"] {
            let asking = bench.pod(namespace, &images, 3 * SECOND);
            let (outcome, ()) = tokio::join!(asking, later(wait));
            assert_eq!(
                outcome,
                [Err(LookupError::BudgetExceeded)],
                "{namespace} {wait:?}"
            );
        }
    }
    assert!(circuit::PROBE_PATIENCE < SECOND / 2);
}

/// The clock runs while nothing is answered. Pods come once a second, of some namespaces and images.
#[tokio::test(start_paused = true)]
async fn only_the_first_pods_wait_long_for_a_registry_that_hangs() {
    for (images, namespaces) in [(1, 1), (1, 3), (3, 1), (3, 3), (60, 60)] {
        let bench = Bench::on_another_clock().await;
        let images: Vec<ImageRef> = (0..images)
            .map(|i| {
                let (repo, image) = bench.multi(&format!("app{i}"));
                repo.fault(Some(Fault::hang()));
                image
            })
            .collect();
        let pods = (0..60).map(|i| {
            let resolver = bench.resolver.clone();
            let image = images[i as usize % images.len()].clone();
            let namespace = format!("team-{}", i % namespaces);
            async move {
                sleep(i * SECOND).await;
                let begun = Instant::now();
                let candidates = |_: &ImageRef| vec![CredentialCandidate::anonymous()].into();
                let tenant = Tenant::of(&namespace);
                let images = [&image];
                let asking = outcomes(&resolver, tenant, &images, candidates, 3 * SECOND);
                assert!(asking.await[0].is_err());
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

/// The second command joins a lookup that has left it a second ago without an answer.
#[tokio::test(start_paused = true)]
async fn commands_wait_until_a_lookup_ends_however_silent_the_registry_is() {
    let bench = Bench::on_another_clock().await;
    let (repo, image) = bench.multi("app");
    repo.fault(Some(Fault::hang()));
    let commands = (0..2).map(|i| {
        let resolver = bench.resolver.clone();
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
async fn one_tenant_does_not_make_others_impatient() {
    let bench = Bench::new().await;
    let image = bench.multi("app").1;
    let access = |namespace| Access {
        namespace,
        ..bench_access(&bench, &image)
    };
    let host = bench.resolver.hosts.get(image.host());
    let patience = |namespaces: &[u64]| -> Vec<Duration> {
        namespaces
            .iter()
            .map(|namespace| host.patience(access(*namespace)))
            .collect()
    };
    let ask = |namespace| {
        let mut attempt = host.enter(access(namespace)).unwrap();
        attempt.begin_query();
        attempt
    };
    let _hangs = ask(1);
    later(PATIENCE).await;
    assert_eq!(patience(&[1, 2]), [PATIENCE, Duration::MAX]);
    later(LONG_SILENCE).await;
    assert_eq!(patience(&[1, 2]), [PATIENCE, Duration::MAX]);
    // An answer to another namespace ends the silence for all.
    ask(2).finish(Ending::Failed(FailureClass::Missing));
    assert_eq!(patience(&[1]), [Duration::MAX]);
    let [_first, _second, of_other] = [1, 1, 2].map(ask);
    later(PATIENCE).await;
    assert_eq!(patience(&[3]), [PATIENCE], "two have no answer");
    later(LONG_SILENCE).await;
    assert_eq!(patience(&[3]), [circuit::PROBE_PATIENCE], "for long");
    drop(of_other);
    assert_eq!(patience(&[1, 3]), [PATIENCE, Duration::MAX]);
    // A silence of a minute ago says nothing of now, unless another lookup began since.
    later(FORGOTTEN / 2).await;
    let _later = ask(1);
    later(FORGOTTEN / 2).await;
    assert_eq!(patience(&[1]), [PATIENCE]);
    later(FORGOTTEN / 2).await;
    assert_eq!(patience(&[1]), [Duration::MAX]);
}

fn bench_access(bench: &Bench, image: &ImageRef) -> Access {
    let candidates = vec![CredentialCandidate::anonymous()].into();
    let request = LookupRequest::new(image, candidates, Requester::OPERATOR);
    bench.resolver.hosts.access(&request)
}
