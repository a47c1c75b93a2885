//! What is read of the cluster, and who relies on it.

use super::quote::quoted;
use super::reader::Reader;
use super::shape::{Shape, Slot, key};
use super::{Config, Discover};

impl Slot for Discover {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key(
                "nodePools",
                "Karpenter's NodePools: takes the right to get, list and watch nodepools",
                &mut self.node_pools,
            )
            .at_start(),
            key("nodes", "the nodes: takes the right to get, list and watch nodes", &mut self.nodes)
                .at_start(),
        ])
    }
}

/// Finds what relies on discovery although it is off, once all has been read.
pub(super) fn check(config: &Config, reader: &mut Reader) {
    if config.discover.is_on() {
        return;
    }
    let profiles = config.profiles.iter().map(|(name, profile)| {
        (format!("profiles[{}].placement.platforms", quoted(name)), &profile.placement)
    });
    let top = ("placement.platforms".to_owned(), &config.policy.placement);
    for (path, rules) in std::iter::once(top).chain(profiles) {
        if let Some(place) = reader.places.get(&path).cloned().filter(|_| rules.discovered) {
            reader.fault_at(&path, place, "discovered needs `discover`, which is off".to_owned());
        }
    }
}
