//! One budget of bytes for all bodies, or all reviews, that are in memory at a time.
//!
//! Nothing waits for a reservation. When the budget is used up, the holders that occupy the most, in bytes times
//! seconds, are evicted: large and slow ones long before one that arrives, and is answered, at once.

use std::collections::HashMap;
use std::sync::Arc;

use crate::sync::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Fraction of a used-up budget that is cleared at once, so that holders are not compared for every single byte.
const CLEARED: usize = 16;

/// Bytes that bodies or reviews may hold together. Clones share them.
#[derive(Clone)]
pub struct Budget(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    total: usize,
    used: usize,
    next: u64,
    holders: HashMap<u64, Holder>,
}

struct Holder {
    bytes: usize,
    since: Instant,
    evicted: Arc<Notify>,
}

/// Reservation of one body or review in the budget, until it is dropped.
pub struct Room {
    budget: Budget,
    since: Instant,
    holder: Option<(u64, Arc<Notify>)>,
}

/// The budget is used up, and this holder is among those that occupy the most of it.
#[derive(Debug)]
pub struct Evicted;

impl Budget {
    pub fn new(total: usize) -> Self {
        Self(Arc::new(Mutex::new(State { total, ..State::default() })))
    }

    /// Makes a reservation of no bytes yet; `since` is when the holder began to occupy the budget.
    pub fn room(&self, since: Instant) -> Room {
        Room { budget: self.clone(), since, holder: None }
    }
}

impl Room {
    /// Changes the reservation to this many bytes. A reservation that never holds any costs no lock.
    pub fn hold(&mut self, bytes: usize) -> Result<(), Evicted> {
        let mut state = self.budget.0.lock();
        let (id, _) = self.holder.get_or_insert_with(|| {
            let (id, evicted) = (state.next, Arc::new(Notify::new()));
            state.next += 1;
            state.holders.insert(id, Holder { bytes: 0, since: self.since, evicted: evicted.clone() });
            (id, evicted)
        });
        let holder = state.holders.get_mut(id).ok_or(Evicted)?;
        let before = std::mem::replace(&mut holder.bytes, bytes);
        state.used = state.used + bytes - before;
        if state.used > state.total {
            state.clear();
        }
        if state.holders.contains_key(id) { Ok(()) } else { Err(Evicted) }
    }

    /// Returns when the reservation is evicted in favour of others.
    pub async fn evicted(&self) {
        match &self.holder {
            Some((_, evicted)) => evicted.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl State {
    fn clear(&mut self) {
        let left = self.total - self.total / CLEARED;
        let now = Instant::now();
        let occupied = |holder: &Holder| {
            holder.bytes as u128 * (now.saturating_duration_since(holder.since).as_micros() + 1)
        };
        let mut most: Vec<_> = self.holders.iter().map(|(id, holder)| (occupied(holder), *id)).collect();
        most.sort_unstable();
        while let Some((_, id)) = most.pop_if(|_| self.used > left) {
            if let Some(holder) = self.holders.remove(&id) {
                self.used -= holder.bytes;
                holder.evicted.notify_one();
            }
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some((id, _)) = &self.holder {
            let mut state = self.budget.0.lock();
            if let Some(holder) = state.holders.remove(id) {
                state.used -= holder.bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests;
