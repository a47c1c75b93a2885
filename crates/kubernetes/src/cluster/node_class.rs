//! Classes of Karpenter's nodes, which differ by provider, with the fields that they have in common.
//!
//! `EC2NodeClass` lists its machine images in `status.amis` (`pkg/apis/v1/ec2nodeclass_status.go` of
//! aws/karpenter-provider-aws), `AKSNodeClass` and `GCENodeClass` in `status.images` (`aksnodeclass_status.go` of
//! Azure/karpenter-provider-azure, `gcenodeclass_status.go` of cloudpilot-ai/karpenter-provider-gcp), each image with
//! the requirements that an instance type has to meet. `NodeClass` of EKS Auto Mode lists none: AWS chooses them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use serde::Deserialize;
use serde_json::Value;

use super::metadata::{Condition, or_default, take};
use tolerarch_core::pod::ARCH_KEY;

/// Maximum characters of a condition's message.
const MESSAGE: usize = 300;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct NodeClass {
    /// Reason why it is not ready, as its conditions say: untrusted text, at most 300 characters. `None` if it is ready, or
    /// nothing is known of that yet.
    pub fault: Option<String>,
    /// Architectures of its machine images; `None` if these are not known, or some may run on any.
    pub architectures: Option<BTreeSet<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MachineImage {
    #[serde(deserialize_with = "or_default")]
    requirements: Vec<NodeSelectorRequirement>,
}

impl TryFrom<Value> for NodeClass {
    type Error = serde_json::Error;

    fn try_from(mut class: Value) -> Result<Self, serde_json::Error> {
        let conditions: Vec<Condition> = take(&mut class, "/status/conditions")?;
        let mut images: Vec<MachineImage> = take(&mut class, "/status/amis")?;
        images.extend(take::<Vec<MachineImage>>(&mut class, "/status/images")?);
        Ok(Self {
            fault: fault(&conditions),
            architectures: architectures(&images),
        })
    }
}

/// Returns what the failed conditions say, unless `Ready` has not failed. Its own message only names the others
/// (`recomputeRootCondition` of awslabs/operatorpkg).
fn fault(conditions: &[Condition]) -> Option<String> {
    let is_failed = |condition: &&Condition| condition.status == "False";
    let failed = conditions.iter().filter(is_failed);
    let ready = failed.clone().find(|one| one.r#type == "Ready")?;
    let mut others = failed.filter(|one| one.r#type != "Ready" && !one.message.is_empty());
    let text = match others.next() {
        Some(cause) => format!("{}: {}", cause.r#type, cause.message),
        None => ready.message.clone(),
    };
    Some(text.chars().take(MESSAGE).collect())
}

fn architectures(images: &[MachineImage]) -> Option<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for image in images {
        let mut requirements = image.requirements.iter();
        let named = requirements.find(|one| one.key == ARCH_KEY && one.operator == "In")?;
        all.extend(named.values.iter().flatten().cloned());
    }
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(status: Value) -> NodeClass {
        serde_json::from_value(json!({"metadata": {"name": "default"}, "status": status})).unwrap()
    }

    #[test]
    fn machine_images_name_their_architectures() {
        let image = |architecture: &str| {
            let requirement =
                json!({"key": "kubernetes.io/arch", "operator": "In", "values": [architecture]});
            let gpu =
                json!({"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "DoesNotExist"});
            json!({"id": "ami-1", "requirements": [gpu, requirement]})
        };
        let any = json!({"id": "ami-2", "requirements": []});
        for (status, expected) in [
            (json!({"amis": [image("amd64")]}), Some(vec!["amd64"])),
            (
                json!({"amis": [image("amd64"), image("arm64"), image("amd64")]}),
                Some(vec!["amd64", "arm64"]),
            ),
            (json!({"images": [image("arm64")]}), Some(vec!["arm64"])),
            (json!({"amis": [image("amd64"), any]}), None),
            (json!({"amis": []}), None),
            (json!({}), None),
        ] {
            let architectures = class(status.clone()).architectures;
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(architectures, expected, "{status}");
        }
    }

    #[test]
    fn the_condition_behind_ready_says_why() {
        let condition = |name: &str, status: &str, message: &str| json!({"type": name, "status": status, "message": message});
        let ready = condition("Ready", "False", "AMIsReady=False");
        let cause = condition("AMIsReady", "False", "AMISelector did not match any AMIs");
        for (conditions, expected) in [
            (
                json!([condition("SubnetsReady", "True", "x"), cause, ready]),
                Some("AMIsReady: AMISelector did not match any AMIs"),
            ),
            (json!([ready]), Some("AMIsReady=False")),
            // A condition that Ready does not depend on keeps no node away.
            (json!([cause, condition("Ready", "True", "")]), None),
            (json!([cause, condition("Ready", "Unknown", "")]), None),
            (json!([]), None),
        ] {
            let fault = class(json!({"conditions": conditions.clone()})).fault;
            assert_eq!(fault.as_deref(), expected, "{conditions}");
        }
        let long = json!([condition("Ready", "False", &"a".repeat(1000))]);
        let fault = class(json!({"conditions": long})).fault;
        assert_eq!(fault.unwrap().len(), MESSAGE);
    }
}
