use super::*;
use crate::credentials::CredentialOwner;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const PAUSES: Pauses = Pauses {
    repository: HOUR,
    registry: MINUTE,
};
const SECOND: Duration = Duration::from_secs(1);

fn access(namespace: u64, repository: u64) -> Access {
    let credential = CredentialId::ANONYMOUS;
    Access {
        image: repository,
        repository,
        namespace,
        credential,
        owner: CredentialOwner::Operator,
    }
}

fn with_credential(name: &str, access: Access) -> Access {
    Access {
        credential: CredentialId::of(&[name]),
        owner: CredentialOwner::Pod,
        ..access
    }
}

/// Records a 429 of the registry.
fn throttle(throttling: &mut Throttling, access: Access, now: Instant) {
    throttling.add(access, Target::Registry, PAUSES, now);
}

#[test]
fn a_429_pauses_its_repository() {
    let now = Instant::now();
    let mut throttling = Throttling::default();
    throttle(&mut throttling, access(1, 10), now);
    let later = now + HOUR - SECOND;
    for namespace in [1, 2] {
        assert!(throttling.applies_to(access(namespace, 10), later));
        assert!(
            !throttling.applies_to(access(namespace, 11), now),
            "another repository"
        );
    }
    assert!(
        !throttling.applies_to(with_credential("a", access(1, 10)), now),
        "another account"
    );
    assert!(!throttling.applies_to(access(1, 10), now + HOUR));
}

#[test]
fn longer_pause_of_a_repository_wins() {
    let now = Instant::now();
    let mut throttling = Throttling::default();
    throttle(&mut throttling, access(1, 10), now);
    let short = Pauses {
        repository: MINUTE,
        registry: MINUTE,
    };
    throttling.add(access(1, 10), Target::Registry, short, now + SECOND);
    assert!(throttling.applies_to(access(1, 10), now + HOUR - SECOND));
}

/// As Docker Hub's limit for anonymous pulls does, which counts for the whole address.
#[test]
fn second_throttled_repository_pauses_the_registry() {
    let now = Instant::now();
    let mut throttling = Throttling::default();
    throttle(&mut throttling, access(1, 10), now);
    throttle(&mut throttling, access(1, 10), now);
    assert!(
        !throttling.applies_to(access(2, 12), now),
        "the same repository twice"
    );
    throttle(&mut throttling, access(2, 11), now + SECOND);
    for namespace in [1, 2, 3] {
        let other = access(namespace, 12);
        assert!(throttling.applies_to(other, now + MINUTE), "{namespace}");
        assert!(
            !throttling.applies_to(other, now + SECOND + MINUTE),
            "{namespace}"
        );
    }
    assert!(!throttling.applies_to(with_credential("a", access(1, 12)), now + SECOND));
}

#[test]
fn later_429s_prolong_their_namespaces_pause_only() {
    let start = Instant::now();
    let mut throttling = Throttling::default();
    for second in 0..300 {
        let now = start + second * SECOND;
        throttle(&mut throttling, access(1, u64::from(2 * second)), now);
        throttle(&mut throttling, access(2, u64::from(2 * second + 1)), now);
        for attacker in [1, 2] {
            assert!(
                throttling.applies_to(access(attacker, 1_000_000), now),
                "{second}"
            );
        }
        let is_paused = throttling.applies_to(access(3, 1_000_000), now);
        assert_eq!(is_paused, second < 60, "{second}");
    }
}

#[test]
fn answers_of_other_repositories_prevent_a_pause() {
    let start = Instant::now();
    let mut throttling = Throttling::default();
    throttle(&mut throttling, access(1, 10), start);
    throttle(&mut throttling, access(2, 11), start);
    throttling.answered(access(3, 12), start + SECOND);
    for second in 1..600 {
        let now = start + second * SECOND;
        throttle(&mut throttling, access(1, u64::from(100 + second)), now);
        assert!(!throttling.applies_to(access(3, 13), now), "{second}");
        assert!(
            throttling.applies_to(access(3, 11), now),
            "what is throttled stays paused"
        );
    }
    let now = start + REMEMBERED + SECOND;
    throttle(&mut throttling, access(1, 1000), now);
    throttle(&mut throttling, access(1, 1001), now);
    assert!(
        throttling.applies_to(access(3, 13), now),
        "nobody has been answered for ten minutes"
    );
}

#[test]
fn answer_of_the_throttled_repository_does_not_count() {
    let now = Instant::now();
    let mut throttling = Throttling::default();
    throttle(&mut throttling, access(1, 10), now);
    throttling.answered(access(1, 10), now);
    throttle(&mut throttling, access(1, 11), now);
    assert!(throttling.applies_to(access(3, 12), now));
}

