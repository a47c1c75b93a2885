//! A world with a Secret, a bundle and some replicas, whose steps come in any order.

use proptest::prelude::*;

use super::*;

const LIFETIMES: Lifetimes = Lifetimes { ca: Duration::from_secs(300), leaf: Duration::from_secs(100) };
const START: Time = Duration::from_secs(1_800_000_000);
const REPLICAS: usize = 3;
/// How long an API server may go on using an older bundle.
const LAG: Duration = Duration::from_secs(3);

#[derive(Clone, Default)]
struct Versioned<T> {
    version: u64,
    value: T,
}

impl<T> Versioned<T> {
    fn put(&mut self, value: T) {
        self.version += 1;
        self.value = value;
    }

    /// As a write that names the version it is for.
    fn replace(&mut self, planned_for: u64, value: T) {
        if self.version == planned_for {
            self.put(value);
        }
    }
}

#[derive(Clone, Default)]
struct Replica {
    seen: History,
    leaf: Option<Leaf>,
    /// Signed before the present one by the same process.
    switched: bool,
    ready: bool,
    stage: Stage,
    last: Time,
}

/// How far it is; each step is one request, or what it does by itself.
#[allow(clippy::large_enum_variant, reason = "there are three of them")]
#[derive(Clone, Default)]
enum Stage {
    #[default]
    Idle,
    HasBundle(Versioned<Vec<Trusted>>),
    HasPlan {
        bundle: u64,
        secret: u64,
        view: View,
        own: Option<Ca>,
        plan: Plan,
        now: Time,
    },
}

struct World {
    now: Time,
    next: u8,
    secret: Versioned<Option<Vec<Ca>>>,
    bundle: Versioned<Vec<Trusted>>,
    /// Bundles that were replaced, and when.
    replaced: Vec<(Time, Vec<Trusted>)>,
    replicas: [Replica; REPLICAS],
}

#[derive(Clone, Debug)]
enum Op {
    /// One step of one replica, after some milliseconds.
    Step(usize, u64),
    /// The replica is started anew.
    Crash(usize),
    DeleteSecret,
    /// The first or the second CA cannot be read any more.
    Damage(usize),
    /// What the Secret was once, or never.
    Restore(i64),
    /// Not so that certificates in use would lose their trust.
    AddToBundle,
    /// Like these, but for the last: things after which something has to be repaired.
    Reset,
    Jump(i64),
}

impl World {
    fn new() -> Self {
        Self {
            now: START,
            next: 0,
            secret: Versioned::default(),
            bundle: Versioned::default(),
            replaced: Vec::new(),
            replicas: Default::default(),
        }
    }

    fn id(&mut self) -> Id {
        self.next = self.next.wrapping_add(1);
        let mut id = [0; 32];
        id[..8].copy_from_slice(&(u64::from(self.next) + self.secret.version * 256).to_be_bytes());
        Id(id)
    }

    fn ca(&mut self, created: Time) -> Ca {
        Ca { id: self.id(), created, expires: created + LIFETIMES.ca }
    }

    fn step(&mut self, index: usize) {
        let mut replica = std::mem::take(&mut self.replicas[index]);
        replica.stage = match std::mem::take(&mut replica.stage) {
            Stage::Idle => Stage::HasBundle(self.bundle.clone()),
            Stage::HasBundle(bundle) => {
                let view = View {
                    cas: self.secret.value.clone().unwrap_or_default(),
                    bundles: vec![bundle.value],
                    names: vec!["tolerarch".into()],
                };
                replica.seen.look(&view, self.now, LIFETIMES);
                let plan = plan(&view, &replica.seen, replica.leaf.as_ref(), self.now, LIFETIMES);
                replica.ready |= plan.ready;
                // Nothing is waited for in between.
                let own = replica.leaf.as_ref().map(|leaf| leaf.ca);
                if let Some(id) = plan.sign {
                    let ca = view.cas.iter().copied().chain(own).find(|ca| ca.id == id).unwrap();
                    let expires = ca.expires.min(self.now + LIFETIMES.leaf);
                    replica.switched = replica.leaf.is_some();
                    replica.leaf = Some(Leaf { ca, names: view.names.clone(), issued: self.now, expires });
                }
                let (bundle, secret) = (bundle.version, self.secret.version);
                Stage::HasPlan { bundle, secret, view, own, plan, now: self.now }
            }
            Stage::HasPlan { bundle, secret, view, own, plan, now } => {
                let find = |id: Id| view.cas.iter().copied().find(|ca| ca.id == id);
                match plan.write {
                    Some(Write::NewCa { beside }) => {
                        let new = self.ca(now);
                        let cas = [Some(new), beside.and_then(find)];
                        self.secret.replace(secret, Some(cas.into_iter().flatten().collect()));
                    }
                    Some(Write::OnlyCa(id)) => {
                        self.secret.replace(secret, Some(find(id).into_iter().collect()));
                    }
                    Some(Write::Bundles(ids)) => {
                        // Others may have added more than that in the meantime.
                        assert!(ids.len() <= BUNDLE, "{}", ids.len());
                        let cas = view.cas.iter().chain(&own);
                        let cas = cas.map(|ca| Trusted { id: ca.id, expires: ca.expires });
                        let known: Vec<Trusted> = cas.chain(view.bundles[0].iter().copied()).collect();
                        let of = |id: &Id| known.iter().copied().find(|known| known.id == *id).unwrap();
                        let old = self.bundle.clone();
                        self.bundle.replace(bundle, ids.iter().map(of).collect());
                        if self.bundle.version != old.version {
                            self.replaced.push((self.now, old.value));
                        }
                    }
                    None => {}
                }
                Stage::Idle
            }
        };
        self.replicas[index] = replica;
    }

