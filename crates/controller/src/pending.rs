//! Pending Pods: each is decided on again until the platforms of its images are known.
//!
//! A Pod with unknown images is decided on every second, which the cache answers.

mod pods;

use std::borrow::Cow;

use futures_util::stream::{self, FuturesUnordered, StreamExt};
use tokio::time::{Duration, Instant, MissedTickBehavior, interval};

use self::pods::{Look, Pods};
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
use tolerarch_kubernetes::cluster::{Called, Known, Namespace, ObjectEvent, Scope, StoredPod};

const WITHOUT_NODE: &str = "spec.nodeName=";
/// Time between searches for Pods that are due.
const PERIOD: Duration = Duration::from_millis(250);
/// Maximum number of concurrent decisions: 1,024 a second if all images are cached, which takes 4 % of a core, and
/// enough for a usual scale-up while a registry hangs.
const DECIDING: usize = 256;
/// Time for which an image stays unknown before an event reports it: most registries recover sooner.
const TOLD: Duration = Duration::from_secs(10);
/// Minimum time before all Pods are listed again because some had no room.
const ANEW: Duration = Duration::from_secs(60);
/// Time between reads of the webhook configurations.
const SCOPE: Duration = Duration::from_secs(30);

const PODS_UNREAD: &str = "the Pods without a node cannot be read";
const NAMESPACES_UNREAD: &str = "the namespaces cannot be read";
const SCOPE_UNREAD: &str = "the webhook configurations cannot be read";
const FORBIDDEN: &str = "Pods cannot be repaired: a right is missing, or the fence is in the way";

#[expect(
    clippy::too_many_lines,
    reason = "one loop, whose arms share their futures"
)]
pub(super) async fn follow(context: &Context) {
    let writer = &Writer::new(context, Pace::new(repair::PER_SECOND, repair::BURST));
    let mut changes = context.watcher.follow::<StoredPod>(Some(WITHOUT_NODE));
    let mut listed = Instant::now();
    // Learning takes the Pods alone.
    let ControllerSettings { repair, events, .. } = *context.settings.borrow();
    let decides = repair || events;
    let mut of_namespaces = if decides {
        context.watcher.follow::<Namespace>(None)
    } else {
        stream::pending().boxed()
    };
    let mut pods = Pods::default();
    let mut namespaces = Known::default();
    let mut scope = None;
    let mut looks = FuturesUnordered::new();
    let [mut ticks, mut scopes] = [PERIOD, SCOPE].map(interval);
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
            Some(done) = looks.next() => {
                let (uid, look): (String, Look) = done;
                pods.finish(&uid, look);
            }
            _ = scopes.tick(), if decides => scope = read_scope(context, scope.as_ref()).await.or(scope),
            _ = ticks.tick() => {
                if pods.has_room_again() && listed.elapsed() >= ANEW {
                    changes = context.watcher.follow(Some(WITHOUT_NODE));
                    listed = Instant::now();
                }
                context.state.set_fault(FORBIDDEN, pods.any_forbidden());
                let Some(scope) = &scope else { continue };
                if !namespaces.is_complete() || !(context.is_discovered)() {
                    continue;
                }
                for (pod, since) in pods.due(DECIDING.saturating_sub(looks.len())) {
                    let uid = pod.uid().to_owned();
                    let Some(labels) = namespaces.objects().get(pod.namespace()) else {
                        // The Pod's namespace has not been read yet.
                        pods.finish(&uid, Look::Unknown);
                        continue;
                    };
                    match scope.called(labels, &pod.metadata.labels) {
                        Called::For(profile) => {
                            let profile = profile.map(str::to_owned);
                            looks.push(async move { (uid, look(writer, &pod, since, profile).await) });
                        }
                        Called::No | Called::Unknown => pods.finish(&uid, Look::Settled),
                    }
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
    // Logged once, and no fault: the condition is valid.
    if !scope.is_evaluable() && before.is_none_or(Scope::is_evaluable) {
        tracing::warn!(
            "a matchCondition of the webhook cannot be evaluated here: Pods that it is about are not repaired"
        );
    }
    Some(scope)
}

/// Decides on a Pod, records events on what keeps pools closed, and adds the tolerations of the opened pools.
async fn look(
    writer: &Writer<'_>,
    pod: &StoredPod,
    since: Instant,
    profile: Option<String>,
) -> Look {
    let context = writer.context;
    let snapshot = context.current.load_full();
    let (Some(facts), Some(policy)) = (&pod.facts, snapshot.policy_for(profile.as_deref())) else {
        return Look::Settled;
    };
    let Some(decision) = decide(&snapshot, policy, pod.namespace(), facts).await else {
        return Look::Settled;
    };
    let ControllerSettings {
        repair: repairs,
        events,
        ..
    } = *context.settings.borrow();
    let is_temporary = is_temporary(decision.reason);
    let is_closed = !decision.blockers.is_empty()
        && !policy.pools.is_empty()
        && policy.mode_for(facts) == Mode::Enforce;
    let event = ObjectEvent::on(pod, POOL_CLOSED);
    if events && decision.edits.selects {
        let mut selected = decision.opened.clone();
        selected.retain(|pool| !pool.select.is_empty());
        context.recorder.record(event, || note::too_late(selected));
    } else if events && is_closed && (!is_temporary || since.elapsed() >= TOLD) {
        let note = || note::closed(&policy.pools, &decision.blockers);
        context.recorder.record(event, note);
    }
    if is_temporary {
        return Look::Unknown;
    }
    if !repairs {
        return Look::Settled;
    }
    let policy = policy.for_existing();
    let decision = match &policy {
        Cow::Borrowed(_) => Some(decision),
        Cow::Owned(policy) => decide(&snapshot, policy, pod.namespace(), facts).await,
    };
    let Some(decision) = decision else {
        return Look::Settled;
    };
    let opened = decision.opened.clone();
    let Some(patch) = patch_of(pod, facts, decision) else {
        return Look::Settled;
    };
    let written = repair(writer, pod, &patch).await;
    if events && written == Some(Ok(())) {
        context
            .recorder
            .record(ObjectEvent::on(pod, POOL_OPENED), || note::opened(opened));
    }
    Look::Tried(written)
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

/// Returns whether the next decision may differ, as a registry may answer otherwise by then.
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
