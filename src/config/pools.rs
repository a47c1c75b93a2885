//! The pools of the configuration, checked so that no Pod can fail by what a pool gives it.

mod preference;

use std::borrow::Cow;

use clap::ValueEnum;
use serde_json::{Value as Json, json};

use super::shape::{List, Shape, Slot, Value, Values, Visit, key, key_as};
use super::values::{Checked, Maybe, OneOf, taken};
use tolerarch_core::image::{Platform, PlatformSet};
use tolerarch_core::pod::{Text, Toleration, is_label_key, is_label_value};
use tolerarch_core::policy::{Pool, is_pool_name};

impl Slot for Vec<Pool> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::List(self)
    }

    fn objections(&self) -> Vec<String> {
        if self.is_empty() {
            return vec!["there has to be a pool".to_owned()];
        }
        let repeated = (1..self.len()).filter(|&at| self[..at].iter().any(|pool| pool.name == self[at].name));
        let names = repeated.map(|at| &self[at].name).filter(|name| !name.is_empty());
        names.map(|name| format!("two pools are named {name:?}")).collect()
    }
}

impl List for Vec<Pool> {
    fn blank(&self, visit: Visit<'_>) {
        visit(&mut Entry::default());
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn add(&mut self, fill: Visit<'_>) {
        let mut entry = Entry::default();
        fill(&mut entry);
        self.push(entry.into());
    }

    fn each(&mut self, visit: Visit<'_>) {
        for Pool { name, platforms, tolerations, share, prefer } in self {
            let (name, tolerations) = (PoolName(name.clone()), tolerations.clone());
            visit(&mut Entry {
                preset: None,
                name,
                platforms: *platforms,
                tolerations,
                share: Percent(*share),
                prefer: preference::Entry::from(&*prefer),
            });
        }
    }
}

/// Pools as managed clusters and autoscalers have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Preset {
    /// GKE's Arm nodes, behind the taint that GKE itself gives them. They have arm64 only.
    Gke,
    /// Karpenter's NodePool for both architectures, as the README has it.
    Karpenter,
}

impl Preset {
    fn pool(self) -> Pool {
        let toleration = |key: &str, operator: &str, value: &str| Toleration {
            key: key.to_owned().into(),
            operator: operator.to_owned().into(),
            value: value.to_owned().into(),
            effect: "NoSchedule".to_owned().into(),
            toleration_seconds: None,
        };
        match self {
            Self::Gke => Pool {
                name: "gke".into(),
                platforms: PlatformSet::serving(&Platform::new("linux", "arm64", "")),
                tolerations: vec![toleration("kubernetes.io/arch", "Equal", "arm64")],
                share: Pool::ALL,
                prefer: None,
            },
            Self::Karpenter => Pool {
                name: "karpenter".into(),
                platforms: PlatformSet::AMD64_AND_ARM64,
                tolerations: vec![toleration("tolerarch.io/multi-arch", "Exists", "")],
                share: Pool::ALL,
                prefer: None,
            },
        }
    }
}

/// A pool as the file has it. What it says itself replaces what its preset says, key by key.
#[derive(Default)]
struct Entry {
    preset: Option<Preset>,
    name: PoolName,
    platforms: PlatformSet,
    tolerations: Vec<Toleration<'static>>,
    share: Percent,
    prefer: preference::Entry,
}

impl From<Entry> for Pool {
    fn from(Entry { preset, name, platforms, tolerations, share: Percent(share), prefer }: Entry) -> Self {
        let said = Self { name: name.into(), platforms, tolerations, share, prefer: prefer.into() };
        let Some(preset) = preset.map(Preset::pool) else { return said };
        Self {
            name: if said.name.is_empty() { preset.name } else { said.name },
            platforms: if said.platforms.is_empty() { preset.platforms } else { said.platforms },
            tolerations: if said.tolerations.is_empty() { preset.tolerations } else { said.tolerations },
            share,
            prefer: said.prefer,
        }
    }
}

impl Slot for Entry {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key_as(
                "preset",
                "says what the pool itself does not: the Arm nodes of GKE, or a NodePool of Karpenter",
                Maybe(&mut self.preset),
            ),
            key("name", "as the annotation of opened Pods shows it", &mut self.name),
            key("platforms", "that its nodes can have; an image has to run on all", &mut self.platforms),
            key("tolerations", "that open it", &mut self.tolerations),
            key(
                "share",
                "to how many of the workloads that could use it, in percent; which ones, their names decide",
                &mut self.share,
            ),
            key(
                "prefer",
                "its nodes are preferred by Pods to which it is opened: with a weight, by their labels",
                &mut self.prefer,
            ),
        ])
    }

    fn objections(&self) -> Vec<String> {
        objections([
            (self.name.0.is_empty(), "the pool has no name"),
            (
                self.platforms.is_empty(),
                "the pool has no platforms; write for example [linux/amd64, linux/arm64]",
            ),
            (self.tolerations.is_empty(), "the pool has no tolerations, so nothing would open it"),
        ])
    }
}

