//! Work that was done lately, and is not to be repeated so soon.

use std::collections::{HashMap, VecDeque};

use tokio::time::{Duration, Instant};

/// Names of work that was done, each for the same time. If there are too many, the oldest is forgotten first.
pub struct Recently {
    time: Duration,
    capacity: usize,
    done: HashMap<String, Instant>,
    /// All current names, and some that were removed.
    order: VecDeque<(Instant, String)>,
}

impl Recently {
    pub fn new(time: Duration, capacity: usize) -> Self {
        Self { time, capacity, done: HashMap::new(), order: VecDeque::new() }
    }

    pub fn contains(&self, name: &str) -> bool {
        self.done.get(name).is_some_and(|since| since.elapsed() < self.time)
    }

    /// Records the name as done now. Returns whether it was not done lately.
    pub fn insert(&mut self, name: &str) -> bool {
        if self.contains(name) {
            return false;
        }
        let now = Instant::now();
        while let Some((since, oldest)) = self.order.front()
            && (self.order.len() >= self.capacity || since.elapsed() >= self.time)
        {
            if self.done.get(oldest) == Some(since) {
                self.done.remove(oldest);
            }
            self.order.pop_front();
        }
        self.done.insert(name.to_owned(), now);
        self.order.push_back((now, name.to_owned()));
        true
    }

    pub fn remove(&mut self, name: &str) {
        self.done.remove(name);
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
        for name in ["b", "c", "d", "e"] {
            assert!(recently.insert(name));
            assert!(recently.order.len() <= 3 && recently.done.len() <= 3);
        }
        assert!(!recently.contains("a") && recently.contains("e"));
        // What was taken back and done again is not forgotten with its first time.
        recently.remove("e");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(recently.insert("e") && recently.insert("f") && recently.insert("g"));
        assert!(recently.contains("e"));
    }
}
