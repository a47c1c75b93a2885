//! Next step of the issuer, as a function of the time and of what was read from the cluster. No I/O and no clock.
//!
//! One process is enough, and two do no harm. All state is in three objects: a Secret with the CAs, the
//! `caBundle` of the webhooks, which says what API servers trust, and a Secret with the certificate that all replicas
//! serve. These rules keep every served certificate trusted:
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

/// Time since 1970, by the clock of the API server, as that verifies certificates.
pub(super) type Time = Duration;

/// Time by which validity begins earlier, as clocks differ.
pub(super) const BACKDATE: Duration = Duration::from_secs(5 * 60);
/// Shortest time between two looks at the cluster, which is used while there is no certificate.
const HASTE: Duration = Duration::from_secs(1);
/// Maximum number of certificates in a bundle: a CA replaced every 10 s fills it in minutes, replicas follow in less.
const BUNDLE: usize = 16;

/// Lifetimes of certificates; all other times follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Lifetime of a CA, at least three times that of a leaf. A CA is replaced after two thirds of it.
    pub ca: Duration,
    /// Lifetime of the serving certificate, which is replaced after half of it: the issuer may be down that long.
    pub leaf: Duration,
}

impl Lifetimes {
    /// Shortest lifetime of a leaf: in half of it the next one has to reach every replica, and kubelets may take 90 s.
    pub const LEAST: Duration = Duration::from_secs(10 * 60);

    /// Returns the longest time between two looks at the cluster.
    fn poll(self) -> Duration {
        Duration::from_secs(10).min(self.leaf / 10)
    }

    /// Returns the time until the next look: a certificate signed at the end of its CA may live for less than a poll.
    pub(super) fn pause(self, expires: Option<Time>, now: Time) -> Duration {
        let left = expires.map_or(Duration::ZERO, |expires| expires.saturating_sub(now));
        self.poll().min((left / 2).max(HASTE))
    }

    /// Returns the time that a change of the bundles may take to reach every API server.
    fn settle(self) -> Duration {
        Duration::from_secs(5).min(self.leaf / 10)
    }

    /// Returns the time for which a CA stays trusted after it has left the Secret: a leaf's life, plus a late write's.
    fn overlap(self) -> Duration {
        self.leaf * 3 / 2
    }
}

/// Certificate, which also identifies it.
pub(super) type Der = CertificateDer<'static>;

/// CA of the Secret, where its key is known, or of a bundle.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// CA that signed the certificate; `None` if the Secret does not contain that CA any more.
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

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// CAs of the Secret that can be used, the newest first.
    pub(super) cas: Vec<Ca>,
    /// CAs that each webhook trusts.
    pub(super) bundles: Vec<Vec<Ca>>,
    /// Whether the bundles are the PEM of these CAs and nothing else: API servers read other text in another way.
    pub(super) are_plain: bool,
    /// Names by which the API server calls the webhooks.
    pub(super) names: Vec<String>,
    /// Certificate in the Secret of the replicas, if it can be used.
    pub(super) leaf: Option<Leaf>,
}

impl View {
    fn trusts(&self, ca: &Ca) -> bool {
        let has = |bundle: &Vec<Ca>| bundle.iter().any(|trusted| trusted.der == ca.der);
        !self.bundles.is_empty() && self.bundles.iter().all(has)
    }
}

/// Observations of the bundles by this process, and the times since which they have been true without a break.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// CAs of the Secret that are in all bundles.
    trusted: HashMap<Der, Time>,
    /// CAs that are in a bundle, but not in the Secret.
    left: HashMap<Der, Time>,
}

impl History {
    pub(super) fn look(&mut self, view: &View, now: Time) {
        let since = |seen: &HashMap<Der, Time>, ca: &Ca| {
            let since = seen.get(&ca.der).copied().unwrap_or(now);
            (ca.der.clone(), since.min(now))
        };
        let trusted = view.cas.iter().filter(|ca| view.trusts(ca));
        self.trusted = trusted.map(|ca| since(&self.trusted, ca)).collect();
        let in_bundles = view.bundles.iter().flatten();
        let left = in_bundles.filter(|trusted| view.cas.iter().all(|ca| ca.der != trusted.der));
        self.left = left.map(|ca| since(&self.left, ca)).collect();
    }

    fn lasts(&self, ca: &Ca, time: Duration, now: Time) -> bool {
        let since = self.trusted.get(&ca.der);
        since.is_some_and(|since| now.saturating_sub(*since) >= time)
    }

    /// Returns whether certificates of this CA may still be served, although it has left the Secret.
    fn lingers(&self, ca: &Ca, time: Duration, now: Time) -> bool {
        let since = self.left.get(&ca.der);
        since.is_some_and(|since| now.saturating_sub(*since) < time)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// Writes a new CA to the Secret, beside this one.
    NewCa { beside: Option<Der> },
    /// Removes all other CAs from the Secret.
    OnlyCa(Der),
    /// Writes these certificates to the bundle of every webhook.
    Bundles(Vec<Der>),
    /// Writes a new certificate for the replicas, signed by this CA.
    Leaf(Der),
}

pub(super) fn plan(view: &View, seen: &History, now: Time, lifetimes: Lifetimes) -> Option<Write> {
    let valid: Vec<&Ca> = view.cas.iter().filter(|ca| ca.is_valid(now)).collect();
    let Some(newest) = valid.first() else {
        return Some(Write::NewCa { beside: None });
    };

    // What the Secret has lost may be served still: its own CAs, or cert-manager's.
    let lingers = |ca: &&Ca| now < ca.expires && seen.lingers(ca, lifetimes.overlap(), now);
    let others = view.bundles.iter().flatten().filter(lingers);
    let wanted = first_of_each(valid.iter().copied().chain(others));
    // In any order, as each is as good.
    let is_wanted = |bundle: &Vec<Ca>| {
        bundle.len() == wanted.len() && bundle.iter().all(|ca| wanted.contains(&ca.der))
    };
    if !view.are_plain || !view.bundles.iter().all(is_wanted) {
        return Some(Write::Bundles(wanted));
    }

    let mut settled = valid.clone();
    settled.retain(|ca| seen.lasts(ca, lifetimes.settle(), now));
    // One that is about to be replaced signs only where there is no other.
    let lasting = settled.iter().find(|ca| !ca.is_due(now, lifetimes));
    let signer = lasting.or(settled.first()).map(|ca| &ca.der);
    let is_good =
        |leaf: &Leaf| leaf.ca.as_ref() == signer && leaf.names == view.names && !leaf.is_due(now);
    let leaf = view.leaf.as_ref();
    if let Some(signer) = signer
        && !leaf.is_some_and(is_good)
    {
        return Some(Write::Leaf(signer.clone()));
    }
    if newest.is_due(now, lifetimes) {
        return Some(Write::NewCa {
            beside: Some(newest.der.clone()),
        });
    }
    // What the others have signed was replaced.
    let is_of_newest = leaf.is_some_and(|leaf| leaf.ca.as_ref() == Some(&newest.der));
    if view.cas.len() > 1 && is_of_newest {
        return Some(Write::OnlyCa(newest.der.clone()));
    }
    None
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
