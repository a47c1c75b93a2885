//! Pending Pods: a decision on each Pod is repeated until the platforms of its images are known.
//!
//! For a Pod with unknown images it is repeated every second, from the cache.

mod pods;

use std::borrow::Cow;
use std::collections::BTreeMap;

use futures_util::stream::{self, FuturesUnordered, StreamExt};
use tokio::time::{Duration, Instant, MissedTickBehavior, interval};

use self::pods::{Outcome, Pods};
use super::ControllerSettings;
use super::loops::{Context, Writer};
use super::note::{self, POOL_CLOSED, POOL_OPENED};
use super::pace::Pace;
use super::repair::{self, patch_of, repair};
use tolerarch_core::decision::Decision;
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::{Mode, Policy};
use tolerarch_core::reason::{LookupError, Reason};
use tolerarch_engine::decide::{self, Snapshot, Wait};
use tolerarch_kubernetes::cluster::{
    Namespace, ObjectEvent, ObjectStore, Scope, StoredPod, WebhookCall,
};

const WITHOUT_NODE: &str = "spec.nodeName=";
/// Time between searches for Pods that are due.
const PERIOD: Duration = Duration::from_millis(250);
/// Maximum number of concurrent decisions. If all images are cached, this allows 1,024 a second, which take 4 % of a
/// core. While a registry hangs, it suffices for a usual scale-up.
const DECIDING: usize = 256;
/// Time for which an image stays unknown before an event reports it: most registries recover sooner.
const REPORT_DELAY: Duration = Duration::from_secs(10);
/// Minimum time between lists of all Pods, which are repeated because some Pods had no room.
const RELIST: Duration = Duration::from_secs(60);
/// Time between reads of the webhook configurations.
const SCOPE_PERIOD: Duration = Duration::from_secs(30);

const PODS_UNREAD: &str = "the Pods without a node cannot be read";
const NAMESPACES_UNREAD: &str = "the namespaces cannot be read";
const SCOPE_UNREAD: &str = "the webhook configurations cannot be read";
const FORBIDDEN: &str = "Pods cannot be repaired: a right is missing, or the fence is in the way";

pub(super) async fn follow(context: &Context) {
    let writer = &Writer::new(context, Pace::new(repair::PER_SECOND, repair::BURST));
    let mut changes = context.watcher.follow::<StoredPod>(Some(WITHOUT_NODE));
    let mut listed = Instant::now();
    // Learning needs only the Pods.
    let ControllerSettings { repair, events, .. } = *context.settings.borrow();
    let decides = repair || events;
    let mut of_namespaces = if decides {
        context.watcher.follow::<Namespace>(None)
    } else {
        stream::pending().boxed()
    };
    let mut pods = Pods::default();
    let mut namespaces = ObjectStore::default();
    let mut scope = None;
    let mut decisions = FuturesUnordered::new();
    let [mut ticks, mut scopes] = [PERIOD, SCOPE_PERIOD].map(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    scopes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(change) = changes.next() => {
                context.report_watch_state(PODS_UNREAD, &change);
                context.detect_recreation(&change);
                pods.take(change);
            }
            Some(change) = of_namespaces.next() => {
                context.report_watch_state(NAMESPACES_UNREAD, &change);
                namespaces.take(change, |namespace| namespace.metadata.labels);
            }
            Some(done) = decisions.next() => {
                let (uid, outcome): (String, Outcome) = done;
                pods.finish(&uid, outcome);
            }
            _ = scopes.tick(), if decides => scope = read_scope(context, scope.as_ref()).await.or(scope),
            _ = ticks.tick() => {
                if pods.has_room_again() && listed.elapsed() >= RELIST {
                    changes = context.watcher.follow(Some(WITHOUT_NODE));
                    listed = Instant::now();
                }
                context.state.set_fault(FORBIDDEN, pods.any_forbidden());
                let Some(scope) = &scope else { continue };
                if !namespaces.is_complete() || !(context.is_discovered)() {
                    continue;
                }
                let free = DECIDING.saturating_sub(decisions.len());
                for due in due_pods(&mut pods, namespaces.objects(), scope, free) {
                    decisions.push(async move {
                        let outcome = process(writer, &due).await;
                        (due.pod.uid().to_owned(), outcome)
                    });
                }
            }
        }
    }
}

/// Reads for which Pods the webhook is called; `None` if that cannot be read.
async fn read_scope(context: &Context, before: Option<&Scope>) -> Option<Scope> {
    let names = context.settings.borrow().webhook_configurations.clone();
    let read = Scope::read(&context.cluster, &names).await;
    context.report(SCOPE_UNREAD, read.as_ref().err().copied());
    let scope = read.ok()?;
    // Logged once. It is no fault, as the condition is valid.
    if !scope.is_evaluable() && before.is_none_or(Scope::is_evaluable) {
        tracing::warn!(
            "a matchCondition of the webhook cannot be evaluated here: Pods to which it applies are not repaired"
        );
    }
    Some(scope)
}

