//! Which connections stay when there are too many.
//!
//! A full listener closes a connection of the address that has the most: a flood from one address takes no connection from
//! another. First go connections that were never answered a request, then those at rest, each by how long they have waited
//! for their client, at last those being answered.
//!
//! Requests take no lock here. Where there are too many connections an accept looks at those that may go: thousands cost
//! less than the handshake that follows.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use tokio::time::{Duration, Instant};

use super::activity::Activity;
use tolerarch_support::sync::Mutex;

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// At a time.
    pub connections: usize,
    /// Of one address.
    pub per_peer: usize,
    /// For how long a connection may wait for its client before it makes room for one of an address that has as many.
    pub spared: Duration,
}

pub(super) struct Slots {
    limits: Limits,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    total: usize,
    /// The connections of each address, the oldest first.
    peers: HashMap<IpAddr, BTreeMap<u64, Arc<Activity>>>,
}

/// The slot of a connection, until it is dropped.
pub(super) struct Slot {
    slots: Arc<Slots>,
    peer: IpAddr,
    id: u64,
}

impl Slots {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, open: Mutex::default() })
    }

    /// A slot for a connection of this address, if need be that of another one.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr, activity: &Arc<Activity>) -> Option<Slot> {
        let mut open = self.open.lock();
        open.make_room(peer, self.limits)?;
        let id = open.next;
        open.next += 1;
        open.total += 1;
        open.peers.entry(peer).or_default().insert(id, Arc::clone(activity));
        Some(Slot { slots: Arc::clone(self), peer, id })
    }
}

impl Open {
    /// `None` where no connection is to make room for one of this address.
    fn make_room(&mut self, peer: IpAddr, limits: Limits) -> Option<()> {
        let own = self.peers.get(&peer).map_or(0, BTreeMap::len);
        let is_crowded = own >= limits.per_peer;
        if !is_crowded && self.total < limits.connections {
            return Some(());
        }
        let most = self.peers.values().map(BTreeMap::len).max()?;
        // Afterwards the largest still has as many as this one, so they do not take turns in closing each other's.
        let is_forced = !is_crowded && own + 1 < most;
        let before = Instant::now().checked_sub(if is_forced { Duration::ZERO } else { limits.spared })?;
        let may_go = |of: IpAddr, count| of == peer && !is_forced || count == most && !is_crowded;
        let candidates = self.peers.iter().filter(|(of, own)| may_go(**of, own.len()));
        let candidates =
            candidates.flat_map(|(of, own)| own.iter().map(|(id, activity)| (*of, *id, activity)));
        let waiting = candidates.clone().filter_map(|(of, id, activity)| {
            let (served, since) = activity.waiting().filter(|(_, since)| *since <= before)?;
            Some((served, since, id, of))
        });
        if let Some((_, _, id, of)) = waiting.min() {
            self.remove(of, id)?.leave();
        } else {
            let (of, id, _) = candidates.filter(|_| is_forced).min_by_key(|(_, id, _)| *id)?;
            self.remove(of, id)?.cut_off();
        }
        Some(())
    }

    fn remove(&mut self, peer: IpAddr, id: u64) -> Option<Arc<Activity>> {
        let own = self.peers.get_mut(&peer)?;
        let activity = own.remove(&id)?;
        if own.is_empty() {
            self.peers.remove(&peer);
        }
        self.total -= 1;
        Some(activity)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.open.lock().remove(self.peer, self.id);
    }
}

#[cfg(test)]
mod tests;
