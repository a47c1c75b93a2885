//! Values for tests of several modules.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails at once"
)]

use serde_json::Value;

use crate::image::PlatformSet;
use crate::pod::{Text, Toleration};
use crate::policy::{
    Mode, Override, PlacementRules, Policy, Pool, PoolPreference, Preference, Require,
};

/// The set of these platforms of nodes.
pub fn platforms(names: &[&str]) -> PlatformSet {
    names.iter().fold(PlatformSet::EMPTY, |set, name| {
        set.union(name.parse().unwrap())
    })
}

/// A toleration of a pool.
pub fn toleration(value: &Value) -> Toleration<'static> {
    let text = |name: &str| Text::from(value[name].as_str().unwrap_or_default().to_owned());
    Toleration {
        key: text("key"),
        operator: text("operator"),
        value: text("value"),
        effect: text("effect"),
        toleration_seconds: value["tolerationSeconds"].as_i64(),
    }
}

/// The default policy, changed by these keys of the configuration.
pub fn policy(keys: &Value) -> Policy {
    let mut policy = Policy::default();
    for (key, value) in keys.as_object().unwrap() {
        match key.as_str() {
            "pools" => policy.pools = value.as_array().unwrap().iter().map(pool).collect(),
            "placement" => policy.placement = placement(value),
            "overrides" => {
                policy.overrides = value.as_array().unwrap().iter().map(override_of).collect();
            }
            "explain" => policy.explain = value.as_bool().unwrap(),
            "daemonSets" => policy.daemon_sets = value.as_bool().unwrap(),
            "podTemplates" => policy.pod_templates = value.as_bool().unwrap(),
            "mode" if value == "observe" => policy.mode = Mode::Observe,
            _ => panic!("{key} of a policy"),
        }
    }
    policy
}

fn pool(keys: &Value) -> Pool {
    let mut pool = Pool::default();
    for (key, value) in keys.as_object().unwrap() {
        match key.as_str() {
            "name" => pool.name = text(value),
            "platforms" => pool.platforms = platforms_of(value),
            "tolerations" => {
                pool.tolerations = value.as_array().unwrap().iter().map(toleration).collect();
            }
            "share" => pool.share = value.to_string().trim_matches(['"', '%']).parse().unwrap(),
            "prefer" => {
                let labels = value["labels"].as_object().unwrap();
                let labels = labels
                    .iter()
                    .map(|(key, value)| (key.clone(), text(value)))
                    .collect();
                pool.prefer = Some(PoolPreference {
                    weight: weight(value),
                    labels,
                });
            }
            "select" => {
                let labels = value.as_object().unwrap().iter();
                pool.select = labels
                    .map(|(key, value)| (key.clone(), text(value)))
                    .collect();
            }
            _ => panic!("{key} of a pool"),
        }
    }
    pool
}

fn placement(keys: &Value) -> PlacementRules {
    let mut rules = PlacementRules::default();
    for (key, value) in keys.as_object().unwrap() {
        match key.as_str() {
            "require" => {
                rules.require = match value.as_str().unwrap() {
                    "affinity" => Require::Affinity,
                    "nodeSelector" => Require::NodeSelector,
                    _ => Require::Off,
                };
            }
            "platforms" => rules.platforms = platforms_of(value),
            "whenUnknown" => rules.when_unknown = platforms_of(value),
            "podLabels" => rules.pod_labels = value.as_array().unwrap().iter().map(text).collect(),
            "prefer" => {
                let of = |prefer: &Value| Preference {
                    platform: platforms(&[prefer["platform"].as_str().unwrap()]),
                    weight: weight(prefer),
                };
                rules.prefer = value.as_array().unwrap().iter().map(of).collect();
            }
            _ => panic!("{key} of a placement"),
        }
    }
    rules
}

fn override_of(keys: &Value) -> Override {
    let images = keys["images"].as_str().unwrap().parse().unwrap();
    Override {
        images,
        platforms: platforms_of(&keys["platforms"]),
    }
}

fn platforms_of(names: &Value) -> PlatformSet {
    let names = names
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap());
    platforms(&names.collect::<Vec<&str>>())
}

fn weight(keys: &Value) -> u8 {
    keys["weight"].as_u64().unwrap().try_into().unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
