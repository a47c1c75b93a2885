use super::*;

const CAPACITY: Capacity = Capacity {
    all: 64,
    per_host: 16,
    waiting: 512,
};

/// The work of one tenant, some of which runs.
struct Work {
    waits: Vec<Queued>,
    runs: Vec<Permit>,
    refused: usize,
}

impl Work {
    /// Starts work at this host; if the name is empty, each at a host of its own.
    fn start(limit: &ConcurrencyLimit, tenant: &Tenant, count: usize, host: &str) -> Self {
        let mut work = Self {
            waits: Vec::new(),
            runs: Vec::new(),
            refused: 0,
        };
        for number in 0..count {
            let host = if host.is_empty() {
                format!("{tenant:?}-{number}")
            } else {
                host.to_owned()
            };
            match limit.queue(tenant, &host) {
                Some(queued) => work.waits.push(queued),
                None => work.refused += 1,
            }
        }
        work.polled()
    }

    /// Starts work of a namespace.
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
fn flooding_namespace_leaves_permits_to_others() {
    let limit = ConcurrencyLimit::new(CAPACITY);
    let at_host = Work::of(&limit, "a", 20, "host");
    assert_eq!(at_host.counts(), (8, 12, 0));
    let another = Work::of(&limit, "b", 20, "host");
    assert_eq!(another.counts(), (6, 14, 0));
    assert_eq!(
        Work::of(&limit, "c", 20, "host").counts(),
        (1, 19, 0),
        "the last quarter"
    );
    drop((at_host, another));
    let everywhere = Work::of(&limit, "a", 100, "");
    assert_eq!(everywhere.counts(), (24, 76, 0));
    assert_eq!(Work::of(&limit, "b", 24, "").counts(), (24, 0, 0));
    let operator = Work::start(&limit, &Tenant::Operator, 60, "");
    assert_eq!(operator.counts(), (40, 20, 0), "all that is left");
}

#[test]
fn flooding_namespaces_leave_one_permit_to_each_other_one() {
    for (host, further, firsts) in [("host", 12, 4), ("", 48, 16)] {
        let limit = ConcurrencyLimit::new(CAPACITY);
        let floods: Vec<_> = ["a", "b", "c"]
            .map(|name| Work::of(&limit, name, 100, host))
            .into();
        let running: usize = floods.iter().map(|flood| flood.runs.len()).sum();
        assert_eq!(running, further + 3, "{host}");
        let mut others = Vec::new();
        for number in 3..firsts {
            let other = Work::of(&limit, &format!("other-{number}"), 2, host);
            assert_eq!(other.counts(), (1, 1, 0), "{host} {number}");
            others.push(other);
        }
        assert_eq!(
            Work::of(&limit, "late", 1, host).counts(),
            (0, 1, 0),
            "{host}"
        );
        // The next work of a namespace follows its first, even if the work of others takes long.
        let mut last = others.pop().unwrap();
        last.runs.clear();
        let last = last.polled();
        assert_eq!(last.counts(), (1, 0, 0), "{host}");
        others.push(last);
        // The permit of a namespace whose first work has ended goes to another one.
        others.pop();
        assert_eq!(
            Work::of(&limit, "late", 1, host).counts(),
            (1, 0, 0),
            "{host}"
        );
    }
}

#[test]
fn waiting_work_is_next_when_a_flood_has_ended() {
    let limit = ConcurrencyLimit::new(CAPACITY);
    let floods: Vec<_> = (0..16)
        .map(|number| Work::of(&limit, &format!("flood-{number}"), 20, ""))
        .collect();
    assert_eq!(
        floods.iter().map(|flood| flood.runs.len()).sum::<usize>(),
        64
    );
    let late = Work::of(&limit, "late", 1, "host");
    assert_eq!(late.counts(), (0, 1, 0));
    // All running work ends, and then the next work of the floods begins.
    let mut ended = Vec::new();
    for mut flood in floods {
        flood.runs.clear();
        ended.push(flood);
    }
    let floods: Vec<_> = ended.into_iter().map(Work::polled).collect();
    assert_eq!(late.polled().counts(), (1, 0, 0));
    drop(floods);
}

#[test]
fn waiting_for_the_tenants_permit_holds_no_shared_one() {
    let limit = ConcurrencyLimit::new(CAPACITY);
    let _flood = Work::of(&limit, "a", 100, "host");
    let free = |scope: Scope| limit.share(scope).available_permits();
    assert_eq!(
        (free(Scope::Host("host".into())), free(Scope::All)),
        (8, 56)
    );
    let _everywhere = Work::of(&limit, "a", 28, "");
    assert_eq!(
        (free(Scope::Namespace("a".into())), free(Scope::All)),
        (0, 40)
    );
    let mut idle_hosts = 0;
    for number in 0..28 {
        let host = format!("{:?}-{number}", Tenant::of("a"));
        idle_hosts += usize::from(free(Scope::Host(host.into())) == 16);
    }
    assert_eq!(idle_hosts, 28 - 16);
}

#[test]
fn queue_is_bounded_in_total_and_for_one_namespace() {
    let limit = ConcurrencyLimit::new(CAPACITY);
    let mut floods: Vec<_> = vec![Work::of(&limit, "a", 200, "host")];
    assert_eq!(floods[0].counts(), (8, 128, 64));
    for (name, runs) in [("b", 6), ("c", 1), ("d", 1), ("e", 0)] {
        floods.push(Work::of(&limit, name, 200, "host"));
        let waits = if name == "e" { 0 } else { 128 };
        assert_eq!(
            floods.last().unwrap().counts(),
            (runs, waits, 200 - runs - waits),
            "{name}"
        );
    }
    assert_eq!(
        Work::start(&limit, &Tenant::Operator, 1, "host").counts(),
        (0, 0, 1)
    );
    assert_eq!(
        Work::of(&limit, "e", 1, "other").counts(),
        (1, 0, 0),
        "work with a free permit needs no place in the queue"
    );
    floods.remove(0);
    assert_eq!(Work::of(&limit, "e", 200, "host").counts().1, 128);
}

#[test]
fn semaphores_of_ended_work_are_dropped() {
    let limit = ConcurrencyLimit::new(Capacity {
        all: 2,
        per_host: 2,
        waiting: 16,
    });
    let runs = Work::of(&limit, "a", 2, "x");
    let given_up = Work::of(&limit, "b", 10, "");
    assert_eq!((runs.counts(), given_up.counts()), ((1, 1, 0), (1, 4, 5)));
    drop((runs, given_up));
    let used = || {
        limit
            .shares
            .lock()
            .values()
            .filter(|share| share.strong_count() > 0)
            .count()
    };
    assert_eq!(used(), 0);
    for number in 0..10_000 {
        assert_eq!(
            Work::of(&limit, &format!("namespace-{number}"), 1, "").counts(),
            (1, 0, 0)
        );
    }
    assert!(used() == 0 && limit.shares.lock().capacity() < 128);
}

/// Work of the lowest priority begins only while no Pod waits, or may soon have to wait.
#[test]
fn only_half_of_the_permits_are_spare() {
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
