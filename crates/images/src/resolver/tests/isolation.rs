//! Results of one tenant's credential reach no other tenant: no answer, failure, digest, or lookup in flight.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::*;
use crate::credentials::Credential;
use crate::credentials::testing::{of_operator, of_pod, secret, with_cluster};
use crate::resolver::circuit::FAILURES;
use tolerarch_kubernetes::cluster::testing::ApiServer;

/// Returns the credential of a tenant, whose password is its name.
pub(super) fn tenant(name: &str) -> CredentialCandidate {
    of_pod(Credential::Basic {
        user: name.into(),
        password: name.to_owned().into(),
    })
}

/// Returns a tenant's candidates: its own credential, then anonymous access.
fn candidates(name: &str) -> [CredentialCandidate; 2] {
    [tenant(name), CredentialCandidate::anonymous()]
}

fn header(name: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{name}:{name}")))
}

const DENIED: Outcome = Err(LookupError::Denied);

impl Bench {
    /// Makes an image for the tenant `a` only.
    fn private(&self, name: &str) -> (Repo, ImageRef) {
        let (repo, image) = self.multi(name);
        repo.require(Auth::basic("a", "a"));
        (repo, image)
    }

    async fn ask_with(&self, image: &ImageRef, candidates: &[CredentialCandidate]) -> Outcome {
        self.ask_as(image, candidates, 5 * SECOND).await
    }

    /// Returns the `Authorization` of each manifest request since the last call.
    fn shown(&self) -> Vec<Option<String>> {
        let requests = self.remote.requests();
        self.remote.forget_requests();
        requests
            .into_iter()
            .filter(|r| r.kind == Kind::Manifest)
            .map(|r| r.authorization)
            .collect()
    }
}

#[tokio::test]
async fn no_tenant_gets_an_answer_of_anothers_credential() {
    for a_is_first in [true, false] {
        let bench = Bench::new().await;
        let (repo, tag) = bench.private("app");
        let digest: ImageRef = repo
            .reference(&repo.digest_of("v1").unwrap())
            .parse()
            .unwrap();
        for image in [&tag, &digest] {
            for round in 0..2 {
                if a_is_first {
                    assert_eq!(bench.ask_with(image, &candidates("a")).await, Ok(BOTH));
                }
                assert_eq!(
                    bench.ask_with(image, &candidates("b")).await,
                    DENIED,
                    "{round}"
                );
                assert_eq!(
                    bench
                        .ask_with(image, &[CredentialCandidate::anonymous()])
                        .await,
                    DENIED,
                    "{round}"
                );
                assert_eq!(
                    bench.ask_with(image, &[tenant("b")]).await,
                    DENIED,
                    "{round}"
                );
                assert_eq!(
                    bench.ask_with(image, &candidates("a")).await,
                    Ok(BOTH),
                    "{round}"
                );
            }
        }
    }
}

/// The operator's goes to fewer token servers, so that it may be refused where the same one of a Pod is not.
#[tokio::test]
async fn a_refusal_of_the_operators_credential_is_none_of_a_pods_own() {
    let bench = Bench::new().await;
    let (repo, image) = bench.private("app");
    let of_a = Credential::Basic {
        user: "a".into(),
        password: "a".to_owned().into(),
    };
    let of_operator = of_operator(of_a.clone());
    let of_pod = of_pod(of_a);
    let key = |candidate: &CredentialCandidate| {
        let candidates = vec![candidate.clone()].into();
        LookupRequest::new(&image, candidates, Requester::OPERATOR).query_key()
    };
    assert_ne!(key(&of_operator), key(&of_pod));
    repo.fault(Some(Fault::status(403)));
    assert_eq!(bench.ask_with(&image, &[of_operator]).await, DENIED);
    repo.fault(None);
    assert_eq!(bench.ask_with(&image, &[of_pod]).await, Ok(BOTH));
}

