//! Leader election: client-go's protocol (`leaderelection.go`) as a state machine without I/O.
//!
//! Clocks of replicas are never compared. A candidate waits, by its own clock, for the duration of the Lease after the
//! Lease was last seen to change; a leader stops earlier after it has begun its last renewal. So the former leader has
//! stopped before the next one begins, however both clocks are set.

use tokio::sync::watch;
use tokio::time::{Duration, Instant};

use tolerarch_kubernetes::cluster::{LeaseSpec, MicroTime};

/// Duration of the Lease after each renewal, in seconds, for which candidates wait.
pub(super) const LEASE: i32 = 15;
/// Time for which a leader acts without a renewal.
pub(super) const RENEW: Duration = Duration::from_secs(10);
/// Time between renewals by the leader, and between looks by candidates.
pub(super) const RETRY: Duration = Duration::from_secs(2);

pub(super) struct Election {
    pub(super) identity: String,
    /// Last known content of the Lease, and the time since when it has had this content.
    seen: Option<(LeaseSpec, Instant)>,
    /// Time until which this replica leads.
    pub(super) until: watch::Sender<Option<Instant>>,
}

impl Election {
    pub(super) fn new(identity: String) -> Self {
        Self { identity, seen: None, until: watch::Sender::default() }
    }

    /// Takes over the Lease's content. Returns the content to write, with this time, if this replica may lead.
    pub(super) fn look(&mut self, lease: LeaseSpec, now: Instant, time: MicroTime) -> Option<LeaseSpec> {
        let since = match &self.seen {
            Some((seen, since)) if *seen == lease => *since,
            _ => now,
        };
        self.seen = Some((lease.clone(), since));
        let holder = lease.holder_identity.as_deref().unwrap_or_default();
        let own = holder == self.identity;
        if !own {
            self.until.send_replace(None);
            let seconds = lease.lease_duration_seconds.and_then(|seconds| seconds.try_into().ok());
            if !holder.is_empty() && now < since + Duration::from_secs(seconds.unwrap_or_default()) {
                return None;
            }
        }
        let transitions = lease.lease_transitions.unwrap_or_default();
        Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(LEASE),
            lease_transitions: Some(transitions.saturating_add(i32::from(!own))),
            acquire_time: lease.acquire_time.filter(|_| own).or_else(|| Some(time.clone())),
            renew_time: Some(time),
            ..lease
        })
    }

    /// Takes over that the Lease was written, by a request that began at this time.
    pub(super) fn wrote(&mut self, begun: Instant) {
        self.until.send_replace(Some(begun + RENEW));
    }

    /// Returns the pause before the next look, which is random for candidates, so that they do not all look at once.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        let leads = self.until.borrow().is_some_and(|until| now < until);
        if leads { RETRY } else { RETRY.mul_f64(1.0 + 1.2 * fastrand::f64()) }
    }
}

/// Returns the content of a Lease that its holder has released.
pub(super) fn released(lease: &LeaseSpec, time: MicroTime) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        acquire_time: Some(time.clone()),
        renew_time: Some(time),
        ..lease.clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const THEN: u32 = 10;
    const NOW: u32 = 20;

    fn time(second: u32) -> MicroTime {
        serde_json::from_value(json!(format!("2026-01-01T00:00:{second:02}.000000Z"))).unwrap()
    }

    fn lease(holder: &str, renewed: u32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(LEASE),
            lease_transitions: Some(7),
            acquire_time: Some(time(THEN)),
            renew_time: Some(time(renewed)),
            ..LeaseSpec::default()
        }
    }

    fn look(election: &mut Election, lease: &LeaseSpec, now: Instant) -> Option<LeaseSpec> {
        election.look(lease.clone(), now, time(NOW))
    }

    #[test]
    fn a_free_lease_is_taken_at_once() {
        let mut election = Election::new("a".into());
        let wanted = look(&mut election, &LeaseSpec::default(), Instant::now()).unwrap();
        let (lease_transitions, acquire_time) = (Some(1), Some(time(NOW)));
        assert_eq!(wanted, LeaseSpec { lease_transitions, acquire_time, ..lease("a", NOW) });
        assert_eq!(*election.until.borrow(), None, "not before it was written");
    }

    #[test]
    fn a_lease_of_another_is_taken_when_it_has_not_changed_for_its_duration() {
        let (mut election, start) = (Election::new("a".into()), Instant::now());
        let at = |seconds: u32| start + seconds * SECOND;
        assert_eq!(look(&mut election, &lease("b", 1), at(0)), None);
        assert_eq!(look(&mut election, &lease("b", 1), at(14)), None);
        // Only that it changes counts: what its holder says of the time does not.
        assert_eq!(look(&mut election, &lease("b", 0), at(14)), None);
        assert_eq!(look(&mut election, &lease("b", 0), at(28)), None);
        let wanted = look(&mut election, &lease("b", 0), at(29)).unwrap();
        assert_eq!((wanted.lease_transitions, wanted.acquire_time), (Some(8), Some(time(NOW))));
        // One that was never seen before may have been renewed just now.
        assert_eq!(look(&mut Election::new("c".into()), &lease("b", 0), at(100)), None);
    }

    #[test]
    fn a_leader_stops_before_others_may_begin() {
        let (mut election, start) = (Election::new("a".into()), Instant::now());
        look(&mut election, &LeaseSpec::default(), start).unwrap();
        election.wrote(start);
        assert_eq!(*election.until.borrow(), Some(start + RENEW));
        const { assert!(RENEW.as_secs() + 3 < LEASE as u64, "a request may take another 3 s") };
        let renewed = look(&mut election, &lease("a", 1), start + 2 * SECOND).unwrap();
        assert_eq!((renewed.lease_transitions, renewed.acquire_time), (Some(7), Some(time(THEN))));
        election.wrote(start + 2 * SECOND);
        assert_eq!(*election.until.borrow(), Some(start + 2 * SECOND + RENEW));
    }

    #[test]
    fn a_leader_that_sees_another_stops_at_once() {
        let (mut election, start) = (Election::new("a".into()), Instant::now());
        election.wrote(start);
        assert_eq!(look(&mut election, &lease("b", 1), start), None);
        assert_eq!(*election.until.borrow(), None);
    }

    #[test]
    fn what_was_released_is_free() {
        let freed = released(&lease("b", 1), time(NOW));
        assert_eq!(freed.lease_transitions, Some(7));
        assert!(look(&mut Election::new("a".into()), &freed, Instant::now()).is_some());
    }

    #[test]
    fn those_who_wait_look_at_different_times() {
        let (mut election, now) = (Election::new("a".into()), Instant::now());
        let pauses: Vec<Duration> = (0..100).map(|_| election.pause(now)).collect();
        assert!(pauses.iter().all(|pause| (RETRY..=RETRY * 11 / 5).contains(pause)), "{pauses:?}");
        assert!(pauses.iter().max() > pauses.iter().min());
        election.wrote(now);
        assert_eq!(election.pause(now), RETRY);
    }
}