/// Those that hold.
fn objections<const N: usize>(all: [(bool, &str); N]) -> Vec<String> {
    all.into_iter().filter(|(holds, _)| *holds).map(|(_, text)| text.to_owned()).collect()
}

/// A share of the workloads.
struct Percent(u8);

impl Default for Percent {
    fn default() -> Self {
        Self(Pool::ALL)
    }
}

impl Value for Percent {
    fn expected(&self) -> Cow<'static, str> {
        "a number from 0 to 100".into()
    }

    fn schema(&self) -> Json {
        json!({"type": "integer", "minimum": 0, "maximum": Pool::ALL})
    }

    fn read(&mut self, text: &str) -> bool {
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        taken(&mut self.0, text.parse().ok().filter(|share| digits && *share <= Pool::ALL))
    }

    fn written(&self) -> Json {
        json!(self.0)
    }
}

/// A name that can stand in the annotation.
#[derive(Default)]
pub(super) struct PoolName(String);

impl From<PoolName> for String {
    fn from(PoolName(name): PoolName) -> Self {
        name
    }
}

impl Value for PoolName {
    fn expected(&self) -> Cow<'static, str> {
        "a name of at most 63 lower-case letters, digits, '-' and '.'".into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "pattern": "^[a-z0-9.-]{1,63}$"})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(&mut self.0, is_pool_name(text).then(|| text.to_owned()))
    }

    fn written(&self) -> Json {
        json!(self.0)
    }
}

impl Slot for PlatformSet {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Values(self)
    }
}

impl Values for PlatformSet {
    fn blank(&self) -> Box<dyn Value> {
        Box::new(One(Self::EMPTY))
    }

    fn clear(&mut self) {
        *self = Self::EMPTY;
    }

    fn add(&mut self, text: &str) -> bool {
        let mut one = One(Self::EMPTY);
        let read = one.read(text);
        *self = self.union(one.0);
        read
    }

    fn written(&self) -> Vec<Json> {
        self.to_string().split(", ").filter(|_| !self.is_empty()).map(Json::from).collect()
    }
}

/// One platform of a list.
pub(super) struct One(pub(super) PlatformSet);

impl Value for One {
    fn expected(&self) -> Cow<'static, str> {
        format!("a platform that nodes can have: {}", PlatformSet::ALL).into()
    }

    fn schema(&self) -> Json {
        json!({"enum": PlatformSet::ALL.written()})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(&mut self.0, text.parse().ok())
    }

    fn written(&self) -> Json {
        json!(self.0.to_string())
    }
}

impl Slot for Vec<Toleration<'static>> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::List(self)
    }
}

/// Checked as the API server checks it (`ValidateTolerations` of k8s.io/kubernetes): a toleration that it does not take
/// would make every Pod fail that gets it.
impl Slot for Toleration<'static> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key_as("key", "the taint's key", label_key(&mut self.key)),
            key_as("operator", "Equal if missing", OneOf(&mut self.operator, &["Exists", "Equal"])),
            key_as("value", "the taint's value, for Equal", label_value(&mut self.value)),
            key_as(
                "effect",
                "the taint's effect; every effect if empty or missing",
                OneOf(&mut self.effect, &["NoSchedule", "PreferNoSchedule", "NoExecute", ""]),
            ),
            key(
                "tolerationSeconds",
                "how long a NoExecute taint is tolerated; for ever if missing",
                &mut self.toleration_seconds,
            ),
        ])
    }

    fn objections(&self) -> Vec<String> {
        objections([
            (self.key.is_empty(), "the toleration has no key; without one it would open every taint"),
            (
                self.operator.as_str() == "Exists" && !self.value.is_empty(),
                "a toleration with operator Exists has no value; remove it or write operator: Equal",
            ),
            (
                self.toleration_seconds.is_some() && self.effect.as_str() != "NoExecute",
                "tolerationSeconds of a toleration needs effect: NoExecute",
            ),
        ])
    }

    fn warnings(&self) -> Vec<String> {
        let blank = self.operator.as_str() != "Exists" && self.value.is_empty() && !self.key.is_empty();
        let key = self.key.as_str();
        let warning = || {
            format!(
                "the toleration has no value, so it matches the taint {key} but not {key}=true; write operator: Exists for any value"
            )
        };
        blank.then(warning).into_iter().collect()
    }
}

pub(super) fn label_key<'a>(text: &'a mut Text<'static>) -> Checked<'a> {
    Checked {
        text,
        expected: "a label key such as example.com/pool",
        pattern: "^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
        check: is_label_key,
    }
}

pub(super) fn label_value<'a>(text: &'a mut Text<'static>) -> Checked<'a> {
    Checked {
        text,
        expected: "a label value",
        pattern: "^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$",
        check: is_label_value,
    }
}
