//! Selection of the connection that is closed when there are too many.
//!
//! A full listener closes a connection of the address that has the most: a flood from one address takes no connection
//! from another. First go connections that were never answered a request, then those at rest, each by how long they
//! have waited for their client, at last those being answered.
//!
//! Requests take no lock that connections share. Where there are too many connections an accept looks at those that may
//! go: thousands cost less than the handshake that follows.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::time::{Duration, Instant};

use super::activity::Activity;
use tolerarch_support::sync::Mutex;

/// Maximum numbers of connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of all addresses together.
    pub connections: usize,
    /// Of one address.
    pub per_peer: usize,
    /// Time a connection may wait for its client before it makes room for one of an address that has as many.
    pub spared: Duration,
}

/// Connections of each address, the oldest first.
type Open = HashMap<IpAddr, Vec<Arc<Activity>>>;

pub(super) struct Slots {
    limits: Limits,
    open: Mutex<Open>,
}

/// Slot of a connection, which is free once this is dropped.
pub(super) struct Slot {
    slots: Arc<Slots>,
    peer: IpAddr,
    pub(super) activity: Arc<Activity>,
}

/// Rank of a connection among those that may make room, the least first; its address, and its activity.
type Waiting<'o> = ((bool, Instant), IpAddr, &'o Arc<Activity>);

impl Slots {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            open: Mutex::default(),
        })
    }

    /// Returns a slot for a connection of this address, if necessary that of another connection.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr) -> Option<Slot> {
        let mut open = self.open.lock();
        self.make_room(&mut open, peer)?;
        let activity = Activity::new();
        open.entry(peer).or_default().push(Arc::clone(&activity));
        Some(Slot {
            slots: Arc::clone(self),
            peer,
            activity,
        })
    }

    /// Returns `None` where no connection is to make room for one of this address.
    fn make_room(&self, open: &mut Open, peer: IpAddr) -> Option<()> {
        let Limits {
            connections,
            per_peer,
            spared,
        } = self.limits;
        let own = open.get(&peer).map_or(0, Vec::len);
        let is_crowded = own >= per_peer;
        if !is_crowded && open.values().map(Vec::len).sum::<usize>() < connections {
            return Some(());
        }
        let most = open.values().map(Vec::len).max()?;
        // Afterwards the largest still has as many as this one, so they do not take turns in closing each other's.
        let is_forced = !is_crowded && own + 1 < most;
        let before = Instant::now().checked_sub(if is_forced { Duration::ZERO } else { spared })?;
        let mut first = None;
        let mut longest: Option<Waiting<'_>> = None;
        for (&address, activities) in &*open {
            let has_most = activities.len() == most;
            let may_go = if is_crowded {
                address == peer
            } else if is_forced {
                has_most
            } else {
                address == peer || has_most
            };
            if !may_go {
                continue;
            }
            for activity in activities {
                first = first.or(Some((address, activity)));
                if let Some(waiting) = activity.waiting()
                    && waiting.1 <= before
                    && longest.is_none_or(|(rank, ..)| waiting < rank)
                {
                    longest = Some((waiting, address, activity));
                }
            }
        }
        let at_once = longest.is_none();
        let (address, activity) = match longest {
            Some((_, address, activity)) => (address, activity),
            None if is_forced => first?,
            None => return None,
        };
        let activity = Arc::clone(activity);
        remove(open, address, &activity);
        activity.leave(at_once);
        Some(())
    }
}

/// Does nothing if the connection has made room already.
fn remove(open: &mut Open, peer: IpAddr, activity: &Arc<Activity>) {
    if let Some(activities) = open.get_mut(&peer) {
        activities.retain(|other| !Arc::ptr_eq(other, activity));
        if activities.is_empty() {
            open.remove(&peer);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        remove(&mut self.slots.open.lock(), self.peer, &self.activity);
    }
}

#[cfg(test)]
mod tests;
