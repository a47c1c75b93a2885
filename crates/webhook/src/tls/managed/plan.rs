//! What the issuer does next, as a function: what was read of the cluster, and what time it is, to a plan. No I/O and no
//! clock.
//!
//! One process is enough, and two do no harm. All that it knows is in three objects: a Secret with the CAs, the `caBundle` of
//! the webhooks, which says what API servers trust, and a Secret with the certificate that all replicas serve. These rules
//! keep every served certificate trusted:
//!
//! 1. A CA is added to the Secret, then to the bundles; it signs a certificate once it has been seen in every bundle for
//!    a while, as API servers see a change later.
//! 2. A CA leaves the bundles only when it has been out of the Secret for longer than what it signed can live, for
//!    whatever reason it left: it was replaced, or the Secret was deleted, damaged or put back from a backup. It is not taken
//!    out of the Secret while what is served is its own.
//! 3. Each write names the version of the object that it was planned for, and the Secrets are read after the webhooks:
//!    so a CA in a bundle is in the Secret as well, and a plan that was made too long ago changes nothing.

use std::collections::HashMap;
use std::time::Duration;

use rustls_pki_types::CertificateDer;

/// Since 1970. The clock is the API server's: it is the one that verifies.
pub(super) type Time = Duration;

/// How far back validity begins, as clocks differ.
pub(super) const BACKDATE: Duration = Duration::from_secs(5 * 60);
/// How often the cluster is looked at while there is no certificate, and at most.
const HASTE: Duration = Duration::from_secs(1);
/// Certificates in a bundle. A CA that is replaced every ten seconds fills it in minutes, and replicas follow in less.
const BUNDLE: usize = 16;

/// How long certificates live; everything else follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Of a CA, at least three times that of a leaf. It is replaced after two thirds.
    pub ca: Duration,
    /// Of the serving certificate. It is replaced after half: for so long the issuer may be away.
    pub leaf: Duration,
}

impl Lifetimes {
    /// The shortest life of a leaf: in half of it the next one has to reach every replica, and kubelets may take 90 s.
    pub const LEAST: Duration = Duration::from_secs(10 * 60);

    /// How often the cluster is looked at.
    fn poll(self) -> Duration {
        Duration::from_secs(10).min(self.leaf / 10)
    }

    /// Not until a certificate expires then, as one signed at its CA's end may live for less than a poll.
    pub(super) fn pause(self, expires: Option<Time>, now: Time) -> Duration {
        let left = expires.map_or(Duration::ZERO, |expires| expires.saturating_sub(now));
        self.poll().min((left / 2).max(HASTE))
    }

    /// How long a change of the bundles may take to reach every API server.
    fn settle(self) -> Duration {
        Duration::from_secs(5).min(self.leaf / 10)
    }

    /// How long a CA stays trusted after it has left the Secret: the life of a leaf, and time for a write that is under way.
    fn overlap(self) -> Duration {
        self.leaf * 3 / 2
    }
}

/// A certificate, by which it is known as well.
pub(super) type Der = CertificateDer<'static>;

/// A CA: of the Secret, where its key is known, or of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ca {
    pub(super) der: Der,
    pub(super) created: Time,
    pub(super) expires: Time,
}

impl Ca {
    fn is_valid(&self, now: Time) -> bool {
        self.created <= now + BACKDATE && now < self.expires
    }

    fn is_due(&self, now: Time, lifetimes: Lifetimes) -> bool {
        now >= self.created + self.expires.saturating_sub(self.created).min(lifetimes.ca) * 2 / 3
    }
}

/// The certificate that replicas serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// The CA of the Secret that signed it; none if that is gone.
    pub(super) ca: Option<Der>,
    pub(super) names: Vec<String>,
    pub(super) issued: Time,
    pub(super) expires: Time,
}

impl Leaf {
    fn is_due(&self, now: Time) -> bool {
        let half = self.expires.saturating_sub(self.issued) / 2;
        now >= self.issued + half || self.issued > now + BACKDATE
    }
}

/// What was read of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// The CAs of the Secret that can be used, the newest first.
    pub(super) cas: Vec<Ca>,
    /// What each webhook trusts.
    pub(super) bundles: Vec<Vec<Ca>>,
    /// By which names the API server calls the webhooks.
    pub(super) names: Vec<String>,
    /// What the replicas are given to serve, if that can be used.
    pub(super) leaf: Option<Leaf>,
}

