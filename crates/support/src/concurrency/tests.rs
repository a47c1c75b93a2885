use std::task::Poll;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, poll};

use super::callers::{CALLERS, CALLERS_OF_NAMESPACE};
use super::*;

const CAPACITY: Capacity = Capacity { all: 64, per_host: 16 };

/// Work that waits for its permit, or has it.
enum Work {
    Waits(BoxFuture<'static, Option<Permit>>),
    Runs(#[expect(dead_code, reason = "held")] Permit),
    Refused,
}

impl Work {
    async fn of(limit: &Arc<ConcurrencyLimit>, caller: &Caller, host: &str, known: bool) -> Self {
        match limit.queue(&caller.clone().into(), host, known) {
            Some(queued) => Self::Waits(queued.permit().boxed()).polled().await,
            None => Self::Refused,
        }
    }

    async fn polled(self) -> Self {
        match self {
            Self::Waits(mut permit) => match poll!(&mut permit) {
                Poll::Ready(permit) => Self::Runs(permit.unwrap()),
                Poll::Pending => Self::Waits(permit),
            },
            other => other,
        }
    }

    fn runs(&self) -> bool {
        matches!(self, Self::Runs(_))
    }
}

fn caller(namespace: &str) -> Caller {
    Caller::of(Tenant::Namespace(namespace))
}

/// A Pod of this namespace names so many hosts, each another one.
async fn flood(limit: &Arc<ConcurrencyLimit>, namespace: &str, hosts: usize, known: bool) -> Vec<Work> {
    let caller = caller(namespace);
    let mut works = Vec::new();
    for host in 0..hosts {
        works.push(Work::of(limit, &caller, &format!("{namespace}-{:?}-{host}", caller.review), known).await);
    }
    works
}

fn count(works: &[Work]) -> (usize, usize) {
    let waits = works.iter().filter(|work| matches!(work, Work::Waits(_))).count();
    (works.iter().filter(|work| work.runs()).count(), waits)
}

#[tokio::test]
async fn one_review_one_namespace_and_unknown_hosts_have_their_shares() {
    let limit = ConcurrencyLimit::new(CAPACITY);
    let first = flood(&limit, "a", 64, true).await;
    assert_eq!(count(&first), (8, 56), "one review");
    let mut all = vec![first];
    for _ in 0..20 {
        all.push(flood(&limit, "a", 64, true).await);
    }
    assert_eq!(count(&all.concat_all()), (32, 256), "one namespace");

    let limit = ConcurrencyLimit::new(CAPACITY);
    let mut all = Vec::new();
    for _ in 0..20 {
        all.push(flood(&limit, "a", 64, false).await);
    }
    assert_eq!(count(&all.concat_all()), (16, 128), "one namespace, at hosts that are not known to work");
    assert!(Work::of(&limit, &caller("b"), "new", false).await.runs());

    let limit = ConcurrencyLimit::new(CAPACITY);
    let mut all = Vec::new();
    for _ in 0..200 {
        all.push(Work::of(&limit, &caller("a"), "one", true).await);
    }
    assert_eq!(count(&all), (8, 64), "one namespace at one host");
    assert!(Work::of(&limit, &caller("b"), "one", true).await.runs());
}

trait Concat {
    fn concat_all(self) -> Vec<Work>;
}

impl Concat for Vec<Vec<Work>> {
    fn concat_all(self) -> Vec<Work> {
        self.into_iter().flatten().collect()
    }
}

#[tokio::test]
async fn six_namespaces_that_flood_it_leave_a_permit_for_the_next() {
    let limit = ConcurrencyLimit::new(CAPACITY);
    let mut held = Vec::new();
    for namespace in ["a", "b", "c", "d", "e", "f"] {
        for _ in 0..9 {
            held.push(flood(&limit, namespace, 64, true).await);
        }
    }
    assert!(Work::of(&limit, &caller("victim"), "healthy", true).await.runs());
    // Hosts that are not known to work never take more than half.
    let limit = ConcurrencyLimit::new(CAPACITY);
    for namespace in 0..100 {
        held.push(flood(&limit, &namespace.to_string(), 64, false).await);
    }
    assert!(Work::of(&limit, &caller("victim"), "healthy", true).await.runs());
    assert_eq!(limit.0.lock().unknown.running.taken, 32);
}

#[tokio::test]
async fn a_free_permit_goes_to_the_namespace_and_the_review_that_hold_the_fewest() {
    let limit = ConcurrencyLimit::new(Capacity { all: 4, per_host: 4 });
    let [operator, a, b] = [Caller::of(Tenant::Operator), caller("a"), caller("b")];
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(Work::of(&limit, &operator, "x", true).await);
    }
    held.push(Work::of(&limit, &a, "x", true).await);
    held.push(Work::of(&limit, &operator, "x", true).await);
    assert_eq!(count(&held), (4, 0));
    let mut same_review = Work::of(&limit, &a, "x", true).await;
    let mut other_review = Work::of(&limit, &caller("a"), "x", true).await;
    let mut other = Work::of(&limit, &b, "x", true).await;
    drop(held.pop());
    other = other.polled().await;
    assert!(other.runs());
    // Of three permits the namespace may hold a second one only while two are free.
    drop(held.remove(0));
    drop(other);
    other_review = other_review.polled().await;
    assert!(other_review.runs());
    same_review = same_review.polled().await;
    assert!(!same_review.runs());
    drop((held, other_review));
    assert!(same_review.polled().await.runs());
}

#[tokio::test]
async fn who_joins_queued_work_of_another_namespace_brings_its_own_share() {
    let limit = ConcurrencyLimit::new(CAPACITY);
    let attacker = caller("a");
    let mut flood = Vec::new();
    for host in 0..8 {
        flood.push(Work::of(&limit, &attacker, &host.to_string(), true).await);
    }
    let callers: Callers = attacker.into();
    let mut queued = limit.queue(&callers, "healthy", true).unwrap().permit().boxed();
    assert!(poll!(&mut queued).is_pending());
    callers.join(&caller("victim"));
    assert!(poll!(&mut queued).is_ready());
}

/// Work that waits for other work brings the shares of its own callers, also of those who come later.
#[tokio::test]
async fn callers_of_callers_bring_their_shares() {
    let limit = ConcurrencyLimit::new(CAPACITY);
    let attacker = caller("a");
    let mut flood = Vec::new();
    for host in 0..8 {
        flood.push(Work::of(&limit, &attacker, &host.to_string(), true).await);
    }
    let callers: Callers = attacker.clone().into();
    let mut queued = limit.queue(&callers, "healthy", true).unwrap().permit().boxed();
    let lookup: Callers = attacker.into();
    let mut followed = callers.follow(&lookup).boxed();
    assert!(poll!(&mut followed).is_pending());
    assert!(poll!(&mut queued).is_pending());
    lookup.join(&caller("victim"));
    assert!(poll!(&mut followed).is_pending());
    assert!(poll!(&mut queued).is_ready());
}

#[tokio::test]
async fn one_namespace_does_not_take_the_callers_places_of_others() {
    let callers = Callers::from(caller("a"));
    for _ in 0..2 * CALLERS {
        callers.add(&caller("a"));
    }
    assert_eq!(callers.lock().len(), CALLERS_OF_NAMESPACE);
    let namespaces: Vec<String> = (0..CALLERS).map(|number| number.to_string()).collect();
    for namespace in &namespaces[..7] {
        assert!(callers.add(&caller(namespace)) && callers.add(&caller(namespace)));
    }
    assert_eq!(callers.lock().len(), CALLERS);
    // It is full: second callers make room.
    for namespace in &namespaces[7..15] {
        assert!(callers.add(&caller(namespace)), "{namespace}");
        assert!(!callers.add(&caller(namespace)), "one is enough by now");
    }
    assert!(!callers.add(&caller(&namespaces[15])));
    assert_eq!(callers.lock()[0].namespace(), Some("a"), "which has the place in the queue");
}

#[tokio::test]
async fn a_namespace_that_floods_queued_work_keeps_no_other_from_running_it() {
    let limit = ConcurrencyLimit::new(CAPACITY);
    let attacker = caller("a");
    let mut flood = Vec::new();
    for host in 0..8 {
        flood.push(Work::of(&limit, &attacker, &host.to_string(), true).await);
    }
    for _ in 0..5 {
        flood.extend(self::flood(&limit, "a", 8, true).await);
    }
    let callers: Callers = attacker.into();
    let mut queued = limit.queue(&callers, "healthy", true).unwrap().permit().boxed();
    for _ in 0..CALLERS {
        callers.join(&caller("a"));
    }
    assert!(poll!(&mut queued).is_pending());
    callers.join(&caller("victim"));
    assert!(poll!(&mut queued).is_ready());
}

#[tokio::test]
async fn the_operator_has_no_share_but_the_pools_hold() {
    let limit = ConcurrencyLimit::new(Capacity { all: 64, per_host: 16 });
    let operator = Caller::of(Tenant::Operator);
    let mut works = Vec::new();
    for _ in 0..200 {
        works.push(Work::of(&limit, &operator, "one", true).await);
    }
    assert_eq!(count(&works), (16, 128));
}

#[tokio::test]
async fn nothing_is_kept_of_work_that_ended_or_was_given_up() {
    let limit = ConcurrencyLimit::new(Capacity { all: 2, per_host: 2 });
    let (a, b) = (caller("a"), caller("b"));
    let runs = Work::of(&limit, &a, "x", false).await;
    let waits = Work::of(&limit, &a, "x", false).await;
    let given_up = Work::of(&limit, &b, "y", false).await;
    assert_eq!(count(&[runs, waits, given_up]), (1, 2));
    let state = limit.0.lock();
    assert!(state.hosts.is_empty() && state.reviews.is_empty() && state.queue.is_empty());
    for pool in [&state.all, &state.unknown] {
        for load in [&pool.running, &pool.waiting] {
            assert_eq!((load.taken, load.of_namespace.len()), (0, 0));
        }
    }
}

/// What comes behind everything else begins nothing while a Pod waits, or may soon have to.
#[tokio::test]
async fn half_of_the_permits_are_no_ones_to_spare() {
    let limit = ConcurrencyLimit::new(CAPACITY);
    assert!(limit.has_spare("a"));
    let one = caller("one");
    let mut works = Vec::new();
    for _ in 0..8 {
        assert!(limit.has_spare("a") && limit.has_spare("b"));
        works.push(Work::of(&limit, &one, "a", true).await);
    }
    assert!(!limit.has_spare("a") && limit.has_spare("b"));
    works.push(Work::of(&limit, &one, "a", true).await);
    assert!(!works.last().unwrap().runs() && !limit.has_spare("b"), "one waits");
    drop(works);
    assert!(limit.has_spare("a") && limit.has_spare("b"));
}
