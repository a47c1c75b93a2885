//! Next step of the issuer, as a function of the time and of the objects in the cluster. No I/O and no clock.
//!
//! One process is enough, and two do no harm. All state is in three objects: a Secret with the CAs, the `caBundle` of
//! the webhooks, and a Secret with the certificate that all replicas serve. API servers trust the CAs in the
//! `caBundle`. These rules keep every served certificate trusted:
//!
//! 1. A CA is added to the Secret, then to the bundles. It signs a certificate once it has been in every bundle for a
//!    while, as API servers see a change later.
//! 2. A CA is removed from the bundles only once it has been absent from the Secret for longer than the certificates
//!    that it signed can live. The reason of its absence does not matter: it was replaced, or the Secret was deleted,
//!    damaged or restored from a backup. The CA of the served certificate is not removed from the Secret.
//! 3. Each write names the version of the object for which it was planned, and the Secrets are read after the webhooks.
//!    So a CA in a bundle is in the Secret as well, and a plan that was made too long ago changes nothing.

use std::collections::HashMap;
use std::time::Duration;

use rustls_pki_types::CertificateDer;

/// Time since 1970 by the clock of the API server, which verifies the certificates.
pub(super) type Time = Duration;

/// Time by which validity begins before a certificate is issued, as clocks differ.
pub(super) const BACKDATE: Duration = Duration::from_secs(5 * 60);
/// Shortest time between two checks of the cluster, which is used while there is no certificate.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of certificates in a bundle. If the CA were replaced every 10 s, the bundle would be full after
/// minutes; replicas load a new certificate in less time.
const BUNDLE: usize = 16;

/// Lifetimes of certificates; all other times follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Lifetime of a CA, at least three times that of a leaf. A CA is replaced after two thirds of it.
    pub ca: Duration,
    /// Lifetime of the serving certificate. It is replaced after half of it, so the issuer may be down for the other
    /// half.
    pub leaf: Duration,
}

impl Lifetimes {
    /// Minimum lifetime of a leaf: within half of it the next one has to reach every replica, and kubelets may take 90
    /// s.
    pub const LEAST: Duration = Duration::from_secs(10 * 60);

    /// Returns the longest time between two checks of the cluster.
    fn poll(self) -> Duration {
        Duration::from_secs(10).min(self.leaf / 10)
    }

    /// Returns the time until the next check. It is short for a certificate that expires soon: one that is signed at
    /// the end of its CA's lifetime may live for less than a poll.
    pub(super) fn pause(self, expires: Option<Time>, now: Time) -> Duration {
        let remaining = match expires {
            Some(expires) => expires.saturating_sub(now),
            None => Duration::ZERO,
        };
        let pause = (remaining / 2).max(MIN_PAUSE);
        pause.min(self.poll())
    }

    /// Returns the time that a change of the bundles may take to reach every API server.
    fn settle(self) -> Duration {
        Duration::from_secs(5).min(self.leaf / 10)
    }

    /// Returns the time for which a CA stays trusted after it was removed from the Secret: the lifetime of a leaf, and
    /// half of it for a late write.
    fn overlap(self) -> Duration {
        self.leaf * 3 / 2
    }
}

/// Certificate, which also identifies it.
pub(super) type Der = CertificateDer<'static>;

/// CA of the Secret, which also has its key, or CA of a bundle.
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

    /// Returns whether the CA has to be replaced.
    fn is_due(&self, now: Time, lifetimes: Lifetimes) -> bool {
        let lifetime = self.expires.saturating_sub(self.created);
        let used_for = lifetime.min(lifetimes.ca) * 2 / 3;
        now >= self.created + used_for
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// CA that signed the certificate; `None` if that CA is no longer in the Secret.
    pub(super) ca: Option<Der>,
    pub(super) names: Vec<String>,
    pub(super) issued: Time,
    pub(super) expires: Time,
}

impl Leaf {
    /// Returns whether the certificate has to be replaced.
    fn is_due(&self, now: Time) -> bool {
        let half = self.expires.saturating_sub(self.issued) / 2;
        let is_from_future = self.issued > now + BACKDATE;
        is_from_future || now >= self.issued + half
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// Usable CAs of the Secret, the newest first.
    pub(super) cas: Vec<Ca>,
    /// CAs in the bundle of each webhook.
    pub(super) bundles: Vec<Vec<Ca>>,
    /// Whether the bundles are the PEM of these CAs and nothing else: API servers may read other text differently.
    pub(super) are_plain: bool,
    /// Names by which the API server calls the webhooks.
    pub(super) names: Vec<String>,
    /// Certificate in the Secret of the replicas, if it is usable.
    pub(super) leaf: Option<Leaf>,
}

impl View {
    /// Returns whether every webhook trusts this CA.
    fn trusts(&self, ca: &Ca) -> bool {
        let has_ca = |bundle: &Vec<Ca>| contains(bundle, ca);
        !self.bundles.is_empty() && self.bundles.iter().all(has_ca)
    }
}

fn contains(cas: &[Ca], ca: &Ca) -> bool {
    cas.iter().any(|other| other.der == ca.der)
}

/// Observations of the bundles by this process: the times since which each has held without interruption.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// CAs of the Secret that are in all bundles.
    trusted: HashMap<Der, Time>,
    /// CAs that are in a bundle, but not in the Secret.
    removed: HashMap<Der, Time>,
}

