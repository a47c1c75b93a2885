//! Profiles: settings for the reviews that arrive at `/mutate/<name>`, over those of the top level.

use std::collections::{BTreeMap, BTreeSet};

use super::Config;
use super::reader::{Reader, nearest, quoted};
use super::shape::{Named, Names, Shape, Slot, key};
use super::values::pool_name;
use tolerarch_core::pod::is_label_value;
use tolerarch_core::policy::{Mode, PlacementRules, Policy, Pool, UNKNOWN_PROFILE};
use tolerarch_text::yaml::Node;

/// Settings of a profile; keys that the profile leaves out have the values of the top level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Mode, which a Pod can override.
    pub mode: Mode,
    pub pools: Vec<String>,
    /// True if the profile names no pools and NodePools are discovered: then it also opens the discovered pools.
    pub opens_discovered: bool,
    pub placement: PlacementRules,
    pub explain: bool,
}

impl Slot for Profile {
    fn shape(&mut self) -> Shape<'_> {
        Shape::section(vec![
            key("mode", &mut self.mode).means("enforce or observe"),
            key("pools", pool_name().list(&mut self.pools))
                .means("names of the pools that it opens; [] opens none"),
            key("placement", &mut self.placement).means("merged key by key"),
            key("explain", &mut self.explain).means("whether a Pod that stays closed says why"),
        ])
    }
}

impl Named for Profile {
    const NAMES: Names = Names {
        what: "profile",
        example: "batch",
        fault: "a profile is chosen by a label of namespaces: its name has at most 63 letters, digits, - _ . and begins \
                and ends with a letter or digit; it is not unknown, which metrics call profiles that do not exist",
        read: |name| {
            let is_one = !name.is_empty() && is_label_value(name) && name != UNKNOWN_PROFILE;
            is_one.then(|| name.to_owned())
        },
    };
}

impl Profile {
    /// Returns the settings of the top level as a profile.
    fn of(config: &Config) -> Self {
        let Policy {
            mode,
            pools,
            placement,
            explain,
            ..
        } = config.policy.clone();
        let pools = pools.into_iter().map(|pool| pool.name).collect();
        Self {
            mode,
            pools,
            opens_discovered: config.discover.node_pools,
            placement,
            explain,
        }
    }
}

/// Reads the profiles again, over the top level, whose settings are complete once environment and flags are applied.
pub(super) fn inherit(config: &mut Config, document: Option<&Node>, reader: &mut Reader) {
    let top = Profile::of(config);
    let known: BTreeSet<&str> = top.pools.iter().map(String::as_str).collect();
    // A profile that names its pools takes no copy of all others.
    let without_pools = Profile {
        pools: Vec::new(),
        ..top.clone()
    };
    for (name, profile) in &mut config.profiles {
        let path = format!("profiles[{name:?}].pools");
        let place = reader.places.get(&path).cloned();
        *profile = if place.is_some() {
            without_pools.clone()
        } else {
            top.clone()
        };
        if let Some(node) = document.and_then(|document| document.at(&["profiles", name])) {
            // The first reading has reported the faults of the profile.
            Reader::default().fill(node, profile.shape());
        }
        let Some(place) = place else { continue };
        profile.opens_discovered = false;
        // With discovery, a pool that is not configured may be in the cluster.
        let is_unknown = |pool: &&String| !top.opens_discovered && !known.contains(pool.as_str());
        for unknown in profile.pools.iter().filter(is_unknown) {
            let hint = nearest(unknown, top.pools.iter().map(String::as_str));
            reader.fault_at(
                &path,
                place.clone(),
                format!("there is no pool {}; {hint}", quoted(unknown)),
            );
        }
    }
}

impl Config {
    /// Returns the policy of each profile over `top`, the default policy, whose pools may include discovered ones.
    pub fn policies(&self, top: &Policy) -> BTreeMap<String, Policy> {
        let is_discovered =
            |name: &String| !self.policy.pools.iter().any(|pool| pool.name == *name);
        let of = |profile: &Profile| {
            let Profile {
                mode,
                placement,
                explain,
                ..
            } = profile.clone();
            let opens = |pool: &&Pool| {
                profile.pools.contains(&pool.name)
                    || profile.opens_discovered && is_discovered(&pool.name)
            };
            let pools = top.pools.iter().filter(opens).cloned().collect();
            Policy {
                mode,
                pools,
                placement,
                explain,
                ..top.clone()
            }
        };
        self.profiles
            .iter()
            .map(|(name, profile)| (name.clone(), of(profile)))
            .collect()
    }
}