impl View {
    /// Returns whether every webhook trusts it.
    fn trusts(&self, ca: &Ca) -> bool {
        let has = |bundle: &Vec<Ca>| bundle.iter().any(|trusted| trusted.der == ca.der);
        !self.bundles.is_empty() && self.bundles.iter().all(has)
    }
}

/// What this process has seen of the bundles, and since when without a break.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// CAs of the Secret that are in all bundles.
    trusted: HashMap<Der, Time>,
    /// What is in a bundle, but not in the Secret.
    left: HashMap<Der, Time>,
}

impl History {
    pub(super) fn look(&mut self, view: &View, now: Time) {
        let since = |seen: &HashMap<Der, Time>, ca: &Ca| {
            (ca.der.clone(), seen.get(&ca.der).copied().unwrap_or(now).min(now))
        };
        let trusted = view.cas.iter().filter(|ca| view.trusts(ca));
        self.trusted = trusted.map(|ca| since(&self.trusted, ca)).collect();
        let in_bundles = view.bundles.iter().flatten();
        let left = in_bundles.filter(|trusted| view.cas.iter().all(|ca| ca.der != trusted.der));
        self.left = left.map(|ca| since(&self.left, ca)).collect();
    }

    /// Whether this CA of the Secret has been in all bundles for so long.
    fn lasts(&self, ca: &Ca, time: Duration, now: Time) -> bool {
        self.trusted.get(&ca.der).is_some_and(|&since| now.saturating_sub(since) >= time)
    }

    /// Whether certificates of this CA may still be served, although the Secret has it no more.
    fn lingers(&self, ca: &Ca, time: Duration, now: Time) -> bool {
        self.left.get(&ca.der).is_some_and(|&since| now.saturating_sub(since) < time)
    }
}

/// A change of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// A new CA for the Secret, beside this one.
    NewCa { beside: Option<Der> },
    /// Nothing but this CA in the Secret.
    OnlyCa(Der),
    /// These certificates in the bundle of every webhook.
    Bundles(Vec<Der>),
    /// A new certificate for the replicas, signed by this CA.
    Leaf(Der),
}

/// The next change; none where all is well.
pub(super) fn plan(view: &View, seen: &History, now: Time, lifetimes: Lifetimes) -> Option<Write> {
    let valid: Vec<&Ca> = view.cas.iter().filter(|ca| ca.is_valid(now)).collect();
    let Some(newest) = valid.first() else { return Some(Write::NewCa { beside: None }) };

    // What the Secret has lost may be served still: its own CAs, or cert-manager's.
    let lingers = |ca: &&Ca| now < ca.expires && seen.lingers(ca, lifetimes.overlap(), now);
    let others = view.bundles.iter().flatten().filter(lingers);
    let wanted = first_of_each(valid.iter().copied().chain(others));
    // In any order, as each is as good.
    let is_wanted =
        |bundle: &Vec<Ca>| bundle.len() == wanted.len() && bundle.iter().all(|ca| wanted.contains(&ca.der));
    if !view.bundles.iter().all(is_wanted) {
        return Some(Write::Bundles(wanted));
    }

    let mut settled = valid.iter().filter(|ca| seen.lasts(ca, lifetimes.settle(), now)).peekable();
    // One that is about to be replaced signs only where there is no other.
    let first = settled.peek().copied();
    let signer = settled.find(|ca| !ca.is_due(now, lifetimes)).or(first).map(|ca| &ca.der);
    let is_good = |leaf: &&Leaf| leaf.ca.as_ref() == signer && leaf.names == view.names && !leaf.is_due(now);
    let leaf = view.leaf.as_ref();
    match signer.filter(|_| leaf.filter(is_good).is_none()) {
        Some(signer) => Some(Write::Leaf(signer.clone())),
        None if newest.is_due(now, lifetimes) => Some(Write::NewCa { beside: Some(newest.der.clone()) }),
        // What the others have signed was replaced.
        None if view.cas.len() > 1 && leaf.is_some_and(|leaf| leaf.ca.as_ref() == Some(&newest.der)) => {
            Some(Write::OnlyCa(newest.der.clone()))
        }
        None => None,
    }
}

fn first_of_each<'a>(cas: impl Iterator<Item = &'a Ca>) -> Vec<Der> {
    let mut unique = Vec::new();
    for ca in cas {
        if unique.len() < BUNDLE && !unique.contains(&ca.der) {
            unique.push(ca.der.clone());
        }
    }
    unique
}

#[cfg(test)]
mod tests;
