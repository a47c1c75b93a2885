//! Bounded queue that namespaces share in turns. A full queue drops items of the namespace with the most.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

pub(super) struct FairQueue<T> {
    capacity: usize,
    /// Queued items by namespace; no list is empty.
    of: BTreeMap<String, VecDeque<T>>,
    /// Namespace that had its turn last; the next turn has the one behind it in the alphabet.
    last: String,
}

impl<T> FairQueue<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            of: BTreeMap::new(),
            last: String::new(),
        }
    }

    /// Appends an item. Returns the item that had no room, which may be this one.
    pub(super) fn push(&mut self, namespace: &str, item: T) -> Option<T> {
        let mut lost = None;
        if self.of.values().map(VecDeque::len).sum::<usize>() >= self.capacity {
            let own = self.of.get(namespace).map_or(0, VecDeque::len);
            let largest = self.of.values_mut().max_by_key(|waiting| waiting.len());
            match largest {
                Some(waiting) if waiting.len() > own + 1 => lost = waiting.pop_back(),
                _ => return Some(item),
            }
        }
        let waiting = self.of.entry(namespace.to_owned()).or_default();
        waiting.push_back(item);
        lost
    }

    #[cfg(test)]
    pub(super) fn count(&self, namespace: &str) -> usize {
        self.of.get(namespace).map_or(0, VecDeque::len)
    }

    /// Returns whether an item waits of a namespace for which this is true.
    pub(super) fn has_any(&self, may: impl Fn(&str) -> bool) -> bool {
        self.of.keys().any(|namespace| may(namespace))
    }

    /// Keeps the items for which this is true.
    pub(super) fn retain(&mut self, mut is_kept: impl FnMut(&T) -> bool) {
        self.of.retain(|_, waiting| {
            waiting.retain(&mut is_kept);
            !waiting.is_empty()
        });
    }

    /// Removes and returns the next item, of the namespace whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.pop_of(|_| true)
    }

    /// Removes and returns the next item of those namespaces for which this is true.
    pub(super) fn pop_of(&mut self, may: impl Fn(&str) -> bool) -> Option<T> {
        let behind = self.of.range::<str, _>((Excluded(&*self.last), Unbounded));
        let mut in_turn = behind.chain(&self.of).map(|(namespace, _)| namespace);
        self.last = in_turn.find(|namespace| may(namespace))?.clone();
        let waiting = self.of.get_mut(&self.last)?;
        let item = waiting.pop_front();
        if waiting.is_empty() {
            self.of.remove(&self.last);
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
        for (namespace, item) in [
            ("a", "a1"),
            ("a", "a2"),
            ("a", "a3"),
            ("b", "b1"),
            ("c", "c1"),
            ("b", "b2"),
        ] {
            assert_eq!(queue.push(namespace, item), None);
        }
        assert_eq!(all(&mut queue), ["a1", "b1", "c1", "a2", "b2", "a3"]);
        assert_eq!(queue.push("a", "a1"), None);
        assert_eq!(all(&mut queue), ["a1"]);
        assert!(queue.of.is_empty());
    }

    #[test]
    fn one_that_floods_takes_no_place_of_others() {
        let mut queue = FairQueue::new(3);
        for item in ["a1", "a2", "a3"] {
            assert_eq!(queue.push("a", item), None);
        }
        assert_eq!(queue.push("a", "a4"), Some("a4"));
        assert_eq!(queue.push("b", "b1"), Some("a3"));
        assert_eq!(
            queue.push("b", "b2"),
            Some("b2"),
            "both would have their share"
        );
        assert_eq!(queue.push("c", "c1"), Some("a2"));
        assert_eq!(queue.push("d", "d1"), Some("d1"), "all have one");
        assert_eq!(all(&mut queue), ["a1", "b1", "c1"]);
        assert_eq!(queue.push("d", "d1"), None);
    }

    #[test]
    fn a_namespace_that_may_not_is_passed_over() {
        let mut queue = FairQueue::new(10);
        for (namespace, item) in [("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c1")] {
            assert_eq!(queue.push(namespace, item), None);
        }
        assert_eq!(queue.pop(), Some("a1"));
        let may = |namespace: &str| namespace != "b";
        assert!(queue.has_any(may));
        assert_eq!(
            [queue.pop_of(may), queue.pop_of(may), queue.pop_of(may)],
            [Some("c1"), Some("a2"), None]
        );
        assert!(!queue.has_any(may));
        assert_eq!(all(&mut queue), ["b1"]);
    }

    #[test]
    fn what_is_not_kept_leaves_its_place() {
        let mut queue = FairQueue::new(3);
        for (namespace, item) in [("a", "a1"), ("a", "a2"), ("b", "b1")] {
            assert_eq!(queue.push(namespace, item), None);
        }
        queue.retain(|item| *item == "a2");
        assert_eq!(queue.of.len(), 1);
        assert_eq!((queue.push("c", "c1"), queue.push("c", "c2")), (None, None));
        assert_eq!(all(&mut queue), ["a2", "c1", "c2"]);
    }
}