impl History {
    pub(super) fn observe(&mut self, view: &View, now: Time) {
        let mut trusted = HashMap::new();
        for ca in &view.cas {
            if view.trusts(ca) {
                let since = since(&self.trusted, ca, now);
                trusted.insert(ca.der.clone(), since);
            }
        }
        let mut removed = HashMap::new();
        for ca in view.bundles.iter().flatten() {
            if !contains(&view.cas, ca) {
                let since = since(&self.removed, ca, now);
                removed.insert(ca.der.clone(), since);
            }
        }
        self.trusted = trusted;
        self.removed = removed;
    }

    /// Returns whether all bundles have contained this CA for this time.
    fn is_trusted_for(&self, ca: &Ca, time: Duration, now: Time) -> bool {
        match self.trusted.get(&ca.der) {
            Some(since) => now.saturating_sub(*since) >= time,
            None => false,
        }
    }

    /// Returns whether certificates of this CA may still be served, although the CA was removed from the Secret.
    fn may_be_served(&self, ca: &Ca, time: Duration, now: Time) -> bool {
        match self.removed.get(&ca.der) {
            Some(since) => now.saturating_sub(*since) < time,
            None => false,
        }
    }
}

/// Returns the time since which an observation has held: `now` if it was not made before.
fn since(before: &HashMap<Der, Time>, ca: &Ca, now: Time) -> Time {
    match before.get(&ca.der) {
        Some(since) => now.min(*since),
        None => now,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// Writes a new CA to the Secret, beside this one if there is any.
    NewCa { beside: Option<Der> },
    /// Removes all other CAs from the Secret.
    OnlyCa(Der),
    /// Writes these certificates to the bundle of every webhook.
    Bundles(Vec<Der>),
    /// Writes a new certificate for the replicas, signed by this CA.
    Leaf(Der),
}

/// Returns the write that is due.
pub(super) fn plan(
    view: &View,
    history: &History,
    now: Time,
    lifetimes: Lifetimes,
) -> Option<Write> {
    let valid: Vec<&Ca> = view.cas.iter().filter(|ca| ca.is_valid(now)).collect();
    let Some(newest) = valid.first() else {
        return Some(Write::NewCa { beside: None });
    };

    let desired = desired_bundle(view, &valid, history, now, lifetimes);
    // The order does not matter.
    let is_desired = |bundle: &Vec<Ca>| {
        let has_no_other = bundle.iter().all(|ca| desired.contains(&ca.der));
        has_no_other && bundle.len() == desired.len()
    };
    if !view.are_plain || !view.bundles.iter().all(is_desired) {
        return Some(Write::Bundles(desired));
    }

    let mut settled = valid.clone();
    settled.retain(|ca| history.is_trusted_for(ca, lifetimes.settle(), now));
    // A CA that is about to be replaced signs only if there is no other.
    let lasting = settled.iter().find(|ca| !ca.is_due(now, lifetimes));
    let leaf = view.leaf.as_ref();
    if let Some(signer) = lasting.or(settled.first()) {
        let is_good = match leaf {
            Some(leaf) => {
                let is_signed = leaf.ca.as_ref() == Some(&signer.der);
                is_signed && leaf.names == view.names && !leaf.is_due(now)
            }
            None => false,
        };
        if !is_good {
            return Some(Write::Leaf(signer.der.clone()));
        }
    }
    if newest.is_due(now, lifetimes) {
        return Some(Write::NewCa {
            beside: Some(newest.der.clone()),
        });
    }
    // The certificates that the other CAs signed have been replaced.
    let is_of_newest = leaf.is_some_and(|leaf| leaf.ca.as_ref() == Some(&newest.der));
    if view.cas.len() > 1 && is_of_newest {
        return Some(Write::OnlyCa(newest.der.clone()));
    }
    None
}

/// Returns the certificates that every bundle has to contain.
fn desired_bundle(
    view: &View,
    valid: &[&Ca],
    history: &History,
    now: Time,
    lifetimes: Lifetimes,
) -> Vec<Der> {
    let overlap = lifetimes.overlap();
    let mut cas = valid.to_vec();
    for ca in view.bundles.iter().flatten() {
        // Certificates of a CA that is not in the Secret may still be served: of a former CA, or of cert-manager's.
        if now < ca.expires && history.may_be_served(ca, overlap, now) {
            cas.push(ca);
        }
    }
    let mut bundle = Vec::new();
    for ca in cas {
        if bundle.len() < BUNDLE && !bundle.contains(&ca.der) {
            bundle.push(ca.der.clone());
        }
    }
    bundle
}

#[cfg(test)]
mod tests;
