//! Selection of the connection to close when there are too many.
//!
//! A full listener closes a connection of the address that has the most: a flood from one address takes no connection
//! from another. Connections on which no request was ever answered are closed first, then other idle ones; among
//! equals, the one that has waited longest for its client. Connections on which a request is being answered are the
//! last.
//!
//! Requests take no lock that connections share. If there are too many connections, an accept examines those that may
//! be closed: even thousands cost less than the handshake that follows.

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
    /// Grace period: time for which a connection may wait for its client before it makes room for a connection of an
    /// address that has as many.
    pub grace_period: Duration,
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

impl Slots {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            open: Mutex::default(),
        })
    }

    /// Returns a slot for a connection of this address. If necessary, closes another connection and takes its slot.
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

    /// Closes a connection if there are too many. Returns `None` if none may be closed for one of this address.
    fn make_room(&self, open: &mut Open, peer: IpAddr) -> Option<()> {
        let Limits {
            connections,
            per_peer,
            grace_period,
        } = self.limits;
        let of_peer = open.get(&peer).map_or(0, Vec::len);
        let is_crowded = of_peer >= per_peer;
        if !is_crowded && open.values().map(Vec::len).sum::<usize>() < connections {
            return Some(());
        }
        let most = open.values().map(Vec::len).max()?;
        // The address with the most then still has as many as this one. So two addresses do not close each other's
        // connections in turn.
        let is_forced = !is_crowded && of_peer + 1 < most;
        let min_wait = if is_forced {
            Duration::ZERO
        } else {
            grace_period
        };
        let latest_start = Instant::now().checked_sub(min_wait)?;
        let may_close = |address: IpAddr, count: usize| {
            if is_crowded {
                address == peer
            } else if is_forced {
                count == most
            } else {
                address == peer || count == most
            }
        };
        let mut closable = open
            .iter()
            .filter(|(address, activities)| may_close(**address, activities.len()))
            .flat_map(|(address, activities)| {
                activities.iter().map(|activity| (*address, activity))
            });
        let longest = longest_waiting(closable.clone(), latest_start);
        let at_once = longest.is_none();
        let (address, activity) = match longest {
            Some(longest) => longest,
            None if is_forced => closable.next()?,
            None => return None,
        };
        let activity = Arc::clone(activity);
        remove(open, address, &activity);
        activity.request_close(at_once);
        Some(())
    }
}

/// Returns the connection that has waited longest for its client, at least since `latest_start`. One on which no
/// request was ever answered precedes the others.
fn longest_waiting<'o>(
    connections: impl Iterator<Item = (IpAddr, &'o Arc<Activity>)>,
    latest_start: Instant,
) -> Option<(IpAddr, &'o Arc<Activity>)> {
    let mut longest = None;
    let mut least_rank = None;
    for (address, activity) in connections {
        let Some((served, waits_since)) = activity.waiting() else {
            continue;
        };
        let rank = (served, waits_since);
        if waits_since <= latest_start && least_rank.is_none_or(|least| rank < least) {
            least_rank = Some(rank);
            longest = Some((address, activity));
        }
    }
    longest
}

/// Removes a connection, unless it has already made room.
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