#[tokio::test]
async fn a_digest_that_another_tenant_has_learnt_is_asked_for_anew() {
    let bench = Bench::new().await;
    let (repo, tag) = bench.private("app");
    assert_eq!(bench.ask_with(&tag, &candidates("a")).await, Ok(BOTH));
    let digest: ImageRef = repo
        .reference(&repo.digest_of("v1").unwrap())
        .parse()
        .unwrap();
    bench.seen();
    assert_eq!(bench.ask_with(&digest, &candidates("b")).await, DENIED);
    assert!(!bench.seen().is_empty(), "the registry has said so");
    assert_eq!(bench.ask_with(&digest, &candidates("a")).await, Ok(BOTH));
    assert_eq!(
        bench.seen(),
        [""; 0],
        "the tenant that learnt it has it cached"
    );
}

#[tokio::test]
async fn what_a_tenant_may_not_see_looks_the_same_whether_it_is_there_or_known_or_not() {
    let bench = Bench::new().await;
    let (repo, known) = bench.private("app");
    let absent: ImageRef = repo.reference("absent").parse().unwrap();
    assert_eq!(bench.ask_with(&known, &candidates("a")).await, Ok(BOTH));
    assert_eq!(
        bench.ask_with(&absent, &candidates("a")).await,
        Err(LookupError::NotFound)
    );
    for image in [
        &known,
        &absent,
        &repo.reference("never-asked-for").parse().unwrap(),
    ] {
        bench.seen();
        assert_eq!(
            bench.ask_with(image, &candidates("b")).await,
            DENIED,
            "{image}"
        );
        let by_b = bench
            .shown()
            .into_iter()
            .filter(|shown| *shown == Some(header("b")))
            .count();
        assert_eq!(by_b, 1, "the registry itself has said so");
    }
}

#[tokio::test]
async fn no_tenant_joins_anothers_lookup() {
    let bench = Bench::new().await;
    let (repo, image) = bench.private("app");
    let a = header("a");
    repo.fault(Some(Fault::custom(move |request| {
        (request.authorization.as_ref() == Some(&a)).then(Fault::hang)
    })));
    assert_eq!(
        bench.ask_as(&image, &candidates("a"), Duration::ZERO).await,
        Err(LookupError::BudgetExceeded)
    );
    bench
        .remote
        .wait_until(|seen| seen.iter().any(|request| request.authorization.is_some()))
        .await;
    assert_eq!(bench.ask_with(&image, &candidates("b")).await, DENIED);
    assert_eq!(bench.ask(&image).await, DENIED);
    assert_eq!(
        bench.resolver.fetcher.flights.count(),
        1,
        "that of the first tenant"
    );
    assert_eq!(bench.counted("joined"), 0);
    assert_eq!(
        bench.ask_as(&image, &candidates("a"), Duration::ZERO).await,
        Err(LookupError::BudgetExceeded)
    );
    assert_eq!(bench.counted("joined"), 1, "which its own Pods do join");
}

/// The Secret counts for a minute, and the denial for another one.
#[tokio::test]
async fn a_rotated_secret_works_within_two_minutes() {
    let bench = Bench::new().await;
    let (_, image) = bench.private("app");
    let api = ApiServer::start().await;
    let rotate = |word: &str| {
        let auth = serde_json::json!({"username": "a", "password": word});
        let auths = serde_json::json!({"auths": {image.host(): auth}});
        api.answer("team", "pull", 200, &secret("dockerconfigjson", &auths));
    };
    let credentials = with_cluster(&api, &[]);
    let ask = async || {
        let candidates = credentials
            .keyring("team", ["pull"])
            .await
            .candidates(&image)
            .into_owned();
        bench.ask_with(&image, &candidates).await
    };
    rotate("old");
    assert_eq!(ask().await, DENIED);
    rotate("a");
    assert_eq!(ask().await, DENIED, "the Secret was read a moment ago");
    later(60 * SECOND).await;
    // The Pod that finds the Secret too old has it read for the next one.
    let _ = ask().await;
    later(60 * SECOND).await;
    assert_eq!(ask().await, Ok(BOTH));
}

#[tokio::test]
async fn answers_of_anonymous_access_are_shared() {
    let bench = Bench::new().await;
    let (_, image) = bench.multi("app");
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
    for name in ["a", "b"] {
        assert_eq!(bench.ask_with(&image, &candidates(name)).await, Ok(BOTH));
    }
    assert_eq!(bench.ask_with(&image, &[tenant("a")]).await, Ok(BOTH));
    assert_eq!(
        bench.seen(),
        ["GET", "GET"],
        "but not with a tenant that may not ask anonymously"
    );
}

