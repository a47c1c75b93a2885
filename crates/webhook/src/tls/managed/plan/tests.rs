//! A world with two Secrets, a bundle, two issuers and some replicas, whose steps come in any order.

use proptest::prelude::*;

use super::*;

const LIFETIMES: Lifetimes = Lifetimes {
    ca: Duration::from_secs(300),
    leaf: Duration::from_secs(100),
};
const START: Time = Duration::from_secs(1_800_000_000);
/// As during a rollout.
const ISSUERS: usize = 2;
const REPLICAS: usize = 3;
/// How long an API server may go on using an older bundle.
const LAG: Duration = Duration::from_secs(3);
/// How long it may take until a replica serves what is written: 90 s of its kubelet, and the replica's own look, of the
/// shortest life of a leaf.
const PROJECTION: Duration = Duration::from_secs(16);

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
struct Issuer {
    history: History,
    stage: Stage,
    last: Time,
}

/// What it serves, and when it has looked for something better.
#[derive(Clone, Default)]
struct Replica {
    leaf: Option<Leaf>,
    last: Time,
}

/// How far it is; each step is one request, or what it does by itself.
#[allow(clippy::large_enum_variant, reason = "there are three of them")]
#[derive(Clone, Default)]
enum Stage {
    #[default]
    Idle,
    HasBundle(Versioned<Vec<Ca>>),
    HasPlan {
        bundle: u64,
        secret: u64,
        serving: u64,
        view: View,
        write: Option<Write>,
        now: Time,
    },
}

#[derive(Default)]
struct World {
    now: Time,
    next: u8,
    secret: Versioned<Option<Vec<Ca>>>,
    serving: Versioned<Option<Leaf>>,
    bundle: Versioned<Vec<Ca>>,
    /// Whether the bundle has text between its certificates.
    has_other_text: bool,
    /// Bundles that were replaced, and when.
    replaced: Vec<(Time, Vec<Ca>)>,
    issuers: [Issuer; ISSUERS],
    replicas: [Replica; REPLICAS],
}

#[derive(Clone, Debug)]
enum Op {
    /// One step of one issuer, after some milliseconds.
    Step(usize, u64),
    /// The issuer is started anew.
    Crash(usize),
    /// A replica is started anew.
    Start(usize),
    DeleteSecret,
    DeleteServing,
    /// The first or the second CA cannot be read any more.
    Damage(usize),
    /// What the Secret was once, or never.
    Restore(i64),
    /// Not so that certificates in use would lose their trust.
    AddToBundle,
    /// Text is written between the certificates of the bundle.
    AddText,
    /// Like these, but for the last: things after which something has to be repaired.
    Reset,
    /// The serving certificate is replaced by one whose signature is of none of the CAs.
    Forge,
    Jump(i64),
}

impl Op {
    /// Whether an issuer has to begin anew after it.
    fn takes_away(&self) -> bool {
        matches!(
            self,
            Self::Crash(_) | Self::DeleteSecret | Self::Damage(_) | Self::Restore(_)
        )
    }
}

impl World {
    fn new() -> Self {
        Self {
            now: START,
            ..Self::default()
        }
    }

    fn der(&mut self) -> Der {
        self.next = self.next.wrapping_add(1);
        (u64::from(self.next) + self.secret.version * 256)
            .to_be_bytes()
            .to_vec()
            .into()
    }

    fn ca(&mut self, created: Time) -> Ca {
        Ca {
            der: self.der(),
            created,
            expires: created + LIFETIMES.ca,
        }
    }

    fn step(&mut self, index: usize) {
        let mut issuer = std::mem::take(&mut self.issuers[index]);
        issuer.stage = match std::mem::take(&mut issuer.stage) {
            Stage::Idle => Stage::HasBundle(self.bundle.clone()),
            Stage::HasBundle(bundle) => {
                let cas = self.secret.value.clone().unwrap_or_default();
                let mut leaf = self.serving.value.clone();
                if let Some(leaf) = &mut leaf {
                    leaf.ca = leaf
                        .ca
                        .take()
                        .filter(|der| cas.iter().any(|ca| ca.der == *der));
                }
                let names = vec!["tolerarch".into()];
                let view = View {
                    cas,
                    bundles: vec![bundle.value],
                    are_plain: !self.has_other_text,
                    names,
                    leaf,
                };
                issuer.history.observe(&view, self.now);
                let write = plan(&view, &issuer.history, self.now, LIFETIMES);
                let bundle = bundle.version;
                let secret = self.secret.version;
                let serving = self.serving.version;
                Stage::HasPlan {
                    bundle,
                    secret,
                    serving,
                    view,
                    write,
                    now: self.now,
                }
            }
            Stage::HasPlan {
                bundle,
                secret,
                serving,
                view,
                write,
                now,
            } => {
                let find = |der: &Der| view.cas.iter().find(|ca| ca.der == *der).cloned();
                match write {
                    Some(Write::NewCa { beside }) => {
                        let new = self.ca(now);
                        let cas = [Some(new), beside.as_ref().and_then(find)];
                        self.secret
                            .replace(secret, Some(cas.into_iter().flatten().collect()));
                    }
                    Some(Write::OnlyCa(der)) => {
                        self.secret
                            .replace(secret, Some(find(&der).into_iter().collect()));
                    }
                    Some(Write::Bundles(bundled)) => {
                        assert!(bundled.len() <= BUNDLE, "{}", bundled.len());
                        let known = [view.cas, view.bundles[0].clone()].concat();
                        let of = |der: &Der| {
                            known
                                .iter()
                                .find(|known| known.der == *der)
                                .unwrap()
                                .clone()
                        };
                        let old = self.bundle.clone();
                        self.bundle
                            .replace(bundle, bundled.iter().map(of).collect());
                        if self.bundle.version != old.version {
                            self.has_other_text = false;
                            self.replaced.push((self.now, old.value));
                        }
                    }
                    Some(Write::Leaf(der)) => {
                        let expires = find(&der).unwrap().expires.min(now + LIFETIMES.leaf);
                        let leaf = Leaf {
                            ca: Some(der),
                            names: view.names,
                            issued: now,
                            expires,
                        };
                        self.serving.replace(serving, Some(leaf));
                    }
                    None => {}
                }
                Stage::Idle
            }
        };
        self.issuers[index] = issuer;
    }

