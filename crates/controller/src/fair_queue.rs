//! Bounded queue of items by namespace. Namespaces take turns; a full queue drops items of the namespace with the most.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

pub(super) struct FairQueue<T> {
    capacity: usize,
    /// Queued items by namespace; no list is empty.
    by_namespace: BTreeMap<String, VecDeque<T>>,
    /// Namespace that had its turn last. The alphabetically following one is next.
    last: String,
}

impl<T> FairQueue<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            by_namespace: BTreeMap::new(),
            last: String::new(),
        }
    }

    /// Appends an item. Returns the item that had to be dropped, which may be this one.
    pub(super) fn push(&mut self, namespace: &str, item: T) -> Option<T> {
        let mut dropped = None;
        if self.len() >= self.capacity {
            let count = self.count(namespace);
            let queues = self.by_namespace.values_mut();
            match queues.max_by_key(|queue| queue.len()) {
                Some(largest) if largest.len() > count + 1 => dropped = largest.pop_back(),
                _ => return Some(item),
            }
        }
        let queue = self.by_namespace.entry(namespace.to_owned());
        queue.or_default().push_back(item);
        dropped
    }

    fn len(&self) -> usize {
        self.by_namespace.values().map(VecDeque::len).sum()
    }

    pub(super) fn count(&self, namespace: &str) -> usize {
        match self.by_namespace.get(namespace) {
            Some(queue) => queue.len(),
            None => 0,
        }
    }

    /// Returns whether there is an item of a namespace that `accepts`.
    pub(super) fn has_any(&self, accepts: impl Fn(&str) -> bool) -> bool {
        self.by_namespace.keys().any(|namespace| accepts(namespace))
    }

    /// Removes the items for which `is_kept` is false.
    pub(super) fn retain(&mut self, mut is_kept: impl FnMut(&T) -> bool) {
        self.by_namespace.retain(|_, queue| {
            queue.retain(&mut is_kept);
            !queue.is_empty()
        });
    }

    /// Removes and returns the next item of the namespace whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.pop_of(|_| true)
    }

    /// Removes and returns the next item of those namespaces that `accepts`.
    pub(super) fn pop_of(&mut self, accepts: impl Fn(&str) -> bool) -> Option<T> {
        let after_last = (Excluded(self.last.as_str()), Unbounded);
        let following = self.by_namespace.range::<str, _>(after_last);
        let mut in_turn = following.chain(&self.by_namespace);
        let (next, _) = in_turn.find(|(namespace, _)| accepts(namespace))?;
        self.last = next.clone();
        let queue = self.by_namespace.get_mut(&self.last)?;
        let item = queue.pop_front();
        if queue.is_empty() {
            self.by_namespace.remove(&self.last);
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
    fn namespaces_take_turns() {
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
        assert!(queue.by_namespace.is_empty());
    }

    #[test]
    fn full_queue_drops_items_of_the_largest_namespace() {
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
    fn namespace_that_is_not_accepted_is_skipped() {
        let mut queue = FairQueue::new(10);
        for (namespace, item) in [("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c1")] {
            assert_eq!(queue.push(namespace, item), None);
        }
        assert_eq!(queue.pop(), Some("a1"));
        let accepts = |namespace: &str| namespace != "b";
        assert!(queue.has_any(accepts));
        for expected in [Some("c1"), Some("a2"), None] {
            assert_eq!(queue.pop_of(accepts), expected);
        }
        assert!(!queue.has_any(accepts));
        assert_eq!(all(&mut queue), ["b1"]);
    }

    #[test]
    fn removed_items_leave_room_for_others() {
        let mut queue = FairQueue::new(3);
        for (namespace, item) in [("a", "a1"), ("a", "a2"), ("b", "b1")] {
            assert_eq!(queue.push(namespace, item), None);
        }
        queue.retain(|item| *item == "a2");
        assert_eq!(queue.by_namespace.len(), 1);
        assert_eq!((queue.push("c", "c1"), queue.push("c", "c2")), (None, None));
        assert_eq!(all(&mut queue), ["a2", "c1", "c2"]);
    }
}