/// A Pod that needs a decision.
struct DuePod {
    pod: StoredPod,
    /// Time at which the Pod was first seen.
    since: Instant,
    /// Profile with which the webhook is called for the Pod.
    profile: Option<String>,
}

/// Returns at most `free` due Pods for which the webhook is called. Other due Pods are finished.
fn due_pods(
    pods: &mut Pods,
    namespaces: &BTreeMap<String, BTreeMap<String, String>>,
    scope: &Scope,
    free: usize,
) -> Vec<DuePod> {
    let mut due_pods = Vec::new();
    for (pod, since) in pods.due(free) {
        let Some(labels) = namespaces.get(pod.namespace()) else {
            // The Pod's namespace has not been read yet.
            pods.finish(pod.uid(), Outcome::Unknown);
            continue;
        };
        match scope.called(labels, &pod.metadata.labels) {
            WebhookCall::For(profile) => due_pods.push(DuePod {
                profile: profile.map(str::to_owned),
                pod,
                since,
            }),
            WebhookCall::No | WebhookCall::Unknown => pods.finish(pod.uid(), Outcome::Settled),
        }
    }
    due_pods
}

/// Decides on a Pod, reports its blockers, and adds the tolerations of pools for which it is eligible.
async fn process(writer: &Writer<'_>, due: &DuePod) -> Outcome {
    let DuePod {
        pod,
        since,
        profile,
    } = due;
    let context = writer.context;
    let snapshot = context.current.load_full();
    let (Some(facts), Some(policy)) = (&pod.facts, snapshot.policy_for(profile.as_deref())) else {
        return Outcome::Settled;
    };
    let Some(decision) = decide(&snapshot, policy, pod.namespace(), facts).await else {
        return Outcome::Settled;
    };
    let ControllerSettings {
        repair: repairs,
        events,
        ..
    } = *context.settings.borrow();
    let is_temporary = is_temporary(decision.reason);
    if events {
        let is_final = !is_temporary || since.elapsed() >= REPORT_DELAY;
        report_closed(context, pod, policy, &decision, is_final);
    }
    if is_temporary {
        return Outcome::Unknown;
    }
    if !repairs {
        return Outcome::Settled;
    }
    let policy = policy.for_existing();
    let decision = match &policy {
        Cow::Borrowed(_) => Some(decision),
        Cow::Owned(policy) => decide(&snapshot, policy, pod.namespace(), facts).await,
    };
    let Some(decision) = decision else {
        return Outcome::Settled;
    };
    let opened = decision.opened.clone();
    let Some(patch) = patch_of(pod, facts, decision) else {
        return Outcome::Settled;
    };
    let written = repair(writer, pod, &patch).await;
    if events && written == Some(Ok(())) {
        let event = ObjectEvent::on(pod, POOL_OPENED);
        context.recorder.record(event, || note::opened(opened));
    }
    Outcome::Tried(written)
}

/// Records an event on a Pod that does not get the tolerations of pools. Blockers are reported only if `is_final`.
fn report_closed(
    context: &Context,
    pod: &StoredPod,
    policy: &Policy,
    decision: &Decision<'_>,
    is_final: bool,
) {
    let event = ObjectEvent::on(pod, POOL_CLOSED);
    if decision.edits.selects {
        let mut selected = decision.opened.clone();
        selected.retain(|pool| !pool.select.is_empty());
        context.recorder.record(event, || note::too_late(selected));
        return;
    }
    let Some(facts) = &pod.facts else { return };
    if !is_final || policy.mode_for(facts) != Mode::Enforce {
        return;
    }
    if !decision.blockers.is_empty() && !policy.pools.is_empty() {
        let note = || note::closed(&policy.pools, &decision.blockers);
        context.recorder.record(event, note);
    }
}

/// Decides within the budget of a review; `None` after an internal error.
async fn decide<'a>(
    snapshot: &'a Snapshot,
    policy: &'a Policy,
    namespace: &str,
    pod: &'a Pod<'_>,
) -> Option<Decision<'a>> {
    let wait = Wait::Until {
        deadline: Instant::now() + snapshot.budget,
        review: None,
    };
    let decided = snapshot.decide(policy, namespace, pod, wait);
    decide::caught(decided).await
}

/// Returns whether the next decision may differ, because a registry may answer differently.
fn is_temporary(reason: Reason) -> bool {
    use LookupError::{AddressNotAllowed, Invalid, NotAllowed, PullNever, TooMany};

    let Reason::Unknown(error) = reason else {
        return false;
    };
    !matches!(
        error,
        Invalid | PullNever | TooMany | NotAllowed | AddressNotAllowed
    )
}

#[cfg(test)]
mod tests;