    /// Time passes, and each replica does what it has to do by then.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        for index in 0..REPLICAS {
            let replica = &self.replicas[index];
            let pause = LIFETIMES.pause(replica.leaf.as_ref(), replica.ready, replica.last);
            if self.now.saturating_sub(replica.last) >= pause {
                self.round(index);
            }
        }
    }

    /// Steps until there is nothing to do.
    fn round(&mut self, index: usize) {
        while !matches!(self.replicas[index].stage, Stage::Idle) {
            self.step(index);
        }
        for _ in 0..10 {
            self.step(index);
            let mut quiet = true;
            while !matches!(self.replicas[index].stage, Stage::Idle) {
                if let Stage::HasPlan { plan, .. } = &self.replicas[index].stage {
                    quiet &= plan.sign.is_none() && plan.write.is_none();
                }
                self.step(index);
            }
            if quiet {
                break;
            }
        }
        self.replicas[index].last = self.now;
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Step(index, millis) => {
                self.pass(Duration::from_millis(millis));
                self.step(index);
            }
            Op::Crash(index) => self.replicas[index] = Replica { last: self.now, ..Replica::default() },
            Op::DeleteSecret => self.secret.put(None),
            Op::Damage(index) => {
                if let Some(mut cas) = self.secret.value.clone() {
                    cas.truncate(2);
                    if index < cas.len() {
                        cas.remove(index);
                    }
                    self.secret.put(Some(cas));
                }
            }
            Op::Restore(age) => {
                let ca = self.ca(shifted(self.now, age));
                self.secret.put(Some(vec![ca]));
            }
            Op::AddToBundle => {
                let foreign = Trusted { id: self.id(), expires: self.now + LIFETIMES.ca };
                let bundle = [vec![foreign], self.bundle.value.clone()].concat();
                self.bundle.put(bundle);
            }
            Op::Reset => self.bundle.put(Vec::new()),
            Op::Jump(seconds) => {
                self.now = shifted(self.now, seconds);
                self.replicas.iter_mut().for_each(|replica| replica.last = Time::ZERO);
            }
        }
    }

    /// Whether every replica that is ready serves what every API server trusts.
    fn check(&self) -> Result<(), TestCaseError> {
        for (index, replica) in self.replicas.iter().enumerate().filter(|(_, replica)| replica.ready) {
            let leaf = replica.leaf.as_ref().expect("ready with a certificate");
            prop_assert!(
                leaf.issued <= self.now + BACKDATE && self.now < leaf.expires,
                "{index}: {leaf:?} at {:?}",
                self.now
            );
            prop_assert!(leaf.expires <= leaf.ca.expires);
            let trusts = |bundle: &[Trusted]| bundle.iter().any(|trusted| trusted.id == leaf.ca.id);
            prop_assert!(
                trusts(&self.bundle.value),
                "{index}: {leaf:?} in {:?} at {:?}",
                self.bundle.value,
                self.now
            );
            if replica.switched {
                let used = self.replaced.iter().filter(|(at, _)| *at + LAG > self.now && *at <= self.now);
                for (at, bundle) in used {
                    prop_assert!(
                        trusts(bundle),
                        "{index}: {leaf:?} not in {bundle:?} until {at:?}, now {:?}",
                        self.now
                    );
                }
            }
        }
        Ok(())
    }

    /// Nothing else happens for a while.
    fn settle(&mut self) {
        let deadline = self.now + 2 * LIFETIMES.poll() + LIFETIMES.settle();
        while self.now < deadline {
            self.pass(Duration::from_secs(1));
        }
        // Their times are of a clock that may have jumped.
        self.replaced.clear();
    }
}

