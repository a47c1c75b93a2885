//! Bodies read within bounds: on the size of each, on the bytes of all together, and on the time that each takes.
//!
//! All bodies, or all reviews, that are in memory at a time share one budget of bytes. Nothing waits for a reservation. When
//! the budget is used up, the holders that occupy the most of it, in bytes times seconds, are evicted. So large and slow
//! bodies are evicted long before one that arrives, and is answered, at once.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep_until};

use crate::sync::Mutex;

/// Maximum bytes of a body in one piece that is not charged: the body is still in the connection's read buffer.
pub const FREE: usize = 8 << 10;
/// Bytes charged for any other body beside its size: the connection's buffers, in use while the body arrives.
const CONNECTION: usize = 32 << 10;
/// When the budget is used up, this fraction of it is cleared at once, so that holders are compared only now and then.
const CLEARED: usize = 16;

/// The minimum speed of a body.
#[derive(Clone, Copy)]
pub struct Pace {
    /// Time from the start for which a body may be slower than `rate`.
    pub grace: Duration,
    /// Bytes per second that must arrive on average after `grace`.
    pub rate: u32,
}

/// A body that has been read, and its reservation in the budget, which lasts as long as the body is in memory.
pub struct Read {
    pub bytes: Bytes,
    pub reservation: Reservation,
}

pub enum ReadError<E> {
    TooLarge,
    TooSlow,
    /// The budget is used up, and the body is among those that occupy the most of it, as it is large or slow.
    BudgetExhausted,
    Broken(E),
}

impl<E> From<Evicted> for ReadError<E> {
    fn from(Evicted: Evicted) -> Self {
        Self::BudgetExhausted
    }
}

/// The bytes that bodies or reviews may hold together. Clones share the bytes.
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

/// The reservation of one body or review in a budget, until it is dropped.
pub struct Reservation {
    since: Instant,
    /// `None` while no bytes are reserved, as for most bodies: so they do not change the reference count of the budget,
    /// which all threads share.
    entry: Option<Entry>,
}

/// The entry of a holder in the budget.
struct Entry {
    budget: Budget,
    id: u64,
    evicted: Arc<Notify>,
}

/// Error of a holder that was evicted: the budget is used up, and the holder is among those that occupy the most of it.
#[derive(Debug)]
pub struct Evicted;

impl Budget {
    pub fn new(total: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            total,
            ..State::default()
        })))
    }

    /// Returns a reservation without bytes. `since`: when the holder began to occupy the budget.
    pub fn reserve(&self, since: Instant) -> Reservation {
        Reservation { since, entry: None }
    }

    /// Changes the bytes of a reservation of this budget.
    pub fn resize(&self, reservation: &mut Reservation, bytes: usize) -> Result<(), Evicted> {
        let mut state = self.0.lock();
        let since = reservation.since;
        let entry = reservation.entry.get_or_insert_with(|| {
            let evicted = Arc::new(Notify::new());
            let id = state.add(Holder {
                bytes: 0,
                since,
                evicted: Arc::clone(&evicted),
            });
            Entry {
                budget: self.clone(),
                id,
                evicted,
            }
        });
        debug_assert!(Arc::ptr_eq(&entry.budget.0, &self.0), "of another budget");
        let holder = state.holders.get_mut(&entry.id).ok_or(Evicted)?;
        let before = std::mem::replace(&mut holder.bytes, bytes);
        state.used = state.used + bytes - before;
        if state.used > state.total {
            state.clear();
        }
        if !state.holders.contains_key(&entry.id) {
            return Err(Evicted);
        }
        Ok(())
    }

    /// Reads at most `limit` bytes of a body that has been arriving since `begun`. The buffer grows as bytes arrive, to at
    /// most twice their number.
    pub async fn read<B>(
        &self,
        mut body: B,
        limit: usize,
        begun: Instant,
        pace: Option<Pace>,
    ) -> Result<Read, ReadError<B::Error>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let hint = body.size_hint();
        if hint.lower() > limit as u64 {
            return Err(ReadError::TooLarge);
        }
        let announced = match hint.upper() {
            Some(upper) => usize::try_from(upper).unwrap_or(limit).min(limit),
            None => limit,
        };
        let mut reservation = self.reserve(begun);
        let mut first = Bytes::new();
        let mut all: Vec<u8> = Vec::new();
        while !body.is_end_stream() {
            let arrived = first.len() + all.len();
            let next = tokio::select! {
                biased;
                // Eviction is polled first. Otherwise a body that always has a frame would be read to its end.
                () = reservation.evicted() => return Err(ReadError::BudgetExhausted),
                next = body.frame() => next,
                () = too_late(begun, arrived, pace) => return Err(ReadError::TooSlow),
            };
            let Some(frame) = next else { break };
            let Ok(data) = frame.map_err(ReadError::Broken)?.into_data() else {
                continue;
            };
            let length = arrived + data.len();
            if length > limit {
                return Err(ReadError::TooLarge);
            }
            if arrived == 0 {
                // Most bodies arrive in one piece, which needs no copy.
                if length > FREE || !body.is_end_stream() {
                    self.resize(&mut reservation, CONNECTION + length)?;
                }
                first = data;
                continue;
            }
            if all.capacity() < length {
                let capacity = length.max((2 * arrived).min(announced)).max(FREE);
                self.resize(&mut reservation, CONNECTION + capacity)?;
                all.reserve_exact(capacity - all.len());
                all.extend_from_slice(&std::mem::take(&mut first));
            }
            all.extend_from_slice(&data);
        }
        let bytes = if all.is_empty() { first } else { all.into() };
        Ok(Read { bytes, reservation })
    }
}

impl Reservation {
    /// Waits until the reservation is evicted in favour of others.
    pub async fn evicted(&self) {
        match &self.entry {
            Some(entry) => entry.evicted.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl State {
    /// Adds a holder, and returns its ID.
    fn add(&mut self, holder: Holder) -> u64 {
        let id = self.next;
        self.next += 1;
        self.holders.insert(id, holder);
        id
    }

    /// Evicts the holders that occupy the most of the budget.
    fn clear(&mut self) {
        let goal = self.total - self.total / CLEARED;
        let now = Instant::now();
        let mut by_occupation = Vec::with_capacity(self.holders.len());
        for (id, holder) in &self.holders {
            let age = now.saturating_duration_since(holder.since);
            let occupied = holder.bytes as u128 * (age.as_micros() + 1);
            by_occupation.push((occupied, *id));
        }
        by_occupation.sort_unstable();
        while self.used > goal
            && let Some((_, id)) = by_occupation.pop()
        {
            if let Some(holder) = self.holders.remove(&id) {
                self.used -= holder.bytes;
                holder.evicted.notify_one();
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Some(entry) = &self.entry else { return };
        let mut state = entry.budget.0.lock();
        if let Some(holder) = state.holders.remove(&entry.id) {
            state.used -= holder.bytes;
        }
    }
}

/// Completes when more than `arrived` bytes should have arrived; never without a pace.
async fn too_late(begun: Instant, arrived: usize, pace: Option<Pace>) {
    let Some(Pace { grace, rate }) = pace else {
        return std::future::pending().await;
    };
    let earned = Duration::from_secs_f64(arrived as f64 / f64::from(rate));
    sleep_until(begun + grace + earned).await;
}

#[cfg(test)]
mod tests;