#[tokio::test]
async fn a_wrong_password_changes_no_other_tenants_answer() {
    let bench = Bench::new().await;
    let (public, image) = bench.multi("public");
    public.require(Auth::bearer().credentials("a", "a").or_anonymous());
    assert_eq!(bench.ask_with(&image, &[tenant("b")]).await, DENIED);
    assert_eq!(
        bench.ask_with(&image, &candidates("b")).await,
        Ok(BOTH),
        "anonymous access has it"
    );
    bench.seen();
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
    assert_eq!(bench.ask_with(&image, &candidates("b")).await, Ok(BOTH));
    assert_eq!(bench.seen(), [""; 0]);
    assert_eq!(bench.ask_with(&image, &[tenant("a")]).await, Ok(BOTH));
}

#[tokio::test]
async fn candidates_are_tried_in_their_order_until_one_is_accepted() {
    let bench = Bench::new().await;
    let (repo, image) = bench.private("app");
    let all = [
        tenant("b"),
        tenant("c"),
        tenant("a"),
        tenant("d"),
        CredentialCandidate::anonymous(),
    ];
    assert_eq!(bench.ask_with(&image, &all).await, Ok(BOTH));
    let shown = bench.shown();
    assert_eq!(
        shown,
        [
            None,
            Some(header("b")),
            Some(header("c")),
            Some(header("a"))
        ]
    );
    assert_eq!(bench.ask_with(&image, &all[..2]).await, DENIED);
    assert_eq!(bench.ask_with(&image, &[tenant("a")]).await, Ok(BOTH));
    assert_eq!(bench.shown(), [], "each of them is remembered");
    assert_eq!(
        bench.ask_with(&image, &[tenant("b"), tenant("d")]).await,
        DENIED
    );
    assert_eq!(
        bench.shown(),
        [Some(header("d"))],
        "and only what is not is asked"
    );

    let gone: ImageRef = repo.reference("gone").parse().unwrap();
    assert_eq!(
        bench.ask_with(&gone, &all).await,
        Err(LookupError::NotFound),
        "which tells more than a denial"
    );
    assert_eq!(
        bench.ask_with(&gone, &all).await,
        Err(LookupError::NotFound)
    );
}

#[tokio::test]
async fn a_failure_that_is_no_refusal_ends_the_lookup() {
    let bench = Bench::new().await;
    let (repo, image) = bench.private("app");
    repo.require(Auth::basic("a", "a").credentials("b", "b"));
    let b = header("b");
    repo.fault(Some(Fault::custom(move |request| {
        (request.authorization.as_ref() == Some(&b)).then(|| Fault::status(429))
    })));
    assert_eq!(
        bench.ask_with(&image, &[tenant("b"), tenant("a")]).await,
        Err(LookupError::Throttled)
    );
    assert_eq!(
        bench.ask_with(&image, &[tenant("b"), tenant("a")]).await,
        Err(LookupError::Throttled)
    );
    assert_eq!(bench.shown(), [None, Some(header("b"))]);
    assert_eq!(
        bench.ask_with(&image, &[tenant("a")]).await,
        Ok(BOTH),
        "a rate limit is an account's own"
    );
    assert_eq!(
        bench.ask_with(&image, &[tenant("b"), tenant("a")]).await,
        Ok(BOTH)
    );
}

/// The token is sent nowhere, so that the registry has refused nothing.
#[tokio::test]
async fn a_token_that_cannot_be_sent_closes_no_circuit() {
    let bench = Bench::new().await;
    for number in 0..FAILURES {
        let (repo, image) = bench.multi(&format!("app{number}"));
        repo.fault(Some(Fault::status(500)));
        assert!(bench.ask(&image).await.is_err());
    }
    let (_, good) = bench.multi("good");
    assert_eq!(bench.ask(&good).await, Err(LookupError::CircuitOpen));
    let (repo, image) = bench.multi("of-attacker");
    repo.fault(Some(Fault::status(500)));
    let unusable = of_pod(Credential::Bearer("a b".to_owned().into()));
    let all = vec![unusable, CredentialCandidate::anonymous()];
    let images = [&image];
    let attacker = Tenant::of("attacker");
    let asking = outcomes(
        &bench.resolver,
        attacker,
        &images,
        |_| all.clone().into(),
        SECOND,
    );
    assert_eq!(asking.await, [Err(LookupError::Unreachable)]);
    assert_eq!(bench.ask(&good).await, Err(LookupError::CircuitOpen));
}

