//! Karpenter's NodeOverlays (`karpenter.sh/v1alpha1`), which change the prices of instance types for Karpenter
//! (`pkg/apis/v1alpha1/nodeoverlay.go` of kubernetes-sigs/karpenter).

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use serde::Deserialize;
use serde_json::Value;

use super::metadata::{Condition, Metadata, status_of, take};

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct NodeOverlay {
    pub metadata: Metadata,
    /// Requirements on the instance types whose prices it changes.
    pub requirements: Vec<NodeSelectorRequirement>,
    /// `None` if it changes no price.
    pub price: Option<Price>,
    /// Validity as Karpenter reports it; `None` before the first report, or while the feature is off.
    pub is_ready: Option<bool>,
}

/// Price of an instance type in a NodeOverlay.
#[derive(Clone, Debug, PartialEq)]
pub enum Price {
    /// Change by an amount or a percentage: `+0.5`, `-10%`.
    Adjusted(String),
    Fixed(String),
}

impl NodeOverlay {
    pub const PATH: &'static str = "/apis/karpenter.sh/v1alpha1/nodeoverlays";

    pub fn name(&self) -> &str {
        &self.metadata.name
    }
}

impl TryFrom<Value> for NodeOverlay {
    type Error = serde_json::Error;

    fn try_from(mut overlay: Value) -> Result<Self, serde_json::Error> {
        let overlay = &mut overlay;
        let conditions: Vec<Condition> = take(overlay, "/status/conditions")?;
        let adjustment: Option<String> = take(overlay, "/spec/priceAdjustment")?;
        let fixed: Option<String> = take(overlay, "/spec/price")?;
        // The API server accepts only one of the two.
        let price = match adjustment {
            Some(adjustment) => Some(Price::Adjusted(adjustment)),
            None => fixed.map(Price::Fixed),
        };
        Ok(Self {
            metadata: take(overlay, "/metadata")?,
            requirements: take(overlay, "/spec/requirements")?,
            price,
            is_ready: status_of(&conditions, "Ready").map(|status| status == "True"),
        })
    }
}
