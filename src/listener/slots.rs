//! Which connections stay when there are too many: those that are being answered, and of the others those that have waited
//! for their clients the shortest.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Duration;

use super::activity::Activity;

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// At a time.
    pub connections: usize,
    /// Of one address.
    pub per_peer: usize,
    /// For how long a connection may wait for its client before it has to make room for another one.
    pub spared: Duration,
}

/// The connections that are open.
pub(super) struct Slots {
    limits: Limits,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, (IpAddr, Activity)>,
}

/// The place of a connection, until it is dropped.
pub(super) struct Slot {
    slots: Arc<Slots>,
    id: u64,
}

impl Slots {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, open: Mutex::default() })
    }

    /// A place for a connection of this address; where there is none left, that of the one that has waited the longest.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr, activity: &Activity) -> Option<Slot> {
        let Limits { connections, per_peer, spared } = self.limits;
        let mut open = self.open();
        let crowded = per_peer < connections
            && open.connections.values().filter(|(of, _)| *of == peer).count() >= per_peer;
        if crowded || open.connections.len() >= connections {
            let eligible = open.connections.iter().filter(|(_, (of, _))| !crowded || *of == peer);
            let waiting = eligible.filter_map(|(id, (_, activity))| Some((activity.waiting()?, *id)));
            let (_, longest) = waiting.filter(|(waiting, _)| *waiting >= spared).max()?;
            if let Some((_, activity)) = open.connections.remove(&longest) {
                activity.leave();
            }
        }
        let id = open.next;
        open.next += 1;
        open.connections.insert(id, (peer, activity.clone()));
        Some(Slot { slots: Arc::clone(self), id })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.open().connections.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn enter(slots: &Arc<Slots>, peer: [u8; 4]) -> Option<(Slot, Activity)> {
        advance(SECOND).await;
        let activity = Activity::new();
        Some((slots.take(peer.into(), &activity)?, activity))
    }

    fn has_to_leave((_, activity): &(Slot, Activity)) -> bool {
        activity.left().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_waited_the_longest_makes_room() {
        let slots = Slots::new(Limits { connections: 3, per_peer: 3, spared: Duration::ZERO });
        let answering = enter(&slots, [10, 0, 0, 1]).await.unwrap();
        answering.1.head_complete();
        answering.1.body_complete();
        let used = enter(&slots, [10, 0, 0, 1]).await.unwrap();
        let idle = enter(&slots, [10, 0, 0, 1]).await.unwrap();
        advance(SECOND).await;
        used.1.at_rest();
        let next = enter(&slots, [10, 0, 0, 2]).await.unwrap();
        assert!(has_to_leave(&idle) && !has_to_leave(&used) && !has_to_leave(&answering));
        for (_, activity) in [&used, &next] {
            activity.head_complete();
            activity.body_complete();
        }
        assert!(enter(&slots, [10, 0, 0, 2]).await.is_none(), "all are being answered");
        drop(used);
        assert!(enter(&slots, [10, 0, 0, 2]).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_takes_its_own_places_only() {
        let slots = Slots::new(Limits { connections: 9, per_peer: 2, spared: Duration::ZERO });
        let other = enter(&slots, [10, 0, 0, 2]).await.unwrap();
        let first = enter(&slots, [10, 0, 0, 1]).await.unwrap();
        let second = enter(&slots, [10, 0, 0, 1]).await.unwrap();
        let third = enter(&slots, [10, 0, 0, 1]).await.unwrap();
        assert!(has_to_leave(&first) && ![&other, &second, &third].into_iter().any(has_to_leave));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fresh_connection_is_spared() {
        let slots = Slots::new(Limits { connections: 1, per_peer: 1, spared: 3 * SECOND });
        let first = enter(&slots, [10, 0, 0, 1]).await.unwrap();
        assert!(enter(&slots, [10, 0, 0, 1]).await.is_none() && !has_to_leave(&first));
        advance(2 * SECOND).await;
        assert!(enter(&slots, [10, 0, 0, 1]).await.is_some() && has_to_leave(&first));
    }
}
