//! Work that was done lately, and is not to be repeated so soon.

use std::collections::HashMap;
use std::mem::take;

use tokio::time::{Duration, Instant};

/// Names of work that was done, each for the same time. There are up to twice as many as the capacity, of which the older
/// half is then forgotten.
pub struct Recently {
    time: Duration,
    capacity: usize,
    newer: HashMap<String, Instant>,
    older: HashMap<String, Instant>,
}

impl Recently {
    pub fn new(time: Duration, capacity: usize) -> Self {
        Self {
            time,
            capacity,
            newer: HashMap::new(),
            older: HashMap::new(),
        }
    }

    pub fn contains(&self, name: &str) -> bool {
        let done = self.newer.get(name).or_else(|| self.older.get(name));
        done.is_some_and(|since| since.elapsed() < self.time)
    }

    /// Records the name as done now. Returns whether it was not done lately.
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
    async fn what_was_done_is_known_for_a_time_and_bounded() {
        let hour = Duration::from_secs(3600);
        let mut recently = Recently::new(hour, 3);
        assert!(recently.insert("a"));
        assert!(!recently.insert("a") && recently.contains("a"));
        tokio::time::advance(hour).await;
        assert!(!recently.contains("a") && recently.insert("a"));
        recently.remove("a");
        assert!(recently.insert("a"));
        for name in ["b", "c", "d", "e", "f", "g"] {
            assert!(recently.insert(name));
            assert!(recently.newer.len() <= 3 && recently.older.len() <= 3);
        }
        let last = ["e", "f", "g"];
        assert!(!recently.contains("a") && last.iter().all(|name| recently.contains(name)));
        // What was taken back and done again is not forgotten with its first time.
        recently.remove("e");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(recently.insert("e") && recently.insert("h") && recently.insert("i"));
        assert!(recently.contains("e"));
    }
}