#[tokio::test]
async fn without_a_candidate_no_registry_is_asked() {
    let bench = Bench::new().await;
    let (_, image) = bench.multi("app");
    assert_eq!(bench.ask_with(&image, &[]).await, DENIED);
    assert_eq!(bench.remote.connections(), 0);
}

#[tokio::test]
async fn a_refresh_asks_as_the_answer_was_got() {
    let bench = Bench::new().await;
    let (_, image) = bench.private("app");
    let all = [tenant("b"), tenant("a"), CredentialCandidate::anonymous()];
    assert_eq!(bench.ask_with(&image, &all).await, Ok(BOTH));
    bench.shown();
    later(3601 * SECOND).await;
    assert_eq!(bench.ask_with(&image, &all).await, Ok(BOTH));
    bench.landed().await;
    assert_eq!(
        bench.shown(),
        [Some(header("a"))],
        "one HEAD, and nothing of the others"
    );
    assert_eq!(bench.ask_with(&image, &all).await, Ok(BOTH));
    assert_eq!(bench.shown(), []);
}

#[tokio::test]
async fn a_revoked_credential_is_answered_no_longer() {
    let bench = Bench::new().await;
    let (repo, image) = bench.private("app");
    assert_eq!(bench.ask_with(&image, &candidates("a")).await, Ok(BOTH));
    repo.require(Auth::basic("b", "b"));
    assert_eq!(
        bench.ask_with(&image, &candidates("a")).await,
        Ok(BOTH),
        "for cache.tagTtl the registry is not asked"
    );
    later(3601 * SECOND).await;
    let _ = bench.ask_with(&image, &candidates("a")).await;
    bench.landed().await;
    assert_eq!(bench.ask_with(&image, &candidates("a")).await, DENIED);
    repo.require(Auth::basic("a", "a"));
    repo.fault(Some(Fault::hang()));
    later(61 * SECOND).await;
    let candidates = candidates("a");
    let budget = Duration::from_millis(50);
    assert_eq!(
        bench
            .unanswered(bench.ask_as(&image, &candidates, budget), SECOND / 10)
            .await,
        Err(LookupError::BudgetExceeded),
        "also when the registry fails"
    );
}

#[tokio::test]
async fn a_lookup_that_hangs_is_its_own_failure_only() {
    let bench = Bench::with(|lookup, _| lookup.timeout = Duration::from_millis(300)).await;
    let (repo, image) = bench.private("app");
    repo.require(Auth::basic("a", "a").credentials("b", "b"));
    let b = header("b");
    repo.fault(Some(Fault::custom(move |request| {
        (request.authorization.as_ref() == Some(&b)).then(Fault::hang)
    })));
    let of_b = candidates("b");
    let asking = bench.ask_with(&image, &of_b);
    assert_eq!(
        bench.unanswered(asking, SECOND / 2).await,
        Err(LookupError::Timeout)
    );
    assert_eq!(
        bench.ask_with(&image, &of_b).await,
        Err(LookupError::Timeout)
    );
    assert_eq!(bench.ask_with(&image, &candidates("a")).await, Ok(BOTH));
    assert_eq!(bench.ask(&image).await, DENIED);
}

#[tokio::test]
async fn nothing_that_is_remembered_shows_a_credential() {
    let bench = Bench::new().await;
    let (_, image) = bench.private("app");
    let canary = Credential::Basic {
        user: "a".into(),
        password: "canary-password".to_owned().into(),
    };
    let candidates = [of_pod(canary), CredentialCandidate::anonymous()];
    let request = LookupRequest::new(&image, candidates.to_vec().into(), Requester::OPERATOR);
    let shown = format!(
        "{:?} {candidates:?} {:?}",
        request.key(),
        bench.ask_with(&image, &candidates).await
    );
    assert!(
        !shown.contains("canary") && !shown.contains(&BASE64.encode("canary")),
        "{shown}"
    );
}
