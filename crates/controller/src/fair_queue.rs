//! A bounded queue that namespaces share: each gets its turn, and where there is no room, those lose that wait with most.

use std::collections::{HashMap, VecDeque};

/// What waits, by namespace.
pub(super) struct FairQueue<T> {
    capacity: usize,
    length: usize,
    /// None is empty.
    of: HashMap<String, VecDeque<T>>,
    /// The namespaces of these, in the order of their turns.
    turns: VecDeque<String>,
}

impl<T> FairQueue<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, length: 0, of: HashMap::new(), turns: VecDeque::new() }
    }

    /// Appends this. Returns what had no room, which may be this one.
    pub(super) fn push(&mut self, namespace: &str, item: T) -> Option<T> {
        let mut lost = None;
        if self.length >= self.capacity {
            let own = self.of.get(namespace).map_or(0, VecDeque::len);
            let most = self.of.iter().max_by_key(|(_, waiting)| waiting.len());
            let Some((most, _)) = most.filter(|(_, waiting)| waiting.len() > own + 1) else {
                return Some(item);
            };
            let most = most.clone();
            lost = self.of.get_mut(&most).and_then(VecDeque::pop_back);
            self.length -= 1;
        }
        self.length += 1;
        match self.of.get_mut(namespace) {
            Some(waiting) => waiting.push_back(item),
            None => {
                self.of.insert(namespace.to_owned(), VecDeque::from([item]));
                self.turns.push_back(namespace.to_owned());
            }
        }
        lost
    }

    /// The next one, of the namespace whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let namespace = self.turns.pop_front()?;
        let waiting = self.of.get_mut(&namespace)?;
        let item = waiting.pop_front();
        self.length -= usize::from(item.is_some());
        if waiting.is_empty() {
            self.of.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(queue: &mut FairQueue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn each_namespace_gets_its_turn() {
        let mut queue = FairQueue::new(10);
        for (namespace, item) in
            [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1"), ("b", "b2")]
        {
            assert_eq!(queue.push(namespace, item), None);
        }
        assert_eq!(all(&mut queue), ["a1", "b1", "c1", "a2", "b2", "a3"]);
        assert_eq!(queue.push("a", "a1"), None);
        assert_eq!(all(&mut queue), ["a1"]);
        assert!(queue.of.is_empty() && queue.length == 0);
    }

    #[test]
    fn one_that_floods_takes_no_place_of_others() {
        let mut queue = FairQueue::new(3);
        for item in ["a1", "a2", "a3"] {
            assert_eq!(queue.push("a", item), None);
        }
        assert_eq!(queue.push("a", "a4"), Some("a4"));
        assert_eq!(queue.push("b", "b1"), Some("a3"));
        assert_eq!(queue.push("b", "b2"), Some("b2"), "both would have their share");
        assert_eq!(queue.push("c", "c1"), Some("a2"));
        assert_eq!(queue.push("d", "d1"), Some("d1"), "all have one");
        assert_eq!(all(&mut queue), ["a1", "b1", "c1"]);
        assert_eq!(queue.push("d", "d1"), None);
    }
}
