//! Part of an object and its path, which can be written as users write it or as a JSON pointer.

use std::collections::HashMap;

use tolerarch_text::yaml::{Data, Node};

#[derive(Clone)]
pub(super) struct Part<'n> {
    pub(super) node: &'n Node,
    steps: Vec<Step<'n>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'n> {
    Member(&'n str),
    Item(usize),
}

impl<'n> Part<'n> {
    pub(super) fn whole(node: &'n Node) -> Self {
        Self {
            node,
            steps: Vec::new(),
        }
    }

    pub(super) fn pointer(&self) -> String {
        let step = |step: &Step<'_>| match step {
            Step::Member(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            Step::Item(at) => format!("/{at}"),
        };
        self.steps.iter().map(step).collect()
    }

    /// Returns the path as users write it: `.spec.tasks[0].template`.
    pub(super) fn path(&self) -> String {
        let step = |step: &Step<'_>| match step {
            Step::Member(name) if name.contains(['.', '/']) => format!("[{name:?}]"),
            Step::Member(name) => format!(".{name}"),
            Step::Item(at) => format!("[{at}]"),
        };
        self.steps.iter().map(step).collect()
    }

    /// Returns whether the part is inside a container of this template.
    pub(super) fn is_run_by(&self, template: &Self) -> bool {
        let Some(rest) = self.steps.strip_prefix(&*template.steps) else {
            return false;
        };
        let rest = rest.strip_prefix(&[Step::Member("spec")]).unwrap_or(rest);
        matches!(
            rest,
            [
                Step::Member("containers" | "initContainers" | "ephemeralContainers"),
                ..
            ]
        )
    }

    /// Returns the outermost parts that `is_match` accepts by their nodes and paths.
    pub(super) fn within(self, is_match: &impl Fn(&Node, &[Step<'_>]) -> bool) -> Vec<Self> {
        if is_match(self.node, &self.steps) {
            return vec![self];
        }
        let below = |step, node| {
            let steps = [&*self.steps, &[step]].concat();
            Part { node, steps }.within(is_match)
        };
        match &self.node.data {
            Data::Map(members) => {
                // The last of equal keys counts.
                let numbered = || members.iter().enumerate();
                let last: HashMap<&str, usize> =
                    numbered().map(|(at, (key, _))| (&*key.text, at)).collect();
                let mut parts = Vec::new();
                for (at, (key, member)) in numbered() {
                    if last.get(&*key.text) == Some(&at) {
                        parts.extend(below(Step::Member(&key.text), member));
                    }
                }
                parts
            }
            Data::List(items) => {
                let items = items.iter().enumerate();
                items
                    .flat_map(|(at, item)| below(Step::Item(at), item))
                    .collect()
            }
            _ => Vec::new(),
        }
    }
}
