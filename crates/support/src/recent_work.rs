//! A record of work that was done lately, and should not be repeated so soon.

use std::collections::HashMap;
use std::mem::take;

use tokio::time::{Duration, Instant};

/// The names of work that was done lately, each for the same time. When there are twice as many names as the capacity, the
/// older half is dropped.
pub struct RecentWork {
    time: Duration,
    capacity: usize,
    newer: HashMap<String, Instant>,
    older: HashMap<String, Instant>,
}

impl RecentWork {
    pub fn new(time: Duration, capacity: usize) -> Self {
        Self {
            time,
            capacity,
            newer: HashMap::new(),
            older: HashMap::new(),
        }
    }

    pub fn contains(&self, name: &str) -> bool {
        match self.newer.get(name).or_else(|| self.older.get(name)) {
            Some(done) => done.elapsed() < self.time,
            None => false,
        }
    }

    /// Records the work as done now, unless it was done lately. Returns whether it was recorded.
    pub fn insert(&mut self, name: &str) -> bool {
        if self.contains(name) {
            return false;
        }
        if self.newer.len() >= self.capacity {
            self.older = take(&mut self.newer);
        }
        self.newer.insert(name.to_owned(), Instant::now());
        true
    }

    pub fn remove(&mut self, name: &str) {
        self.newer.remove(name);
        self.older.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn recorded_work_expires_and_is_bounded() {
        let hour = Duration::from_secs(3600);
        let mut recent = RecentWork::new(hour, 3);
        assert!(recent.insert("a"));
        assert!(!recent.insert("a") && recent.contains("a"));
        tokio::time::advance(hour).await;
        assert!(!recent.contains("a") && recent.insert("a"));
        recent.remove("a");
        assert!(recent.insert("a"));
        for name in ["b", "c", "d", "e", "f", "g"] {
            assert!(recent.insert(name));
            assert!(recent.newer.len() <= 3 && recent.older.len() <= 3);
        }
        let last = ["e", "f", "g"];
        assert!(!recent.contains("a") && last.iter().all(|name| recent.contains(name)));
        // Work that was removed and recorded again is not dropped with the older half.
        recent.remove("e");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(recent.insert("e") && recent.insert("h") && recent.insert("i"));
        assert!(recent.contains("e"));
    }
}
