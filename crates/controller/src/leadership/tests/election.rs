use serde_json::json;

use super::super::*;

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

fn observe(election: &mut Election, lease: &LeaseSpec, now: Instant) -> Option<LeaseSpec> {
    election.observe(lease.clone(), now, time(NOW))
}

#[test]
fn free_lease_is_acquired_at_once() {
    let mut election = Election::new("a".into());
    let wanted = observe(&mut election, &LeaseSpec::default(), Instant::now()).unwrap();
    let lease_transitions = Some(1);
    let acquire_time = Some(time(NOW));
    assert_eq!(
        wanted,
        LeaseSpec {
            lease_transitions,
            acquire_time,
            ..lease("a", NOW)
        }
    );
    assert!(
        *election.until.borrow() <= Instant::now(),
        "not before it was written"
    );
}

#[test]
fn unchanged_lease_is_acquired_after_its_duration() {
    let mut election = Election::new("a".into());
    let start = Instant::now();
    let at = |seconds: u32| start + seconds * SECOND;
    assert_eq!(observe(&mut election, &lease("b", 1), at(0)), None);
    assert_eq!(observe(&mut election, &lease("b", 1), at(14)), None);
    // Any change counts; the times in the Lease do not matter.
    assert_eq!(observe(&mut election, &lease("b", 0), at(14)), None);
    assert_eq!(observe(&mut election, &lease("b", 0), at(28)), None);
    let wanted = observe(&mut election, &lease("b", 0), at(29)).unwrap();
    assert_eq!(
        (wanted.lease_transitions, wanted.acquire_time),
        (Some(8), Some(time(NOW)))
    );
    // A Lease that is read for the first time may have been renewed just now.
    assert_eq!(
        observe(&mut Election::new("c".into()), &lease("b", 0), at(100)),
        None
    );
}

/// The duration is untrusted input: it comes from the last writer of the Lease.
#[test]
fn lease_of_any_duration_is_respected() {
    for (seconds, is_taken) in [(i32::MIN, true), (-1, true), (0, true), (i32::MAX, false)] {
        let mut election = Election::new("a".into());
        let start = Instant::now();
        let lease = LeaseSpec {
            lease_duration_seconds: Some(seconds),
            ..lease("b", 1)
        };
        observe(&mut election, &lease, start);
        assert_eq!(
            observe(&mut election, &lease, start + SECOND).is_some(),
            is_taken,
            "{seconds}"
        );
    }
}

#[test]
fn leader_stops_before_others_may_lead() {
    let mut election = Election::new("a".into());
    let start = Instant::now();
    observe(&mut election, &LeaseSpec::default(), start).unwrap();
    election.renewed(start);
    assert_eq!(*election.until.borrow(), start + RENEW);
    const {
        assert!(
            RENEW.as_secs() + 3 < LEASE as u64,
            "a request may take another 3 s"
        );
    };
    let renewed = observe(&mut election, &lease("a", 1), start + 2 * SECOND).unwrap();
    assert_eq!(
        (renewed.lease_transitions, renewed.acquire_time),
        (Some(7), Some(time(THEN)))
    );
    election.renewed(start + 2 * SECOND);
    assert_eq!(*election.until.borrow(), start + 2 * SECOND + RENEW);
}

#[test]
fn leader_that_reads_another_holder_stops_at_once() {
    let mut election = Election::new("a".into());
    let start = Instant::now();
    election.renewed(start);
    assert_eq!(observe(&mut election, &lease("b", 1), start), None);
    assert_eq!(*election.until.borrow(), start);
}

#[test]
fn released_lease_is_free() {
    let mut freed = json!(lease("b", 1));
    json_patch::merge(&mut freed, &released(&time(NOW)));
    let freed: LeaseSpec = serde_json::from_value(freed).unwrap();
    assert_eq!(freed.lease_transitions, Some(7));
    assert!(observe(&mut Election::new("a".into()), &freed, Instant::now()).is_some());
}

#[test]
fn pauses_of_candidates_are_random() {
    let mut election = Election::new("a".into());
    let now = Instant::now();
    let pauses: Vec<Duration> = (0..100).map(|_| election.pause(now)).collect();
    assert!(
        pauses
            .iter()
            .all(|pause| (RETRY..=RETRY * 11 / 5).contains(pause)),
        "{pauses:?}"
    );
    assert!(pauses.iter().max() > pauses.iter().min());
    election.renewed(now);
    assert_eq!(election.pause(now), RETRY);
}