#[test]
fn answer_before_the_first_429_prevents_no_pause() {
    let now = Instant::now();
    let mut throttling = Throttling::default();
    throttling.answered(access(3, 12), now);
    throttle(&mut throttling, access(1, 10), now);
    throttle(&mut throttling, access(1, 11), now);
    assert!(throttling.applies_to(access(3, 12), now));
}

#[test]
fn redirect_target_pauses_repositories_only() {
    let now = Instant::now();
    let mut throttling = Throttling::default();
    for repository in 0..10 {
        throttling.add(access(1, repository), Target::RedirectTarget, PAUSES, now);
        assert!(throttling.applies_to(access(2, repository), now));
        assert!(!throttling.applies_to(access(1, 100), now));
    }
    // These repositories do not keep a registry that throttles from being paused, either.
    throttling.answered(access(1, 100), now);
    throttle(&mut throttling, access(1, 101), now);
    throttle(&mut throttling, access(1, 102), now);
    assert!(throttling.applies_to(access(2, 103), now));
}

#[test]
fn one_namespace_evicts_no_repositories_of_others() {
    let now = Instant::now();
    let mut throttling = Throttling::default();
    throttle(&mut throttling, access(1, 10), now);
    for repository in 100..1000 {
        throttle(&mut throttling, access(2, repository), now);
    }
    assert!(throttling.applies_to(access(3, 10), now));
    assert_eq!(throttling.repositories.len(), 1 + REPOSITORIES_OF_NAMESPACE);
    for namespace in 3..100 {
        throttle(&mut throttling, access(namespace, 1000 + namespace), now);
    }
    assert_eq!(
        throttling.repositories.len(),
        1 + REPOSITORIES_OF_NAMESPACE + 97
    );
    for namespace in 100..300 {
        throttle(&mut throttling, access(namespace, 1000 + namespace), now);
    }
    assert_eq!(throttling.repositories.len(), REPOSITORIES);
    let of_largest = throttling
        .repositories
        .iter()
        .filter(|throttled| throttled.namespace == 2)
        .count();
    assert!(
        of_largest <= 2,
        "repositories of the namespace with the most are dropped: {of_largest}"
    );
}

#[test]
fn many_credentials_leave_the_anonymous_account() {
    let now = Instant::now();
    let mut throttling = Throttling::default();
    throttle(&mut throttling, access(1, 10), now);
    throttle(&mut throttling, access(1, 11), now);
    for number in 0..4 * ACCOUNTS {
        throttle(
            &mut throttling,
            with_credential(&number.to_string(), access(2, 12)),
            now,
        );
    }
    assert!(
        throttling.accounts.len() <= ACCOUNTS + 1,
        "{}",
        throttling.accounts.len()
    );
    assert!(throttling.applies_to(access(3, 13), now));
}

/// All orders of the steps of three namespaces. A namespace without a 429 is paused at most once and for a minute,
/// whatever happens to the others, and is not paused while its own lookups are answered.
#[test]
fn others_pause_a_namespace_for_a_limited_time() {
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// A lookup of a new repository is throttled for this namespace.
        Throttled(u64),
        Answered,
        Minute,
    }
    let steps = [
        Step::Throttled(1),
        Step::Throttled(2),
        Step::Answered,
        Step::Minute,
    ];
    let length = 7;
    for order in 0..steps.len().pow(length) {
        let start = Instant::now();
        let mut now = start;
        let mut throttling = Throttling::default();
        let mut first_429 = None;
        let mut answered = None;
        let mut shown = Vec::new();
        for place in 0..length {
            let step = steps[order / steps.len().pow(place) % steps.len()];
            shown.push(step);
            match step {
                Step::Throttled(namespace) => {
                    throttle(&mut throttling, access(namespace, u64::from(place)), now);
                    first_429 = first_429.or(Some(now));
                }
                Step::Answered => {
                    throttling.answered(access(3, 100), now);
                    answered = first_429.map(|_| now).or(answered);
                }
                Step::Minute => now += MINUTE,
            }
            let is_paused = throttling.applies_to(access(3, 101), now);
            assert!(!(is_paused && answered.is_some()), "{shown:?}");
            assert!(
                !is_paused
                    || shown
                        .iter()
                        .filter(|step| matches!(step, Step::Throttled(_)))
                        .count()
                        > 1
            );
        }
        // A minute after the last change the third namespace is not paused.
        assert!(
            !throttling.applies_to(access(3, 101), now + MINUTE),
            "{shown:?}"
        );
    }
}
