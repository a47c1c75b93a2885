//! A part of an object, and the way to it: as people write it, as patches do, and found by what it is like.

use std::collections::HashMap;

use tolerarch_text::yaml::{Data, Node};

pub(super) struct Part<'n> {
    pub(super) node: &'n Node,
    way: Vec<Step<'n>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'n> {
    Member(&'n str),
    Item(usize),
}

impl<'n> Part<'n> {
    pub(super) fn whole(node: &'n Node) -> Self {
        Self { node, way: Vec::new() }
    }

    pub(super) fn pointer(&self) -> String {
        let step = |step: &Step<'_>| match step {
            Step::Member(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            Step::Item(at) => format!("/{at}"),
        };
        self.way.iter().map(step).collect()
    }

    /// As people write it: `.spec.tasks[0].template`.
    pub(super) fn path(&self) -> String {
        let step = |step: &Step<'_>| match step {
            Step::Member(name) if name.contains(['.', '/']) => format!("[{name:?}]"),
            Step::Member(name) => format!(".{name}"),
            Step::Item(at) => format!("[{at}]"),
        };
        self.way.iter().map(step).collect()
    }

    /// Whether it stands in one of the containers of this template.
    pub(super) fn is_run_by(&self, template: &Self) -> bool {
        let Some(rest) = self.way.strip_prefix(&*template.way) else { return false };
        let rest = rest.strip_prefix(&[Step::Member("spec")]).unwrap_or(rest);
        matches!(rest, [Step::Member("containers" | "initContainers" | "ephemeralContainers"), ..])
    }

    /// All parts of it that are like this, by themselves and the way to them. One that is found is not looked into.
    pub(super) fn within(&self, is_it: &impl Fn(&Node, &[Step<'_>]) -> bool) -> Vec<Self> {
        let mut found = Vec::new();
        collect(self.node, &mut self.way.clone(), is_it, &mut found);
        found
    }
}

fn collect<'n>(
    node: &'n Node,
    way: &mut Vec<Step<'n>>,
    is_it: &impl Fn(&Node, &[Step<'_>]) -> bool,
    found: &mut Vec<Part<'n>>,
) {
    if is_it(node, way) {
        found.push(Part { node, way: way.clone() });
        return;
    }
    let mut go = |step: Step<'n>, node: &'n Node| {
        way.push(step);
        collect(node, way, is_it, found);
        way.pop();
    };
    match &node.data {
        Data::Map(members) => {
            // The last of equal keys counts.
            let last: HashMap<&str, usize> =
                members.iter().enumerate().map(|(at, (key, _))| (&*key.text, at)).collect();
            for (at, (key, member)) in members.iter().enumerate() {
                if last.get(&*key.text) == Some(&at) {
                    go(Step::Member(&key.text), member);
                }
            }
        }
        Data::List(items) => items.iter().enumerate().for_each(|(at, item)| go(Step::Item(at), item)),
        _ => {}
    }
}
