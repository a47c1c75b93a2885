//! What one replica does next about its certificates, as a function: what was read of the cluster, and what time it is, to
//! a plan. No I/O and no clock.
//!
//! There is no leader. Replicas agree through two objects: the Secret holds the CAs, and the `caBundle` of the webhooks
//! says which of them the API server trusts. These rules keep every served certificate trusted:
//!
//! 1. A CA is added to the Secret, then to the bundles; a replica signs with it once it has seen it in every bundle for
//!    a while, as API servers see a change later.
//! 2. A CA leaves the bundles only when it has been out of the Secret for longer than what it signed can live, for
//!    whatever reason it left: it was replaced, or the Secret was deleted, damaged or put back from a backup.
//! 3. Each write names the version of the object that it was planned for, and the Secret is read after the webhooks:
//!    so a CA in a bundle is in the Secret as well, and a plan that was made too long ago changes nothing.

use std::collections::HashMap;
use std::time::Duration;

/// Since 1970. The clock is the API server's: it is the one that verifies.
pub(super) type Time = Duration;

/// How far back validity begins, as clocks differ.
pub(super) const BACKDATE: Duration = Duration::from_secs(5 * 60);
/// How often the cluster is looked at until the first certificate is trusted, and at most.
const HASTE: Duration = Duration::from_secs(1);
/// Certificates in a bundle. A CA that is replaced every ten seconds fills it in minutes, and replicas follow in less.
const BUNDLE: usize = 16;

/// How long certificates live; everything else follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Of a CA, at least three times that of a leaf. It is replaced after two thirds.
    pub ca: Duration,
    /// Of a replica's serving certificate. It is replaced after half.
    pub leaf: Duration,
}

impl Lifetimes {
    /// The shortest life of a leaf: the API server's clock is known to a second.
    pub const LEAST: Duration = Duration::from_secs(5);

    /// How often the cluster is looked at.
    fn poll(self) -> Duration {
        Duration::from_secs(10).min(self.leaf / 10)
    }

    /// How long not to look, while `leaf` is served: not until it expires, as one that was signed at its CA's end may live
    /// for less than a poll.
    pub(super) fn pause(self, leaf: Option<&Leaf>, ready: bool, now: Time) -> Duration {
        let left = leaf.filter(|_| ready).map_or(Duration::ZERO, |leaf| leaf.expires.saturating_sub(now));
        self.poll().min((left / 2).max(HASTE))
    }

    /// How long a change of the bundles may take to reach every API server.
    fn settle(self) -> Duration {
        Duration::from_secs(5).min(self.leaf / 10)
    }

    /// How long a CA stays trusted after it has left the Secret: the life of a leaf, and time for every replica to look
    /// there (a poll, which is a tenth of a life or less).
    fn overlap(self) -> Duration {
        self.leaf * 3 / 2
    }
}

/// The SHA-256 digest of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Id(pub(super) [u8; 32]);

/// A CA whose key is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ca {
    pub(super) id: Id,
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

/// A certificate of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trusted {
    pub(super) id: Id,
    pub(super) expires: Time,
}

/// The certificate that a replica serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) ca: Ca,
    pub(super) names: Vec<String>,
    pub(super) issued: Time,
    pub(super) expires: Time,
}

impl Leaf {
    fn is_due(&self, now: Time) -> bool {
        let half = self.expires.saturating_sub(self.issued) / 2;
        now >= self.issued + half || self.issued > now + BACKDATE
    }

    /// Whether to sign it again without the cluster, which cannot be read.
    pub(super) fn renews_alone(&self, now: Time) -> bool {
        self.is_due(now) && self.ca.is_valid(now)
    }
}

/// What was read of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// The CAs of the Secret that can be used, the newest first.
    pub(super) cas: Vec<Ca>,
    /// What each webhook trusts.
    pub(super) bundles: Vec<Vec<Trusted>>,
    /// By which names the API server calls the webhooks.
    pub(super) names: Vec<String>,
}

impl View {
    /// Whether every webhook trusts it.
    fn trusts(&self, id: Id) -> bool {
        let has = |bundle: &Vec<Trusted>| bundle.iter().any(|trusted| trusted.id == id);
        !self.bundles.is_empty() && self.bundles.iter().all(has)
    }
}

/// What this process has seen of the bundles, and since when without a break.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    looked: bool,
    /// CAs of the Secret that are in all bundles.
    trusted: HashMap<Id, Time>,
    /// What is in a bundle, but not in the Secret.
    left: HashMap<Id, Time>,
}

