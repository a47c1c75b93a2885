//! Karpenter's node classes, with the fields that those of all providers share.
//!
//! `EC2NodeClass` lists its machine images in `status.amis` (`pkg/apis/v1/ec2nodeclass_status.go` of
//! aws/karpenter-provider-aws). `AKSNodeClass` and `GCENodeClass` list them in `status.images`
//! (`aksnodeclass_status.go` of Azure/karpenter-provider-azure, `gcenodeclass_status.go` of
//! cloudpilot-ai/karpenter-provider-gcp). Each image has requirements that an instance type has to meet. `NodeClass` of
//! EKS Auto Mode lists no images: AWS chooses them.

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
    /// Reason why the class is not ready, from its conditions: untrusted text of at most 300 characters. `None` if the
    /// class is ready, or its readiness is unknown.
    pub fault: Option<String>,
    /// Architectures of its machine images; `None` if they are unknown, or if an image has no requirement on them.
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

/// Returns the message of a failed condition if `Ready` has failed. The message of `Ready` itself only names the other
/// conditions (`recomputeRootCondition` of awslabs/operatorpkg).
fn fault(conditions: &[Condition]) -> Option<String> {
    let mut ready = None;
    let mut cause = None;
    for condition in conditions {
        if condition.status != "False" {
            continue;
        }
        if condition.r#type == "Ready" {
            ready = ready.or(Some(condition));
        } else if !condition.message.is_empty() {
            cause = cause.or(Some(condition));
        }
    }
    let ready = ready?;
    let text = match cause {
        Some(cause) => format!("{}: {}", cause.r#type, cause.message),
        None => ready.message.clone(),
    };
    Some(text.chars().take(MESSAGE).collect())
}

fn architectures(images: &[MachineImage]) -> Option<BTreeSet<String>> {
    let mut architectures = BTreeSet::new();
    for image in images {
        let mut requirements = image.requirements.iter();
        let requirement = requirements.find(|one| one.key == ARCH_KEY && one.operator == "In")?;
        architectures.extend(requirement.values.iter().flatten().cloned());
    }
    Some(architectures).filter(|architectures| !architectures.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(status: Value) -> NodeClass {
        serde_json::from_value(json!({"metadata": {"name": "default"}, "status": status})).unwrap()
    }

    #[test]
    fn architectures_of_all_machine_images_are_read() {
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
    fn fault_is_the_condition_that_ready_depends_on() {
        let condition = |name: &str, status: &str, message: &str| json!({"type": name, "status": status, "message": message});
        let ready = condition("Ready", "False", "AMIsReady=False");
        let cause = condition("AMIsReady", "False", "AMISelector did not match any AMIs");
        for (conditions, expected) in [
            (
                json!([condition("SubnetsReady", "True", "x"), cause, ready]),
                Some("AMIsReady: AMISelector did not match any AMIs"),
            ),
            (json!([ready]), Some("AMIsReady=False")),
            // A condition on which Ready does not depend is no fault.
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
