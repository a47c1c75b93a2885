//! Which connections stay when there are too many.
//!
//! A full listener closes a connection of the address that has the most: a flood from one address takes no connection from
//! another. First go connections that were never answered a request, then those at rest, each by how long they have waited
//! for their client, at last those being answered.
//!
//! Requests take no lock here: a connection is ranked when it is accepted, and again when its turn comes. In between its rank
//! can only grow, so the lowest rank that still holds is the lowest of all. An accept costs O(log n), and as much for each
//! connection that was used since it was ranked; of those being answered it looks at [`LOOKS`].

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::{Duration, Instant};

use super::activity::Activity;

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

/// How many connections that are being answered, and how many addresses with equally many, one accept looks at.
const LOOKS: usize = 64;

/// The connections that are open.
pub(super) struct Slots {
    limits: Limits,
    open: Mutex<Open>,
}

/// Some 300 bytes for each connection.
struct Open {
    /// No connection is older.
    begun: Instant,
    next: u64,
    connections: HashMap<u64, Connection>,
    peers: HashMap<IpAddr, BTreeSet<Rank>>,
    /// The addresses by their number of connections, and among equals by their lowest rank.
    largest: BTreeSet<(Reverse<usize>, Rank, IpAddr)>,
}

struct Connection {
    peer: IpAddr,
    rank: Rank,
    activity: Activity,
}

/// The order in which connections go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    served: bool,
    /// Since when it has been waiting for its client.
    since: Instant,
    id: u64,
}

/// The slot of a connection, until it is dropped.
pub(super) struct Slot {
    slots: Arc<Slots>,
    id: u64,
}

impl Slots {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        let open = Open {
            begun: Instant::now(),
            next: 0,
            connections: HashMap::new(),
            peers: HashMap::new(),
            largest: BTreeSet::new(),
        };
        Arc::new(Self { limits, open: Mutex::new(open) })
    }

    /// A slot for a connection of this address, if need be that of another one.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr, activity: &Activity) -> Option<Slot> {
        let mut open = self.open();
        open.make_room(peer, self.limits)?;
        let id = open.next;
        open.next += 1;
        let (rank, _) = Rank::of(id, activity);
        open.connections.insert(id, Connection { peer, rank, activity: activity.clone() });
        open.change(peer, |ranks| ranks.insert(rank));
        Some(Slot { slots: Arc::clone(self), id })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// `None` where no connection is to make room for one of this address.
    fn make_room(&mut self, peer: IpAddr, limits: Limits) -> Option<()> {
        let now = Instant::now();
        let own = self.peers.get(&peer).map_or(0, BTreeSet::len);
        let victims = if own >= limits.per_peer {
            vec![peer]
        } else if self.connections.len() >= limits.connections {
            let &(Reverse(most), _, largest) = self.largest.first()?;
            // Afterwards the largest still has as many as this one, so they do not take turns in closing each other's.
            if own + 1 < most {
                if let Some(victim) = self.longest_waiting(&[largest], now) {
                    self.remove(victim)?.leave();
                } else {
                    let victim = self.peers.get(&largest)?.first()?.id;
                    self.remove(victim)?.cut_off();
                }
                return Some(());
            }
            let equals = self.largest.iter().take_while(|(Reverse(count), ..)| *count == most);
            equals.map(|(_, _, equal)| *equal).take(LOOKS).chain([peer]).collect()
        } else {
            return Some(());
        };
        let victim = self.longest_waiting(&victims, now.checked_sub(limits.spared)?)?;
        self.remove(victim)?.leave();
        Some(())
    }

    /// Of these addresses the connection of the lowest rank, if it has been waiting for its client since `before`.
    fn longest_waiting(&mut self, peers: &[IpAddr], before: Instant) -> Option<u64> {
        let mut looks = LOOKS;
        for served in [false, true] {
            for peer in peers {
                while let Some(rank) = self.lowest(peer, served).filter(|rank| rank.since <= before) {
                    let (actual, is_waiting) = Rank::of(rank.id, &self.connections.get(&rank.id)?.activity);
                    if is_waiting && actual == rank {
                        return Some(rank.id);
                    }
                    if !is_waiting {
                        looks = looks.checked_sub(1)?;
                    }
                    self.change(*peer, |ranks| {
                        ranks.remove(&rank);
                        ranks.insert(actual)
                    });
                    self.connections.get_mut(&rank.id)?.rank = actual;
                }
            }
        }
        None
    }

    fn lowest(&self, peer: &IpAddr, served: bool) -> Option<Rank> {
        let from = Rank { served, since: self.begun, id: 0 };
        self.peers.get(peer)?.range(from..).next().copied().filter(|rank| rank.served == served)
    }

    fn remove(&mut self, id: u64) -> Option<Activity> {
        let Connection { peer, rank, activity } = self.connections.remove(&id)?;
        self.change(peer, |ranks| ranks.remove(&rank));
        Some(activity)
    }

    /// Changes the ranks of an address.
    fn change(&mut self, peer: IpAddr, change: impl FnOnce(&mut BTreeSet<Rank>) -> bool) {
        let ranks = self.peers.entry(peer).or_default();
        if let Some(lowest) = ranks.first() {
            self.largest.remove(&(Reverse(ranks.len()), *lowest, peer));
        }
        change(ranks);
        match ranks.first() {
            Some(lowest) => {
                self.largest.insert((Reverse(ranks.len()), *lowest, peer));
            }
            None => {
                self.peers.remove(&peer);
            }
        }
    }
}

impl Rank {
    /// The rank by now, and whether it is waiting for its client; if not, the lowest rank that it may have later.
    fn of(id: u64, activity: &Activity) -> (Self, bool) {
        match activity.waiting() {
            Some((served, since)) => (Self { served, since, id }, true),
            None => (Self { served: true, since: Instant::now(), id }, false),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.open().remove(self.id);
    }
}

#[cfg(test)]
mod tests;