impl History {
    pub(super) fn look(&mut self, view: &View, now: Time, lifetimes: Lifetimes) {
        let trusted = view.cas.iter().filter(|ca| view.trusts(ca.id));
        // What the first look finds is no news, unless it is so young that a bundle may have been written just now.
        let is_young = |ca: &Ca| now < ca.created + 3 * lifetimes.poll();
        let first = |ca: &Ca| if self.looked || is_young(ca) { now } else { ca.created };
        let since = |ca: &Ca| self.trusted.get(&ca.id).copied().unwrap_or_else(|| first(ca)).min(now);
        self.trusted = trusted.map(|ca| (ca.id, since(ca))).collect();
        let left =
            view.bundles.iter().flatten().filter(|trusted| view.cas.iter().all(|ca| ca.id != trusted.id));
        let since = |id: Id| self.left.get(&id).copied().unwrap_or(now).min(now);
        self.left = left.map(|trusted| (trusted.id, since(trusted.id))).collect();
        self.looked = true;
    }

    /// Whether this CA of the Secret has been in all bundles for so long.
    fn lasts(&self, id: Id, time: Duration, now: Time) -> bool {
        self.trusted.get(&id).is_some_and(|&since| now.saturating_sub(since) >= time)
    }

    /// Whether certificates of this CA may still be served, although the Secret has it no more.
    fn lingers(&self, id: Id, time: Duration, now: Time) -> bool {
        self.left.get(&id).is_some_and(|&since| now.saturating_sub(since) < time)
    }
}

/// What to do. Signing needs no API server; a write may fail, and is then planned again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The certificate that is served is trusted.
    pub(super) ready: bool,
    /// Serve a new certificate, signed by this CA.
    pub(super) sign: Option<Id>,
    pub(super) write: Option<Write>,
}

/// A change of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// A new CA for the Secret, beside this one.
    NewCa { beside: Option<Id> },
    /// Nothing but this CA in the Secret.
    OnlyCa(Id),
    /// These certificates in the bundle of every webhook.
    Bundles(Vec<Id>),
}

/// The next steps of a replica that serves `leaf`.
pub(super) fn plan(
    view: &View,
    seen: &History,
    leaf: Option<&Leaf>,
    now: Time,
    lifetimes: Lifetimes,
) -> Plan {
    let valid: Vec<&Ca> = view.cas.iter().filter(|ca| ca.is_valid(now)).collect();
    let settled = |ca: &Ca| seen.lasts(ca.id, lifetimes.settle(), now);
    let ready = leaf.is_some_and(|leaf| settled(&leaf.ca));
    let Some(newest) = valid.first() else {
        let alone = leaf.filter(|leaf| leaf.renews_alone(now));
        return Plan {
            ready,
            sign: alone.map(|leaf| leaf.ca.id),
            write: Some(Write::NewCa { beside: None }),
        };
    };

    let own = leaf.map(|leaf| &leaf.ca).filter(|ca| ca.is_valid(now));
    let trusted = |ca: &&Ca| view.trusts(ca.id);
    // Not one that is about to be replaced, and may be near its end: with no other it is the one in use, or the one that
    // has been there for longest.
    let signer = valid.iter().copied().find(|ca| settled(ca) && !ca.is_due(now, lifetimes));
    let signer = signer.or(own.filter(trusted)).or(valid.iter().rev().copied().find(trusted));
    let signer = signer.or(own).unwrap_or(newest).id;
    let keep = |leaf: &&Leaf| leaf.ca.id == signer && leaf.names == view.names && !leaf.is_due(now);
    let sign = if leaf.filter(keep).is_some() { None } else { Some(signer) };

    // What the Secret has lost may be served still: its own CAs, or cert-manager's.
    let lingers =
        |trusted: &&Trusted| now < trusted.expires && seen.lingers(trusted.id, lifetimes.overlap(), now);
    let others = view.bundles.iter().flatten().filter(lingers).map(|trusted| trusted.id);
    let wanted = first_of_each(valid.iter().map(|ca| ca.id).chain(others));
    // In any order: replicas that put their own CA first would write by turns.
    let is_wanted = |bundle: &Vec<Trusted>| {
        bundle.len() == wanted.len() && bundle.iter().all(|trusted| wanted.contains(&trusted.id))
    };
    let write = if !view.bundles.iter().all(is_wanted) {
        Some(Write::Bundles(wanted))
    } else if newest.is_due(now, lifetimes) && view.trusts(newest.id) {
        Some(Write::NewCa { beside: Some(newest.id) })
    } else if view.cas.len() > 1 && seen.lasts(newest.id, lifetimes.leaf / 2, now) {
        // All replicas have switched.
        Some(Write::OnlyCa(newest.id))
    } else {
        None
    };
    Plan { ready, sign, write }
}

fn first_of_each(ids: impl Iterator<Item = Id>) -> Vec<Id> {
    let mut unique = Vec::new();
    for id in ids {
        if unique.len() < BUNDLE && !unique.contains(&id) {
            unique.push(id);
        }
    }
    unique
}

#[cfg(test)]
mod tests;