    /// Time passes, and each process does what it has to do by then.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        for index in 0..ISSUERS {
            let expires = self.serving.value.as_ref().map(|leaf| leaf.expires);
            let last = self.issuers[index].last;
            if self.now.saturating_sub(last) >= LIFETIMES.pause(expires, last) {
                self.round(index);
            }
        }
        for index in 0..REPLICAS {
            if self.now.saturating_sub(self.replicas[index].last) >= PROJECTION {
                self.fetch(index);
            }
        }
    }

    /// The replica serves what it is given, unless that has expired.
    fn fetch(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        replica.last = self.now;
        if let Some(leaf) = self
            .serving
            .value
            .clone()
            .filter(|leaf| self.now < leaf.expires)
        {
            replica.leaf = Some(leaf);
        }
    }

    /// Steps until there is nothing to do.
    fn round(&mut self, index: usize) {
        while !matches!(self.issuers[index].stage, Stage::Idle) {
            self.step(index);
        }
        for _ in 0..10 {
            self.step(index);
            let mut quiet = true;
            while !matches!(self.issuers[index].stage, Stage::Idle) {
                if let Stage::HasPlan { write, .. } = &self.issuers[index].stage {
                    quiet &= write.is_none();
                }
                self.step(index);
            }
            if quiet {
                break;
            }
        }
        self.issuers[index].last = self.now;
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Step(index, millis) => {
                self.pass(Duration::from_millis(millis));
                self.step(index);
            }
            Op::Crash(index) => {
                self.issuers[index] = Issuer {
                    last: self.now,
                    ..Issuer::default()
                }
            }
            Op::Start(index) => {
                self.replicas[index] = Replica {
                    last: self.now,
                    ..Replica::default()
                }
            }
            Op::DeleteSecret => self.secret.put(None),
            Op::DeleteServing => self.serving.put(None),
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
                let foreign = self.ca(self.now);
                let bundle = [vec![foreign], self.bundle.value.clone()].concat();
                self.bundle.put(bundle);
            }
            Op::AddText => {
                self.bundle.version += 1;
                self.has_other_text = true;
            }
            Op::Reset => self.bundle.put(Vec::new()),
            Op::Forge => {
                if let Some(leaf) = self.serving.value.clone() {
                    self.serving.put(Some(Leaf { ca: None, ..leaf }));
                }
            }
            Op::Jump(seconds) => {
                self.now = shifted(self.now, seconds);
                self.issuers
                    .iter_mut()
                    .for_each(|issuer| issuer.last = Time::ZERO);
                self.replicas
                    .iter_mut()
                    .for_each(|replica| replica.last = Time::ZERO);
            }
        }
    }

    /// Whether something is served that has to be replaced: an issuer has half a certificate's life for that, and
    /// nothing helps where its CA is taken away each time before it may sign.
    fn is_due(&self) -> bool {
        self.replicas
            .iter()
            .filter_map(|replica| replica.leaf.as_ref())
            .any(|leaf| leaf.is_due(self.now))
    }

    /// Whether every replica serves what every API server trusts.
    fn check(&self) -> Result<(), TestCaseError> {
        for (index, replica) in self.replicas.iter().enumerate() {
            let Some(leaf) = &replica.leaf else { continue };
            prop_assert!(
                leaf.issued <= self.now + BACKDATE && self.now < leaf.expires,
                "{index}: {leaf:?} at {:?}",
                self.now
            );
            let trusts = |bundle: &[Ca]| {
                bundle
                    .iter()
                    .any(|trusted| Some(&trusted.der) == leaf.ca.as_ref())
            };
            let lately = self
                .replaced
                .iter()
                .filter(|(at, _)| *at + LAG > self.now && *at <= self.now);
            for bundle in lately.map(|(_, bundle)| bundle).chain([&self.bundle.value]) {
                prop_assert!(
                    trusts(bundle),
                    "{index}: {leaf:?} not in {bundle:?}, now {:?}",
                    self.now
                );
            }
        }
        Ok(())
    }

    /// Nothing else happens for a while.
    fn settle(&mut self) {
        let deadline = self.now + 3 * LIFETIMES.poll() + LIFETIMES.settle() + PROJECTION;
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
        60 => (0..ISSUERS, 0..4000_u64).prop_map(|(index, millis)| Op::Step(index, millis)),
        2 => (0..ISSUERS).prop_map(Op::Crash),
        2 => (0..REPLICAS).prop_map(Op::Start),
        1 => Just(Op::DeleteSecret),
        1 => Just(Op::DeleteServing),
        1 => (0..2_usize).prop_map(Op::Damage),
        // Not one at its end, whose certificates live for seconds.
        1 => (-190..250_i64).prop_map(Op::Restore),
        1 => Just(Op::AddToBundle),
        1 => Just(Op::AddText),
    ]
}

