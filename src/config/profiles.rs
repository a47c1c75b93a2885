//! Profiles: settings for reviews at `/mutate/<name>`, which override those of the top level.

use std::collections::{BTreeMap, BTreeSet};

use super::Config;
use super::reader::{Reader, nearest, quoted};
use super::shape::{Describe, Description, NameRules, NamedEntry, key};
use super::values::pool_name;
use tolerarch_core::pod::is_label_value;
use tolerarch_core::policy::{Mode, PlacementRules, Policy, Pool, UNKNOWN_PROFILE};
use tolerarch_text::yaml::Node;

/// Settings of a profile. Keys that the profile does not set have the values of the top level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Mode, which a Pod can override.
    pub mode: Mode,
    pub pools: Vec<String>,
    /// True if the profile also opens the discovered pools: if it names no pools and NodePools are discovered.
    pub opens_discovered: bool,
    pub placement: PlacementRules,
    pub explain: bool,
}

impl Describe for Profile {
    fn describe(&mut self) -> Description<'_> {
        Description::section(vec![
            key("mode", &mut self.mode).means("enforce or observe"),
            key("pools", pool_name().list(&mut self.pools))
                .means("names of the pools that it opens; []: none"),
            key("placement", &mut self.placement).means("keys that differ from the top level"),
            key("explain", &mut self.explain)
                .means("whether a Pod that no pool is opened to says why"),
        ])
    }
}

impl NamedEntry for Profile {
    const NAME_RULES: NameRules = NameRules {
        what: "profile",
        example: "batch",
        fault: "a profile is chosen by a label of namespaces: its name has at most 63 letters, digits, - _ . and begins \
                and ends with a letter or digit; it is not unknown, which in metrics stands for profiles that do not exist",
        read: |name| {
            let is_valid = !name.is_empty() && is_label_value(name) && name != UNKNOWN_PROFILE;
            is_valid.then(|| name.to_owned())
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

/// Reads the profiles again with the settings of the top level as their defaults. Called when environment and flags have
/// been applied, so that these settings are complete.
pub(super) fn inherit(config: &mut Config, document: Option<&Node>, reader: &mut Reader) {
    let top = Profile::of(config);
    let configured: BTreeSet<&str> = top.pools.iter().map(String::as_str).collect();
    // A profile that names its pools does not need a copy of all pools.
    let without_pools = Profile {
        pools: Vec::new(),
        ..top.clone()
    };
    for (name, profile) in &mut config.profiles {
        let path = format!("profiles[{name:?}].pools");
        let location = reader.locations.get(&path).cloned();
        *profile = if location.is_some() {
            without_pools.clone()
        } else {
            top.clone()
        };
        if let Some(node) = document.and_then(|document| document.at(&["profiles", name])) {
            // The first reading has already reported the faults of the profile.
            Reader::default().fill(node, profile.describe());
        }
        let Some(location) = location else { continue };
        profile.opens_discovered = false;
        // With discovery, a pool that is not configured may be in the cluster.
        let is_unknown =
            |pool: &&String| !top.opens_discovered && !configured.contains(pool.as_str());
        for unknown in profile.pools.iter().filter(is_unknown) {
            let hint = nearest(unknown, top.pools.iter().map(String::as_str));
            reader.fault_at(
                &path,
                location.clone(),
                format!("there is no pool {}; {hint}", quoted(unknown)),
            );
        }
    }
}

impl Config {
    /// Returns the policy of each profile. `top` is the default policy, whose pools may include discovered ones.
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
