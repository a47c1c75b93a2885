//! Results of one tenant's credential reach no other tenant: no answer, failure, digest or lookup in flight.

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

impl ResolverTest {
    /// Makes an image for the tenant `a` only.
    fn private(&self, name: &str) -> (Repo, ImageRef) {
        let (repo, image) = self.multi(name);
        repo.require(Auth::basic("a", "a"));
        (repo, image)
    }

    async fn look_up_with(&self, image: &ImageRef, candidates: &[CredentialCandidate]) -> Outcome {
        self.look_up_as(image, candidates, 5 * SECOND).await
    }

    /// Returns the `Authorization` of each manifest request since the last call.
    fn authorizations(&self) -> Vec<Option<String>> {
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
async fn answers_are_separate_by_credential() {
    for a_is_first in [true, false] {
        let test = ResolverTest::new().await;
        let (repo, tag) = test.private("app");
        let digest: ImageRef = repo
            .reference(&repo.digest_of("v1").unwrap())
            .parse()
            .unwrap();
        for image in [&tag, &digest] {
            for round in 0..2 {
                if a_is_first {
                    assert_eq!(test.look_up_with(image, &candidates("a")).await, Ok(BOTH));
                }
                assert_eq!(
                    test.look_up_with(image, &candidates("b")).await,
                    DENIED,
                    "{round}"
                );
                assert_eq!(
                    test.look_up_with(image, &[CredentialCandidate::anonymous()])
                        .await,
                    DENIED,
                    "{round}"
                );
                assert_eq!(
                    test.look_up_with(image, &[tenant("b")]).await,
                    DENIED,
                    "{round}"
                );
                assert_eq!(
                    test.look_up_with(image, &candidates("a")).await,
                    Ok(BOTH),
                    "{round}"
                );
            }
        }
    }
}

/// The operator's credential goes to fewer token servers, so it may be refused where the same credential of a Pod is
/// not.
#[tokio::test]
async fn refusal_of_operators_credential_spares_pods_credential() {
    let test = ResolverTest::new().await;
    let (repo, image) = test.private("app");
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
    assert_eq!(test.look_up_with(&image, &[of_operator]).await, DENIED);
    repo.fault(None);
    assert_eq!(test.look_up_with(&image, &[of_pod]).await, Ok(BOTH));
}

#[tokio::test]
async fn digest_of_another_tenant_is_looked_up_again() {
    let test = ResolverTest::new().await;
    let (repo, tag) = test.private("app");
    assert_eq!(test.look_up_with(&tag, &candidates("a")).await, Ok(BOTH));
    let digest: ImageRef = repo
        .reference(&repo.digest_of("v1").unwrap())
        .parse()
        .unwrap();
    test.new_requests();
    assert_eq!(test.look_up_with(&digest, &candidates("b")).await, DENIED);
    assert!(!test.new_requests().is_empty(), "the registry refused it");
    assert_eq!(test.look_up_with(&digest, &candidates("a")).await, Ok(BOTH));
    assert_eq!(
        test.new_requests(),
        [""; 0],
        "it is cached for the tenant that looked it up"
    );
}

#[tokio::test]
async fn forbidden_image_looks_the_same_whether_it_exists_or_not() {
    let test = ResolverTest::new().await;
    let (repo, existing) = test.private("app");
    let absent: ImageRef = repo.reference("absent").parse().unwrap();
    assert_eq!(
        test.look_up_with(&existing, &candidates("a")).await,
        Ok(BOTH)
    );
    assert_eq!(
        test.look_up_with(&absent, &candidates("a")).await,
        Err(LookupError::NotFound)
    );
    for image in [
        &existing,
        &absent,
        &repo.reference("never-looked-up").parse().unwrap(),
    ] {
        test.new_requests();
        assert_eq!(
            test.look_up_with(image, &candidates("b")).await,
            DENIED,
            "{image}"
        );
        let by_b = test
            .authorizations()
            .into_iter()
            .filter(|authorization| *authorization == Some(header("b")))
            .count();
        assert_eq!(by_b, 1, "the registry itself refused it");
    }
}

#[tokio::test]
async fn lookups_of_tenants_are_separate() {
    let test = ResolverTest::new().await;
    let (repo, image) = test.private("app");
    let a = header("a");
    repo.fault(Some(Fault::custom(move |request| {
        (request.authorization.as_ref() == Some(&a)).then(Fault::hang)
    })));
    assert_eq!(
        test.look_up_as(&image, &candidates("a"), Duration::ZERO)
            .await,
        Err(LookupError::BudgetExceeded)
    );
    test.remote
        .wait_until(|seen| seen.iter().any(|request| request.authorization.is_some()))
        .await;
    assert_eq!(test.look_up_with(&image, &candidates("b")).await, DENIED);
    assert_eq!(test.look_up(&image).await, DENIED);
    assert_eq!(
        test.resolver.fetcher.flights.count(),
        1,
        "the first tenant's"
    );
    assert_eq!(test.lookup_count("joined"), 0);
    assert_eq!(
        test.look_up_as(&image, &candidates("a"), Duration::ZERO)
            .await,
        Err(LookupError::BudgetExceeded)
    );
    assert_eq!(test.lookup_count("joined"), 1, "its own Pods join it");
}

/// The Secret is cached for a minute, and the denial for another one.
#[tokio::test]
async fn rotated_secret_is_used_within_two_minutes() {
    let test = ResolverTest::new().await;
    let (_, image) = test.private("app");
    let api = ApiServer::start().await;
    let rotate = |word: &str| {
        let auth = serde_json::json!({"username": "a", "password": word});
        let auths = serde_json::json!({"auths": {image.host(): auth}});
        api.answer("team", "pull", 200, &secret("dockerconfigjson", &auths));
    };
    let credentials = with_cluster(&api, &[]);
    let look_up = async || {
        let candidates = credentials
            .keyring("team", ["pull"])
            .await
            .candidates(&image)
            .into_owned();
        test.look_up_with(&image, &candidates).await
    };
    rotate("old");
    assert_eq!(look_up().await, DENIED);
    rotate("a");
    assert_eq!(look_up().await, DENIED, "the Secret was read a moment ago");
    later(60 * SECOND).await;
    // This Pod gets the old Secret, and causes it to be read again.
    let _ = look_up().await;
    later(60 * SECOND).await;
    assert_eq!(look_up().await, Ok(BOTH));
}

#[tokio::test]
async fn anonymous_answers_are_shared() {
    let test = ResolverTest::new().await;
    let (_, image) = test.multi("app");
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
    for name in ["a", "b"] {
        assert_eq!(test.look_up_with(&image, &candidates(name)).await, Ok(BOTH));
    }
    assert_eq!(test.look_up_with(&image, &[tenant("a")]).await, Ok(BOTH));
    assert_eq!(
        test.new_requests(),
        ["GET", "GET"],
        "but not with a tenant without anonymous access"
    );
}

#[tokio::test]
async fn wrong_password_changes_no_other_tenants_answer() {
    let test = ResolverTest::new().await;
    let (public, image) = test.multi("public");
    public.require(Auth::bearer().credentials("a", "a").or_anonymous());
    assert_eq!(test.look_up_with(&image, &[tenant("b")]).await, DENIED);
    assert_eq!(
        test.look_up_with(&image, &candidates("b")).await,
        Ok(BOTH),
        "anonymous access has it"
    );
    test.new_requests();
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
    assert_eq!(test.look_up_with(&image, &candidates("b")).await, Ok(BOTH));
    assert_eq!(test.new_requests(), [""; 0]);
    assert_eq!(test.look_up_with(&image, &[tenant("a")]).await, Ok(BOTH));
}

#[tokio::test]
async fn candidates_are_tried_until_one_is_accepted() {
    let test = ResolverTest::new().await;
    let (repo, image) = test.private("app");
    let all = [
        tenant("b"),
        tenant("c"),
        tenant("a"),
        tenant("d"),
        CredentialCandidate::anonymous(),
    ];
    assert_eq!(test.look_up_with(&image, &all).await, Ok(BOTH));
    assert_eq!(
        test.authorizations(),
        [
            None,
            Some(header("b")),
            Some(header("c")),
            Some(header("a"))
        ]
    );
    assert_eq!(test.look_up_with(&image, &all[..2]).await, DENIED);
    assert_eq!(test.look_up_with(&image, &[tenant("a")]).await, Ok(BOTH));
    assert_eq!(test.authorizations(), [], "each result is cached");
    assert_eq!(
        test.look_up_with(&image, &[tenant("b"), tenant("d")]).await,
        DENIED
    );
    assert_eq!(
        test.authorizations(),
        [Some(header("d"))],
        "only the candidate that is not cached is tried"
    );

    let gone: ImageRef = repo.reference("gone").parse().unwrap();
    assert_eq!(
        test.look_up_with(&gone, &all).await,
        Err(LookupError::NotFound),
        "reported in place of a denial"
    );
    assert_eq!(
        test.look_up_with(&gone, &all).await,
        Err(LookupError::NotFound)
    );
}

#[tokio::test]
async fn failure_other_than_refusal_ends_the_lookup() {
    let test = ResolverTest::new().await;
    let (repo, image) = test.private("app");
    repo.require(Auth::basic("a", "a").credentials("b", "b"));
    let b = header("b");
    repo.fault(Some(Fault::custom(move |request| {
        (request.authorization.as_ref() == Some(&b)).then(|| Fault::status(429))
    })));
    assert_eq!(
        test.look_up_with(&image, &[tenant("b"), tenant("a")]).await,
        Err(LookupError::Throttled)
    );
    assert_eq!(
        test.look_up_with(&image, &[tenant("b"), tenant("a")]).await,
        Err(LookupError::Throttled)
    );
    assert_eq!(test.authorizations(), [None, Some(header("b"))]);
    assert_eq!(
        test.look_up_with(&image, &[tenant("a")]).await,
        Ok(BOTH),
        "a rate limit is an account's own"
    );
    assert_eq!(
        test.look_up_with(&image, &[tenant("b"), tenant("a")]).await,
        Ok(BOTH)
    );
}

/// The token cannot be sent, so the registry has refused nothing.
#[tokio::test]
async fn unsendable_token_closes_no_circuit() {
    let test = ResolverTest::new().await;
    for number in 0..FAILURES {
        let (repo, image) = test.multi(&format!("app{number}"));
        repo.fault(Some(Fault::status(500)));
        assert!(test.look_up(&image).await.is_err());
    }
    let (_, good) = test.multi("good");
    assert_eq!(test.look_up(&good).await, Err(LookupError::CircuitOpen));
    let (repo, image) = test.multi("of-attacker");
    repo.fault(Some(Fault::status(500)));
    let unusable = of_pod(Credential::Bearer("a b".to_owned().into()));
    let all = vec![unusable, CredentialCandidate::anonymous()];
    let images = [&image];
    let attacker = Tenant::of("attacker");
    let lookup = outcomes(
        &test.resolver,
        attacker,
        &images,
        |_| all.clone().into(),
        SECOND,
    );
    assert_eq!(lookup.await, [Err(LookupError::Unreachable)]);
    assert_eq!(test.look_up(&good).await, Err(LookupError::CircuitOpen));
}

#[tokio::test]
async fn image_without_candidates_sends_no_request() {
    let test = ResolverTest::new().await;
    let (_, image) = test.multi("app");
    assert_eq!(test.look_up_with(&image, &[]).await, DENIED);
    assert_eq!(test.remote.connections(), 0);
}

#[tokio::test]
async fn refresh_uses_the_candidate_of_the_answer() {
    let test = ResolverTest::new().await;
    let (_, image) = test.private("app");
    let all = [tenant("b"), tenant("a"), CredentialCandidate::anonymous()];
    assert_eq!(test.look_up_with(&image, &all).await, Ok(BOTH));
    test.authorizations();
    later(3601 * SECOND).await;
    assert_eq!(test.look_up_with(&image, &all).await, Ok(BOTH));
    test.wait_until_idle().await;
    assert_eq!(
        test.authorizations(),
        [Some(header("a"))],
        "one HEAD, and none with the others"
    );
    assert_eq!(test.look_up_with(&image, &all).await, Ok(BOTH));
    assert_eq!(test.authorizations(), []);
}

#[tokio::test]
async fn revoked_credential_ends_its_answers() {
    let test = ResolverTest::new().await;
    let (repo, image) = test.private("app");
    assert_eq!(test.look_up_with(&image, &candidates("a")).await, Ok(BOTH));
    repo.require(Auth::basic("b", "b"));
    assert_eq!(
        test.look_up_with(&image, &candidates("a")).await,
        Ok(BOTH),
        "the registry is not queried for cache.tagTtl"
    );
    later(3601 * SECOND).await;
    let _ = test.look_up_with(&image, &candidates("a")).await;
    test.wait_until_idle().await;
    assert_eq!(test.look_up_with(&image, &candidates("a")).await, DENIED);
    repo.require(Auth::basic("a", "a"));
    repo.fault(Some(Fault::hang()));
    later(61 * SECOND).await;
    let candidates = candidates("a");
    let budget = Duration::from_millis(50);
    assert_eq!(
        test.without_answer(test.look_up_as(&image, &candidates, budget), SECOND / 10)
            .await,
        Err(LookupError::BudgetExceeded),
        "also when the registry fails"
    );
}

#[tokio::test]
async fn hanging_lookup_fails_alone() {
    let test = ResolverTest::with(|lookup, _| lookup.timeout = Duration::from_millis(300)).await;
    let (repo, image) = test.private("app");
    repo.require(Auth::basic("a", "a").credentials("b", "b"));
    let b = header("b");
    repo.fault(Some(Fault::custom(move |request| {
        (request.authorization.as_ref() == Some(&b)).then(Fault::hang)
    })));
    let of_b = candidates("b");
    let lookup = test.look_up_with(&image, &of_b);
    assert_eq!(
        test.without_answer(lookup, SECOND / 2).await,
        Err(LookupError::Timeout)
    );
    assert_eq!(
        test.look_up_with(&image, &of_b).await,
        Err(LookupError::Timeout)
    );
    assert_eq!(test.look_up_with(&image, &candidates("a")).await, Ok(BOTH));
    assert_eq!(test.look_up(&image).await, DENIED);
}

#[tokio::test]
async fn lookup_keys_and_debug_contain_no_credential() {
    let test = ResolverTest::new().await;
    let (_, image) = test.private("app");
    let canary = Credential::Basic {
        user: "a".into(),
        password: "canary-password".to_owned().into(),
    };
    let candidates = [of_pod(canary), CredentialCandidate::anonymous()];
    let request = LookupRequest::new(&image, candidates.to_vec().into(), Requester::OPERATOR);
    let debug = format!(
        "{:?} {candidates:?} {:?}",
        request.key(),
        test.look_up_with(&image, &candidates).await
    );
    assert!(
        !debug.contains("canary") && !debug.contains(&BASE64.encode("canary")),
        "{debug}"
    );
}
