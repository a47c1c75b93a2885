//! Profiles: what differs for the reviews that arrive at `/mutate/<name>`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::Config;
use super::pools::PoolName;
use super::quote::quoted;
use super::reader::{Reader, nearest};
use super::shape::{Map, Shape, Slot, Value, Values, Visit, key, key_as};
use crate::pod::is_label_value;
use crate::policy::{Mode, PlacementRules, Policy, Pool};

/// The label of metrics for paths that name no profile.
pub(crate) const UNKNOWN: &str = "unknown";

/// What differs; what it does not name is as at the top level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Whether decisions are carried out, unless the Pod says it.
    pub mode: Mode,
    /// The names of the pools that it opens.
    pub pools: Vec<String>,
    /// How Pods are steered.
    pub placement: PlacementRules,
    /// Whether a Pod that stays closed says why.
    pub explain: bool,
}

impl Default for Profile {
    fn default() -> Self {
        let Policy { mode, placement, explain, .. } = Config::default().policy;
        Self { mode, pools: Vec::new(), placement, explain }
    }
}

impl Slot for Profile {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key("mode", "enforce or observe", &mut self.mode),
            key_as("pools", "names of the pools that it opens; [] opens none", PoolNames(&mut self.pools)),
            key("placement", "merged key by key", &mut self.placement),
            key("explain", "whether a Pod that stays closed says why", &mut self.explain),
        ])
    }
}

struct PoolNames<'a>(&'a mut Vec<String>);

impl Slot for PoolNames<'_> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Values(self)
    }
}

impl Values for PoolNames<'_> {
    fn blank(&self) -> Box<dyn Value> {
        Box::new(AnyPool)
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn add(&mut self, text: &str) -> bool {
        let read = AnyPool.read(text);
        self.0.extend(read.then(|| text.to_owned()));
        read
    }

    fn written(&self) -> Vec<Json> {
        self.0.iter().map(|name| json!(name)).collect()
    }
}

/// What an item of theirs may be.
struct AnyPool;

impl Value for AnyPool {
    fn expected(&self) -> Cow<'static, str> {
        PoolName(&mut String::new()).expected()
    }

    fn schema(&self) -> Json {
        PoolName(&mut String::new()).schema()
    }

    fn read(&mut self, text: &str) -> bool {
        PoolName(&mut String::new()).read(text)
    }

    fn written(&self) -> Json {
        Json::Null
    }
}

impl Slot for BTreeMap<String, Profile> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Map(self)
    }
}

impl Map for BTreeMap<String, Profile> {
    fn key(&self) -> (&'static str, &'static str) {
        ("profile", "batch")
    }

    fn normal(&self, name: &str) -> String {
        name.to_owned()
    }

    fn blank(&self, visit: Visit<'_>) {
        visit(&mut Profile::default());
    }

    fn add(&mut self, name: &str, fill: Visit<'_>) -> Result<(), String> {
        if name.is_empty() || !is_label_value(name) {
            return Err("a profile is chosen by a label of namespaces: its name has at most 63 letters, digits, - _ . and \
                        begins and ends with a letter or digit"
                .to_owned());
        }
        if name == UNKNOWN {
            return Err("metrics call profiles that do not exist so; choose another name".to_owned());
        }
        let mut profile = Profile::default();
        fill(&mut profile);
        self.insert(name.to_owned(), profile);
        Ok(())
    }

    fn each(&mut self, visit: &mut dyn FnMut(&str, &mut dyn Slot)) {
        for (name, profile) in self {
            visit(name, profile);
        }
    }
}

/// Gives profiles what they do not say themselves, once all has been read.
pub(super) fn inherit(config: &mut Config, reader: &mut Reader) {
    let Policy { mode, pools, placement, explain, .. } = &config.policy;
    let names: Vec<String> = pools.iter().map(|pool| pool.name.clone()).collect();
    for (name, own) in &mut config.profiles {
        let path = |key: &str| format!("profiles[{}].{key}", quoted(name));
        let says = |key: &str| reader.places.contains_key(&path(key));
        let PlacementRules { require, platforms, when_unknown, prefer, pod_labels } = placement.clone();
        let steered = &mut own.placement;
        if !says("mode") {
            own.mode = *mode;
        }
        if !says("explain") {
            own.explain = *explain;
        }
        if !says("placement.require") {
            steered.require = require;
        }
        if !says("placement.platforms") {
            steered.platforms = platforms;
        }
        if !says("placement.whenUnknown") {
            steered.when_unknown = when_unknown;
        }
        if !says("placement.prefer") {
            steered.prefer = prefer;
        }
        if !says("placement.podLabels") {
            steered.pod_labels = pod_labels;
        }
        if !says("pools") {
            own.pools.clone_from(&names);
        }
        let strange = own.pools.iter().find(|pool| !names.contains(pool));
        if let Some((strange, place)) = strange.zip(reader.places.get(&path("pools")).cloned()) {
            let hint = nearest(strange, names.iter().map(String::as_str));
            reader.fault_at(&path("pools"), place, format!("there is no pool {}; {hint}", quoted(strange)));
        }
    }
}

impl Config {
    /// What decides over Pods by each profile.
    pub fn policies(&self) -> BTreeMap<String, Policy> {
        let of = |profile: &Profile| {
            let Profile { mode, placement, explain, .. } = profile.clone();
            let opens = |pool: &&Pool| profile.pools.contains(&pool.name);
            let pools = self.policy.pools.iter().filter(opens).cloned().collect();
            Policy { mode, pools, placement, explain, ..self.policy.clone() }
        };
        self.profiles.iter().map(|(name, profile)| (name.clone(), of(profile))).collect()
    }
}
