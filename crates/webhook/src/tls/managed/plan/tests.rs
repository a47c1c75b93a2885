//! Model of a cluster with two Secrets, a bundle, two issuers and some replicas, whose steps happen in any order.

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
/// Maximum time for which an API server uses an older bundle.
const LAG: Duration = Duration::from_secs(3);
/// Maximum time until a replica serves a new certificate: 90 s of its kubelet and the interval of the replica's checks,
/// in relation to the minimum lifetime of a leaf.
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

    /// Writes if the version is the one for which the write was planned.
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

/// The certificate that a replica serves, and the time of its last check.
#[derive(Clone, Default)]
struct Replica {
    leaf: Option<Leaf>,
    last: Time,
}

/// Progress of an issuer. Each step is one request, or the planning.
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
struct ModelCluster {
    now: Time,
    next: u8,
    secret: Versioned<Option<Vec<Ca>>>,
    serving: Versioned<Option<Leaf>>,
    bundle: Versioned<Vec<Ca>>,
    /// Whether the bundle has text between its certificates.
    has_other_text: bool,
    /// Bundles that were replaced, and the time of that.
    replaced: Vec<(Time, Vec<Ca>)>,
    issuers: [Issuer; ISSUERS],
    replicas: [Replica; REPLICAS],
}

#[derive(Clone, Debug)]
enum Op {
    /// One step of one issuer, after some milliseconds.
    Step(usize, u64),
    /// The issuer restarts.
    Crash(usize),
    /// A replica restarts.
    Start(usize),
    DeleteSecret,
    DeleteServing,
    /// The first or the second CA cannot be read any more.
    Damage(usize),
    /// The Secret gets a CA of this age, as from a backup.
    Restore(i64),
    /// A foreign CA is added to the bundle; certificates in use stay trusted.
    AddToBundle,
    /// Text is written between the certificates of the bundle.
    AddText,
    /// The bundle is emptied.
    Reset,
    /// The serving certificate is replaced by one whose signature is of none of the CAs.
    Forge,
    Jump(i64),
}

impl Op {
    /// Returns whether an issuer has to begin again after this.
    fn takes_away(&self) -> bool {
        matches!(
            self,
            Self::Crash(_) | Self::DeleteSecret | Self::Damage(_) | Self::Restore(_)
        )
    }
}

impl ModelCluster {
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
                        let cas = [view.cas, view.bundles[0].clone()].concat();
                        let of = |der: &Der| cas.iter().find(|ca| ca.der == *der).unwrap().clone();
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

    /// Lets time pass; each process does what is due by then.
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

    /// Has the replica serve the certificate of the Secret, unless that has expired.
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

    /// Steps until nothing is due.
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

    /// Returns whether a served certificate has to be replaced. An issuer has half of a certificate's lifetime for
    /// that; it cannot replace the certificate if its CA is removed each time before it may sign.
    fn is_due(&self) -> bool {
        self.replicas
            .iter()
            .filter_map(|replica| replica.leaf.as_ref())
            .any(|leaf| leaf.is_due(self.now))
    }

    /// Checks that every API server trusts the certificate of every replica.
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

    /// Lets time pass in which nothing else happens.
    fn settle(&mut self) {
        let deadline = self.now + 3 * LIFETIMES.poll() + LIFETIMES.settle() + PROJECTION;
        while self.now < deadline {
            self.pass(Duration::from_secs(1));
        }
        // The clock may have jumped since these times.
        self.replaced.clear();
    }
}

fn shifted(time: Time, seconds: i64) -> Time {
    let by = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { time - by } else { time + by }
}

/// Operations during which every served certificate must stay trusted.
fn harmless() -> impl Strategy<Value = Op> {
    prop_oneof![
        60 => (0..ISSUERS, 0..4000_u64).prop_map(|(index, millis)| Op::Step(index, millis)),
        2 => (0..ISSUERS).prop_map(Op::Crash),
        2 => (0..REPLICAS).prop_map(Op::Start),
        1 => Just(Op::DeleteSecret),
        1 => Just(Op::DeleteServing),
        1 => (0..2_usize).prop_map(Op::Damage),
        // No CA that is about to expire, whose certificates would live for seconds.
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

    /// Issuers that start at the same time, in any order of their steps, with crashes, Secrets that are deleted,
    /// damaged or restored from a backup, and a bundle to which others add CAs.
    #[test]
    fn served_certificate_is_always_trusted(ops in prop::collection::vec(harmless(), 0..600)) {
        let mut cluster = ModelCluster::new();
        for op in &ops {
            if op.takes_away() && cluster.is_due() {
                continue;
            }
            cluster.apply(op);
            cluster.check()?;
        }
    }

    /// Whatever happened, soon all replicas serve a trusted certificate, and still do so during the next rotations.
    #[test]
    fn plan_converges_from_any_state(ops in prop::collection::vec(anything(), 0..200)) {
        let mut cluster = ModelCluster::new();
        for op in &ops {
            cluster.apply(op);
        }
        cluster.settle();
        prop_assert!(cluster.replicas.iter().all(|replica| replica.leaf.is_some()));
        let end = cluster.now + 3 * LIFETIMES.ca;
        let past = cluster.bundle.value.clone();
        while cluster.now < end {
            cluster.check()?;
            cluster.pass(Duration::from_secs(1));
        }
        prop_assert!(!cluster.has_other_text);
        prop_assert!(cluster.secret.value.unwrap().len() <= 2);
        prop_assert!(cluster.bundle.value.len() <= 3);
        prop_assert!(cluster.bundle.value.iter().all(|trusted| !past.contains(trusted)));
    }
}

/// The issuer has run for long, and a new CA has just been written into its bundle.
#[test]
fn signer_changes_only_after_the_bundle_has_settled() {
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
    // The bundles of both webhooks count, and a CA that was missing for a moment has to settle again.
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
    // The old CA is removed from the Secret only once it signs nothing more, and from the bundle only once everything
    // that it signed has expired.
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
