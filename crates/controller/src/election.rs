//! Who leads: client-go's protocol (`leaderelection.go`) as a state machine without I/O.
//!
//! Clocks of replicas are never compared. A replica that wants to lead waits for as long as the Lease lasts after it has
//! seen it change, by its own clock; a leader stops earlier after it has begun its last renewal. So the former leader has
//! stopped before the next one begins, however both clocks are set.

use tokio::time::{Duration, Instant};

use tolerarch_kubernetes::cluster::Lease;

/// How long a Lease lasts after each renewal: others wait for so long.
pub(super) const LEASE: Duration = Duration::from_secs(15);
/// How long a leader acts without a renewal.
pub(super) const RENEW: Duration = Duration::from_secs(10);
/// How often it is renewed, or looked at by those who wait.
pub(super) const RETRY: Duration = Duration::from_secs(2);

/// One replica's part in it.
pub(super) struct Election {
    identity: String,
    /// What the Lease said last, and since when.
    seen: Option<(Lease, Instant)>,
    /// Until when this replica leads.
    until: Option<Instant>,
}

impl Election {
    /// A replica that does not lead.
    pub(super) fn new(identity: String) -> Self {
        Self { identity, seen: None, until: None }
    }

    /// By what it is known.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// Takes over what the Lease says at this time. Returns what it should say, where this replica may lead; `time` is the
    /// time of the day, for others to read.
    pub(super) fn look(&mut self, lease: Lease, now: Instant, time: String) -> Option<Lease> {
        let since = match &self.seen {
            Some((seen, since)) if *seen == lease => *since,
            _ => now,
        };
        self.seen = Some((lease.clone(), since));
        let own = lease.holder == self.identity;
        if !own {
            self.until = None;
            if !lease.holder.is_empty() && now < since + lease.duration {
                return None;
            }
        }
        Some(Lease {
            holder: self.identity.clone(),
            duration: LEASE,
            transitions: if own { lease.transitions } else { lease.transitions.saturating_add(1) },
            acquired: if own { lease.acquired } else { time.clone() },
            renewed: time,
        })
    }

    /// The Lease says now what it should, and the request for it began at this time.
    pub(super) fn wrote(&mut self, begun: Instant) {
        self.until = Some(begun + RENEW);
    }

    /// Until when this replica leads, if it does.
    pub(super) fn leads_until(&self) -> Option<Instant> {
        self.until
    }

    /// How long to wait before the next look. Those who wait do not all look at the same time.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        let leads = self.until.is_some_and(|until| now < until);
        if leads { RETRY } else { RETRY.mul_f64(1.0 + 1.2 * fastrand::f64()) }
    }
}

/// What a Lease says that its holder gives back.
pub(super) fn released(lease: &Lease, time: String) -> Lease {
    Lease {
        holder: String::new(),
        duration: Duration::from_secs(1),
        transitions: lease.transitions,
        acquired: time.clone(),
        renewed: time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease(holder: &str, renewed: &str) -> Lease {
        Lease {
            holder: holder.into(),
            duration: LEASE,
            transitions: 7,
            acquired: "then".into(),
            renewed: renewed.into(),
        }
    }

    fn look(election: &mut Election, lease: &Lease, now: Instant) -> Option<Lease> {
        election.look(lease.clone(), now, "now".into())
    }

    #[test]
    fn a_free_lease_is_taken_at_once() {
        let mut election = Election::new("a".into());
        let wanted = look(&mut election, &Lease::default(), Instant::now()).unwrap();
        assert_eq!(
            wanted,
            Lease { transitions: 1, acquired: "now".into(), renewed: "now".into(), ..lease("a", "") }
        );
        assert_eq!(election.leads_until(), None, "not before it was written");
    }

    #[test]
    fn a_lease_of_another_is_taken_when_it_has_not_changed_for_its_duration() {
        let (mut election, start) = (Election::new("a".into()), Instant::now());
        let at = |seconds: u32| start + seconds * SECOND;
        assert_eq!(look(&mut election, &lease("b", "1"), at(0)), None);
        assert_eq!(look(&mut election, &lease("b", "1"), at(14)), None);
        // Only that it changes counts: what its holder says of the time does not.
        assert_eq!(look(&mut election, &lease("b", "0"), at(14)), None);
        assert_eq!(look(&mut election, &lease("b", "0"), at(28)), None);
        let wanted = look(&mut election, &lease("b", "0"), at(29)).unwrap();
        assert_eq!((wanted.transitions, wanted.acquired.as_str()), (8, "now"));
        // One that was never seen before may have been renewed just now.
        assert_eq!(look(&mut Election::new("c".into()), &lease("b", "0"), at(100)), None);
    }

    #[test]
    fn a_leader_stops_before_others_may_begin() {
        let (mut election, start) = (Election::new("a".into()), Instant::now());
        look(&mut election, &Lease::default(), start).unwrap();
        election.wrote(start);
        assert_eq!(election.leads_until(), Some(start + RENEW));
        const { assert!(RENEW.as_secs() + 3 < LEASE.as_secs(), "a request may take another 3 s") };
        let renewed = look(&mut election, &lease("a", "1"), start + 2 * SECOND).unwrap();
        assert_eq!((renewed.transitions, renewed.acquired.as_str()), (7, "then"));
        election.wrote(start + 2 * SECOND);
        assert_eq!(election.leads_until(), Some(start + 2 * SECOND + RENEW));
    }

    #[test]
    fn a_leader_that_sees_another_stops_at_once() {
        let (mut election, start) = (Election::new("a".into()), Instant::now());
        election.wrote(start);
        assert_eq!(look(&mut election, &lease("b", "1"), start), None);
        assert_eq!(election.leads_until(), None);
    }

    #[test]
    fn what_was_released_is_free() {
        let freed = released(&lease("b", "1"), "now".into());
        assert_eq!(freed.transitions, 7);
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