fn shifted(time: Time, seconds: i64) -> Time {
    let by = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { time - by } else { time + by }
}

/// What may happen without a certificate losing its trust.
fn harmless() -> impl Strategy<Value = Op> {
    prop_oneof![
        60 => (0..REPLICAS, 0..4000_u64).prop_map(|(index, millis)| Op::Step(index, millis)),
        2 => (0..REPLICAS).prop_map(Op::Crash),
        1 => Just(Op::DeleteSecret),
        1 => (0..2_usize).prop_map(Op::Damage),
        // Not one at its end, whose certificates live for seconds.
        1 => (-190..250_i64).prop_map(Op::Restore),
        1 => Just(Op::AddToBundle),
    ]
}

fn anything() -> impl Strategy<Value = Op> {
    let years = 3_i64 * 365 * 24 * 3600;
    prop_oneof![
        20 => harmless(),
        1 => Just(Op::Reset),
        1 => (-years..years).prop_map(Op::Jump),
        1 => (-1000..1000_i64).prop_map(Op::Jump),
        1 => (-years..years).prop_map(Op::Restore),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Replicas that start at once, in any order of their steps, with crashes, a Secret that is deleted, damaged or put back
    /// from a backup, and a bundle that others add to.
    #[test]
    fn a_served_certificate_is_always_trusted(ops in prop::collection::vec(harmless(), 0..600)) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
            world.check()?;
        }
    }

    /// Whatever happened: soon all replicas serve what is trusted, and go on so through the next rotations.
    #[test]
    fn it_converges_from_everything(ops in prop::collection::vec(anything(), 0..200)) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
        }
        world.settle();
        prop_assert!(world.replicas.iter().all(|replica| replica.ready));
        let (end, past) = (world.now + 3 * LIFETIMES.ca, world.bundle.value.clone());
        while world.now < end {
            world.check()?;
            world.pass(Duration::from_secs(1));
        }
        prop_assert!(world.secret.value.unwrap().len() <= 2);
        prop_assert!(world.bundle.value.len() <= 3);
        prop_assert!(world.bundle.value.iter().all(|trusted| !past.contains(trusted)));
    }
}

/// One replica that has been there for long, and in whose bundle a new CA has just been written.
#[test]
fn switches_only_when_the_bundle_has_been_seen_for_a_while() {
    let [old, new] = [1, 2].map(|n| Ca {
        id: Id([n; 32]),
        created: START + u32::from(n) * LIFETIMES.ca * 2 / 3,
        expires: START + Duration::from_secs(10_000),
    });
    let trusted = |ca: Ca| Trusted { id: ca.id, expires: ca.expires };
    let names = vec!["tolerarch".to_owned()];
    let mut view = View { cas: vec![old], bundles: vec![vec![trusted(old)]; 2], names: names.clone() };
    let mut seen = History::default();
    let now = new.created;
    seen.look(&view, now, LIFETIMES);
    let leaf = Leaf { ca: old, names, issued: now, expires: now + LIFETIMES.leaf };
    view.cas.insert(0, new);
    let next = |seen: &mut History, view: &View, after: u64| {
        let now = now + Duration::from_secs(after);
        seen.look(view, now, LIFETIMES);
        plan(view, seen, Some(&leaf), now, LIFETIMES)
    };
    let ready = Plan { ready: true, ..Plan::default() };
    let both = Some(Write::Bundles(vec![new.id, old.id]));
    assert_eq!(next(&mut seen, &view, 1), Plan { write: both.clone(), ..ready.clone() });
    // One of two webhooks is not enough, and being away for a moment starts it anew.
    view.bundles[0] = vec![trusted(new), trusted(old)];
    assert_eq!(next(&mut seen, &view, 2), Plan { write: both.clone(), ..ready.clone() });
    view.bundles[1] = view.bundles[0].clone();
    assert_eq!(next(&mut seen, &view, 3), ready);
    view.bundles[1].remove(0);
    assert_eq!(next(&mut seen, &view, 4), Plan { write: both, ..ready.clone() });
    view.bundles[1] = view.bundles[0].clone();
    assert_eq!(next(&mut seen, &view, 5), ready);
    assert_eq!(next(&mut seen, &view, 9), ready);
    assert_eq!(next(&mut seen, &view, 10), Plan { sign: Some(new.id), ..ready });
}
