use super::*;

const CAPACITY: Capacity = Capacity { all: 64, per_host: 16, waiting: 512 };

/// Work of one tenant, some of which runs.
struct Work {
    waits: Vec<Queued>,
    runs: Vec<Permit>,
    refused: usize,
}

impl Work {
    /// So much work, at a host of this name, or with a number each at one that nobody else uses.
    fn start(limit: &ConcurrencyLimit, tenant: &Tenant, count: usize, host: &str) -> Self {
        let mut work = Self { waits: Vec::new(), runs: Vec::new(), refused: 0 };
        for number in 0..count {
            let host = if host.is_empty() { format!("{tenant:?}-{number}") } else { host.to_owned() };
            match limit.queue(tenant, &host) {
                Some(queued) => work.waits.push(queued),
                None => work.refused += 1,
            }
        }
        work.polled()
    }

    /// As a namespace.
    fn of(limit: &ConcurrencyLimit, namespace: &str, count: usize, host: &str) -> Self {
        Self::start(limit, &Tenant::of(namespace), count, host)
    }

    fn polled(mut self) -> Self {
        let mut waits = Vec::new();
        for mut queued in self.waits {
            match (&mut queued).now_or_never() {
                Some(permit) => self.runs.push(permit),
                None => waits.push(queued),
            }
        }
        Self { waits, ..self }
    }

    fn counts(&self) -> (usize, usize, usize) {
        (self.runs.len(), self.waits.len(), self.refused)
    }
}

#[test]
fn a_namespace_that_floods_leaves_the_others_room_at_one_host_and_in_all() {
    let limit = ConcurrencyLimit::new(CAPACITY);
    let at_host = Work::of(&limit, "a", 20, "host");
    assert_eq!(at_host.counts(), (8, 12, 0));
    assert_eq!(Work::of(&limit, "b", 20, "host").counts(), (8, 12, 0));
    drop(at_host);
    let everywhere = Work::of(&limit, "a", 100, "");
    assert_eq!(everywhere.counts(), (24, 76, 0));
    assert_eq!(Work::of(&limit, "b", 24, "").counts(), (24, 0, 0));
    let operator = Work::start(&limit, &Tenant::Operator, 60, "");
    assert_eq!(operator.counts(), (40, 20, 0), "all that is left");
}

#[test]
fn three_that_flood_fill_it_and_then_the_fourth_is_the_next() {
    let limit = ConcurrencyLimit::new(CAPACITY);
    let mut floods: Vec<_> = ["a", "b", "c"].map(|name| Work::of(&limit, name, 100, "")).into();
    assert_eq!(floods.iter().map(|flood| flood.runs.len()).sum::<usize>(), 64);
    let fourth = Work::of(&limit, "d", 1, "host");
    assert_eq!(fourth.counts(), (0, 1, 0));
    // Before it there are those that had the permits of their namespace, and no more.
    let next = floods[2].waits.len() - (100 - 24);
    floods[0].runs.truncate(24 - next);
    assert_eq!((fourth.polled().counts(), next), ((0, 1, 0), 8));

    let limit = ConcurrencyLimit::new(CAPACITY);
    let floods: Vec<_> = ["a", "b", "c"].map(|name| Work::of(&limit, name, 100, "")).into();
    let fourth = Work::of(&limit, "d", 1, "host");
    // After their time-out, when all that ran has ended.
    let floods: Vec<_> = floods.into_iter().map(|flood| Work { runs: Vec::new(), ..flood }).collect();
    let floods: Vec<_> = floods.into_iter().map(Work::polled).collect();
    assert_eq!(fourth.polled().counts(), (1, 0, 0));
    drop(floods);
}

#[test]
fn nobody_holds_a_shared_permit_while_waiting_for_an_own_one() {
    let limit = ConcurrencyLimit::new(CAPACITY);
    let _flood = Work::of(&limit, "a", 100, "host");
    let free = |scope: Scope| limit.share(scope).available_permits();
    assert_eq!((free(Scope::Host("host".into())), free(Scope::All)), (8, 56));
    let _everywhere = Work::of(&limit, "a", 28, "");
    assert_eq!((free(Scope::Namespace("a".into())), free(Scope::All)), (0, 40));
    let hosts =
        (0..28).filter(|number| free(Scope::Host(format!("{:?}-{number}", Tenant::of("a")).into())) == 16);
    assert_eq!(hosts.count(), 28 - 16);
}

#[test]
fn waiting_is_bounded_in_all_and_for_one_namespace() {
    let limit = ConcurrencyLimit::new(CAPACITY);
    let mut floods: Vec<_> = vec![Work::of(&limit, "a", 200, "host")];
    assert_eq!(floods[0].counts(), (8, 128, 64));
    for (name, runs) in [("b", 8), ("c", 0), ("d", 0), ("e", 0)] {
        floods.push(Work::of(&limit, name, 200, "host"));
        let waits = if name == "e" { 0 } else { 128 };
        assert_eq!(floods.last().unwrap().counts(), (runs, waits, 200 - runs - waits), "{name}");
    }
    assert_eq!(Work::start(&limit, &Tenant::Operator, 1, "host").counts(), (0, 0, 1));
    assert_eq!(Work::of(&limit, "e", 1, "other").counts(), (1, 0, 0), "what need not wait needs no place");
    floods.remove(0);
    assert_eq!(Work::of(&limit, "e", 200, "host").counts().1, 128);
}

#[test]
fn nothing_is_kept_of_work_that_ended_or_was_given_up() {
    let limit = ConcurrencyLimit::new(Capacity { all: 2, per_host: 2, waiting: 16 });
    let runs = Work::of(&limit, "a", 2, "x");
    let given_up = Work::of(&limit, "b", 10, "");
    assert_eq!((runs.counts(), given_up.counts()), ((1, 1, 0), (1, 4, 5)));
    drop((runs, given_up));
    let used = || limit.shares.lock().values().filter(|share| share.strong_count() > 0).count();
    assert_eq!(used(), 0);
    for number in 0..10_000 {
        assert_eq!(Work::of(&limit, &format!("namespace-{number}"), 1, "").counts(), (1, 0, 0));
    }
    assert!(used() == 0 && limit.shares.lock().capacity() < 64);
}

/// What comes behind everything else begins nothing while a Pod waits, or may soon have to.
#[test]
fn half_of_the_permits_are_no_ones_to_spare() {
    let limit = ConcurrencyLimit::new(CAPACITY);
    let mut works = Vec::new();
    for namespace in ["a", "b"] {
        for _ in 0..4 {
            assert!(limit.has_spare("host") && limit.has_spare("other"));
            works.push(Work::of(&limit, namespace, 1, "host"));
        }
    }
    assert!(!limit.has_spare("host") && limit.has_spare("other"));
    works.push(Work::of(&limit, "a", 5, "host"));
    assert!(!limit.has_spare("other"), "one waits");
    drop(works);
    assert!(limit.has_spare("host"));
    let _works = [Work::of(&limit, "a", 24, ""), Work::of(&limit, "b", 8, "")];
    assert!(!limit.has_spare("host"));
}
