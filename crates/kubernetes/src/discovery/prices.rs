//! Prices that NodeOverlays change. In a NodePool of several architectures, Karpenter takes the cheapest instance type,
//! by the prices that overlays have adjusted (`pkg/cloudprovider/overlay`).

use std::collections::BTreeMap;

use super::labels::NODE_POOL;
use super::platforms::{Allowed, of_node_pool};
use crate::cluster::{NodeOverlay, NodePool, Price};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::{ARCH_KEY, BETA_ARCH_KEY};

/// Maximum percentage by which machines of arm64 are cheaper than others in the price lists of AWS, Azure and Google.
const CHEAPER: f64 = 20.0;

/// Effect of a NodeOverlay that makes an architecture dearer than the other architectures of a NodePool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// The others become cheaper.
    Certain,
    /// The others may become cheaper.
    Possible,
}

impl Shift {
    /// Returns the effect of an overlay; `None` if it does not make the architecture dearer in comparison.
    pub fn of(overlay: &NodeOverlay, pool: &NodePool, architecture: &str) -> Option<Self> {
        let price = overlay.price.as_ref()?;
        let platforms = PlatformSet::of_architecture(architecture);
        let others = of_node_pool(pool).difference(platforms);
        let allowed = |key| Allowed::by(&overlay.requirements, &NO_LABELS, key);
        if others.is_empty() || !allowed(NODE_POOL).has(pool.name()) {
            return None;
        }
        let priced = allowed(ARCH_KEY);
        let mut others = others.architectures().into_iter();
        let prices_others = others.any(|other| priced.has(other));
        let shift = match (priced.has(architecture), prices_others) {
            (true, false) => by_own_price(price)?,
            (false, true) => by_price_of_others(price)?,
            (true, true) | (false, false) => return None,
        };
        for requirement in &overlay.requirements {
            let key = requirement.key.as_str();
            if !matches!(key, NODE_POOL | ARCH_KEY | BETA_ARCH_KEY) {
                // The overlay changes the prices of some instance types only.
                return Some(Self::Possible);
            }
        }
        Some(shift)
    }
}

static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// Judges a price that applies to the architecture only.
fn by_own_price(price: &Price) -> Option<Shift> {
    match price {
        Price::Adjusted(by) if by.starts_with('-') => None,
        Price::Adjusted(by) => match percent(by) {
            Some(percent) if percent >= 100.0 * CHEAPER / (100.0 - CHEAPER) => Some(Shift::Certain),
            _ => Some(Shift::Possible),
        },
        Price::Fixed(_) => Some(Shift::Possible),
    }
}

/// Judges a price that applies to other architectures only.
fn by_price_of_others(price: &Price) -> Option<Shift> {
    match price {
        Price::Adjusted(by) if by.starts_with('+') => None,
        Price::Adjusted(by) => match percent(by) {
            Some(percent) if percent <= -CHEAPER => Some(Shift::Certain),
            _ => Some(Shift::Possible),
        },
        Price::Fixed(price) if price.parse() == Ok(0.0) => Some(Shift::Certain),
        Price::Fixed(_) => Some(Shift::Possible),
    }
}

fn percent(adjustment: &str) -> Option<f64> {
    adjustment.strip_suffix('%')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shift(
        architectures: &[&str],
        more: Vec<Value>,
        spec: &[&str],
        price: Value,
    ) -> Option<Shift> {
        let named = |values: &[&str]| json!({"key": "kubernetes.io/arch", "operator": "In", "values": values});
        let pool = json!({
            "metadata": {"name": "multi"},
            "spec": {"template": {"spec": {"requirements": [named(architectures)]}}},
        });
        let mut overlay = json!({"metadata": {"name": "o"}, "spec": price});
        overlay["spec"]["requirements"] = [vec![named(spec)], more].concat().into();
        Shift::of(
            &serde_json::from_value(overlay).unwrap(),
            &serde_json::from_value(pool).unwrap(),
            "arm64",
        )
    }

    #[test]
    fn price_that_makes_the_architecture_dearer_is_a_shift() {
        let both = ["amd64", "arm64"];
        let by = |text: &str| json!({"priceAdjustment": text});
        let fixed = |text: &str| json!({"price": text});
        for (spec, price, expected) in [
            (&["arm64"][..], by("+25%"), Some(Shift::Certain)),
            (&["arm64"], by("+24%"), Some(Shift::Possible)),
            (&["arm64"], by("+0.5"), Some(Shift::Possible)),
            (&["arm64"], by("-10%"), None),
            (&["arm64"], fixed("1.5"), Some(Shift::Possible)),
            (&["amd64"], by("-20%"), Some(Shift::Certain)),
            (&["amd64"], by("-100%"), Some(Shift::Certain)),
            (&["amd64"], by("-19%"), Some(Shift::Possible)),
            (&["amd64"], by("+25%"), None),
            (&["amd64"], fixed("0"), Some(Shift::Certain)),
            (&["amd64"], fixed("0.1"), Some(Shift::Possible)),
            (&both, by("+25%"), None),
            (&["arm64"], json!({"capacity": {"a.b/c": "1"}}), None),
        ] {
            let shift = shift(&both, vec![], spec, price.clone());
            assert_eq!(shift, expected, "{spec:?} {price}");
        }
    }

    #[test]
    fn only_node_pools_of_several_architectures_are_shifted() {
        let both = ["amd64", "arm64"];
        let dearer = || json!({"priceAdjustment": "+50%"});
        let only =
            |key: &str, value: &str| vec![json!({"key": key, "operator": "In", "values": [value]})];
        let of_pool = |name: &str| only("karpenter.sh/nodepool", name);
        let spot = only("karpenter.sh/capacity-type", "spot");
        for (architectures, more, expected) in [
            (&both[..], of_pool("multi"), Some(Shift::Certain)),
            (&both, of_pool("other"), None),
            (&both, spot, Some(Shift::Possible)),
            (&["arm64"], vec![], None),
        ] {
            let shift = shift(architectures, more.clone(), &["arm64"], dearer());
            assert_eq!(shift, expected, "{architectures:?} {more:?}");
        }
    }
}