fn anything() -> impl Strategy<Value = Op> {
    let years = 3_i64 * 365 * 24 * 3600;
    prop_oneof![
        20 => harmless(),
        1 => Just(Op::Reset),
        1 => Just(Op::Forge),
        1 => (-years..years).prop_map(Op::Jump),
        1 => (-1000..1000_i64).prop_map(Op::Jump),
        1 => (-years..years).prop_map(Op::Restore),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Issuers that start at once, in any order of their steps, with crashes, Secrets that are deleted, damaged or put
    /// back from a backup, and a bundle that others add to.
    #[test]
    fn a_served_certificate_is_always_trusted(ops in prop::collection::vec(harmless(), 0..600)) {
        let mut world = World::new();
        for op in &ops {
            if op.takes_away() && world.is_due() {
                continue;
            }
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
        prop_assert!(world.replicas.iter().all(|replica| replica.leaf.is_some()));
        let end = world.now + 3 * LIFETIMES.ca;
        let past = world.bundle.value.clone();
        while world.now < end {
            world.check()?;
            world.pass(Duration::from_secs(1));
        }
        prop_assert!(!world.has_other_text);
        prop_assert!(world.secret.value.unwrap().len() <= 2);
        prop_assert!(world.bundle.value.len() <= 3);
        prop_assert!(world.bundle.value.iter().all(|trusted| !past.contains(trusted)));
    }
}

/// An issuer that has been there for long, and in whose bundle a new CA has just been written.
#[test]
fn switches_only_when_the_bundle_has_been_seen_for_a_while() {
    let [old, new] = [1, 2].map(|n| Ca {
        der: vec![n].into(),
        created: START + u32::from(n) * LIFETIMES.ca * 2 / 3,
        expires: START + Duration::from_secs(10_000),
    });
    let names = vec!["tolerarch".to_owned()];
    let now = new.created;
    let leaf = Leaf {
        ca: Some(old.der.clone()),
        names: names.clone(),
        issued: now,
        expires: now + LIFETIMES.leaf,
    };
    let bundles = vec![vec![old.clone()]; 2];
    let mut view = View {
        cas: vec![old.clone()],
        bundles,
        are_plain: true,
        names,
        leaf: Some(leaf),
    };
    let mut history = History::default();
    history.observe(&view, now);
    view.cas.insert(0, new.clone());
    let next = |history: &mut History, view: &View, after: u64| {
        let now = now + Duration::from_secs(after);
        history.observe(view, now);
        plan(view, history, now, LIFETIMES)
    };
    let both = Some(Write::Bundles(vec![new.der.clone(), old.der.clone()]));
    assert_eq!(next(&mut history, &view, 1), both);
    // One of two webhooks is not enough, and being away for a moment starts it anew.
    view.bundles[0] = vec![new.clone(), old];
    assert_eq!(next(&mut history, &view, 2), both);
    view.bundles[1] = view.bundles[0].clone();
    assert_eq!(next(&mut history, &view, 3), None);
    view.bundles[1].remove(0);
    assert_eq!(next(&mut history, &view, 4), both);
    view.bundles[1] = view.bundles[0].clone();
    assert_eq!(next(&mut history, &view, 5), None);
    assert_eq!(next(&mut history, &view, 9), None);
    assert_eq!(
        next(&mut history, &view, 10),
        Some(Write::Leaf(new.der.clone()))
    );
    // The old one leaves the Secret only when it signs nothing more, and the bundle only when all of that has expired.
    view.leaf.as_mut().unwrap().ca = Some(new.der.clone());
    assert_eq!(
        next(&mut history, &view, 11),
        Some(Write::OnlyCa(new.der.clone()))
    );
    view.cas.pop();
    view.leaf.as_mut().unwrap().issued += Duration::from_secs(300);
    view.leaf.as_mut().unwrap().expires += Duration::from_secs(300);
    assert_eq!(next(&mut history, &view, 12), None);
    assert_eq!(next(&mut history, &view, 12 + 149), None);
    assert_eq!(
        next(&mut history, &view, 12 + 150),
        Some(Write::Bundles(vec![new.der]))
    );
}
