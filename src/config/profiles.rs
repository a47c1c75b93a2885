//! Profiles: what differs for the reviews that arrive at `/mutate/<name>`.

use std::collections::{BTreeMap, HashMap};

use super::Config;
use super::reader::{Reader, nearest, quoted};
use super::shape::{Named, Shape, Slot, key, key_as, values};
use super::values::pool_name;
use tolerarch_core::pod::is_label_value;
use tolerarch_core::policy::{Mode, PlacementRules, Policy, Pool, UNKNOWN_PROFILE};

/// What differs; what it does not name is as at the top level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Whether decisions are carried out, unless the Pod says it.
    pub mode: Mode,
    pub pools: Vec<String>,
    /// Whether it also opens those that are found in the cluster: it names none itself.
    pub opens_found: bool,
    pub placement: PlacementRules,
    pub explain: bool,
}

impl Default for Profile {
    fn default() -> Self {
        let Policy { mode, placement, explain, .. } = Config::default().policy;
        Self { mode, pools: Vec::new(), opens_found: false, placement, explain }
    }
}

impl Slot for Profile {
    fn shape(&mut self) -> Shape<'_> {
        Shape::section(vec![
            key("mode", &mut self.mode).means("enforce or observe"),
            key_as("pools", pool_name().set(&mut self.pools))
                .means("names of the pools that it opens; [] opens none"),
            key("placement", &mut self.placement).means("merged key by key"),
            key("explain", &mut self.explain).means("whether a Pod that stays closed says why"),
        ])
    }
}

impl Named for Profile {
    const KEY: (&'static str, &'static str) = ("profile", "batch");

    fn check(name: &str) -> Result<(), String> {
        if name.is_empty() || !is_label_value(name) {
            return Err("a profile is chosen by a label of namespaces: its name has at most 63 letters, digits, - _ . and \
                        begins and ends with a letter or digit"
                .to_owned());
        }
        if name == UNKNOWN_PROFILE {
            return Err("metrics call profiles that do not exist so; choose another name".to_owned());
        }
        Ok(())
    }
}

/// Gives profiles what they do not say themselves, once all has been read.
pub(super) fn inherit(config: &mut Config, reader: &mut Reader) {
    let Policy { mode, pools, placement, explain, .. } = &config.policy;
    let names: Vec<String> = pools.iter().map(|pool| pool.name.clone()).collect();
    for (name, own) in &mut config.profiles {
        let path = |key: &str| format!("profiles[{}].{key}", quoted(name));
        let says = |key: &str| reader.places.contains_key(&path(key));
        let mut said = HashMap::new();
        values(own.shape(), "", &mut |at, _, value| {
            said.extend(says(at).then(|| (at.to_owned(), value.written())));
        });
        let mut placement = placement.clone();
        if says("placement.prefer") {
            placement.prefer = std::mem::take(&mut own.placement.prefer);
        }
        let opens_found = config.discover.node_pools && !says("pools");
        *own = Profile { mode: *mode, pools: names.clone(), opens_found, placement, explain: *explain };
        values(own.shape(), "", &mut |at, _, value| {
            if let Some(written) = said.get(at) {
                value.set(written);
            }
        });
        // Others may be found in the cluster.
        if config.discover.node_pools {
            continue;
        }
        let strange = own.pools.iter().find(|pool| !names.contains(pool));
        if let Some((strange, place)) = strange.zip(reader.places.get(&path("pools")).cloned()) {
            let hint = nearest(strange, names.iter().map(String::as_str));
            reader.fault_at(&path("pools"), place, format!("there is no pool {}; {hint}", quoted(strange)));
        }
    }
}

impl Config {
    /// What decides by each profile where this does by default, which may have pools that were found in the cluster.
    pub fn policies(&self, top: &Policy) -> BTreeMap<String, Policy> {
        let is_found = |name: &String| !self.policy.pools.iter().any(|pool| pool.name == *name);
        let of = |profile: &Profile| {
            let Profile { mode, placement, explain, .. } = profile.clone();
            let opens = |pool: &&Pool| {
                profile.pools.contains(&pool.name) || profile.opens_found && is_found(&pool.name)
            };
            let pools = top.pools.iter().filter(opens).cloned().collect();
            Policy { mode, pools, placement, explain, ..top.clone() }
        };
        self.profiles.iter().map(|(name, profile)| (name.clone(), of(profile))).collect()
    }
}
