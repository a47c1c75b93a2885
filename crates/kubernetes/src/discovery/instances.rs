//! Instance types of AWS that the requirements of a NodePool allow.
//!
//! All instance types of a family have one architecture. Graviton's families have a `g` among the letters after the
//! generation, or are `a1`, and only their processors are made by AWS. This holds for all families in the reference of
//! aws/karpenter-provider-aws (`website/content/en/preview/reference/instance-types.md`).

use std::collections::BTreeSet;

use super::platforms::{Allowed, INSTANCE_TYPE};
use crate::cluster::NodePool;
use tolerarch_text::list::List;

/// API groups of node classes on AWS, of Karpenter and of EKS Auto Mode. Labels of instance types have them as
/// prefixes.
const AWS: [&str; 2] = ["karpenter.k8s.aws", "eks.amazonaws.com"];
const NAMED: List = List {
    separator: ", ",
    before_rest: " ",
    after_rest: "",
    items: 5,
    bytes: usize::MAX,
};

/// Function from the value of a label to the architecture of its instance types; `None` if that is not certain.
type ArchitectureOf = fn(&str) -> Option<&'static str>;

/// Returns why no instance type of this architecture meets the requirements of a NodePool; `None` if some may.
pub fn without_instance(pool: &NodePool, architecture: &str) -> Option<String> {
    let group = AWS.iter().find(|group| **group == pool.node_class.group)?;
    let family = format!("{group}/instance-family");
    let manufacturer = format!("{group}/instance-cpu-manufacturer");
    let labels: [(&str, ArchitectureOf); 3] = [
        (INSTANCE_TYPE, of_instance_type),
        (&family, of_family),
        (&manufacturer, of_manufacturer),
    ];
    for (key, of_value) in labels {
        let Allowed::Only(values) = Allowed::of(pool, key) else {
            continue;
        };
        let may_fit = |value: &&str| match of_value(value) {
            Some(of_value) => of_value == architecture,
            None => true,
        };
        if !values.is_empty() && !values.iter().any(may_fit) {
            return Some(format!("{key} allows only {}", listed(&values)));
        }
    }
    // No other manufacturer makes processors of arm64 for AWS.
    if architecture == "arm64" && !Allowed::of(pool, &manufacturer).has("aws") {
        return Some(format!("{manufacturer} excludes aws"));
    }
    None
}

fn listed(values: &BTreeSet<&str>) -> String {
    let values: Vec<&str> = values.iter().copied().collect();
    NAMED.write(&values, |value| (*value).to_owned())
}

fn of_instance_type(name: &str) -> Option<&'static str> {
    of_family(name.split_once('.')?.0)
}

/// Returns the architecture of a family such as `m7g` or `u7i-12tb`; `None` for a name of another form.
fn of_family(family: &str) -> Option<&'static str> {
    let class = family.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let letters = family.len() - class.len();
    // Macs have processors of both architectures, and Karpenter makes no Macs.
    if letters == 0 || family.starts_with("mac") {
        return None;
    }
    let generation = class.strip_prefix('-').unwrap_or(class);
    let rest = generation.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if rest.len() == generation.len() || !rest.chars().all(is_of_name) {
        return None;
    }
    Some(if rest.contains('g') || family == "a1" {
        "arm64"
    } else {
        "amd64"
    })
}

fn of_manufacturer(name: &str) -> Option<&'static str> {
    match name {
        "aws" => Some("arm64"),
        "amd" | "intel" => Some("amd64"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn families_name_their_architecture() {
        for (family, expected) in [
            ("m5", Some("amd64")),
            ("m7g", Some("arm64")),
            ("a1", Some("arm64")),
            ("c7gn", Some("arm64")),
            ("im4gn", Some("arm64")),
            ("is4gen", Some("arm64")),
            ("hpc7g", Some("arm64")),
            ("g5", Some("amd64")),
            ("g5g", Some("arm64")),
            ("g4dn", Some("amd64")),
            ("gr6f", Some("amd64")),
            ("m7i-flex", Some("amd64")),
            ("u-6tb1", Some("amd64")),
            ("u7in-16tb", Some("amd64")),
            ("p6-b200", Some("amd64")),
            ("p6e-gb200", Some("arm64")),
            ("mac2", None),
            ("mac2-m2", None),
            ("", None),
            ("7g", None),
            ("metal", None),
            ("m7G", None),
        ] {
            assert_eq!(of_family(family), expected, "{family}");
        }
    }

    fn without(group: &str, requirements: Value) -> Option<String> {
        let pool = json!({
            "metadata": {"name": "arm"},
            "spec": {"template": {"spec": {
                "nodeClassRef": {"group": group, "kind": "EC2NodeClass", "name": "default"},
                "requirements": requirements,
            }}},
        });
        without_instance(&serde_json::from_value(pool).unwrap(), "arm64")
    }

    #[test]
    fn only_certain_requirements_exclude_all_instances() {
        const FAMILY: &str = "karpenter.k8s.aws/instance-family";
        const MANUFACTURER: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
        let one = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        for (requirements, expected) in [
            (json!([]), None),
            (
                json!([one(FAMILY, "In", &["m5", "c5"])]),
                Some("karpenter.k8s.aws/instance-family allows only c5, m5"),
            ),
            (json!([one(FAMILY, "In", &["m5", "m7g"])]), None),
            (
                json!([
                    one(FAMILY, "In", &["m5", "m7g"]),
                    one(FAMILY, "NotIn", &["m7g"])
                ]),
                Some("karpenter.k8s.aws/instance-family allows only m5"),
            ),
            // A family whose name has another form may have any architecture.
            (json!([one(FAMILY, "In", &["m5", "mac2"])]), None),
            (json!([one(FAMILY, "NotIn", &["m7g"])]), None),
            (
                json!([one("eks.amazonaws.com/instance-family", "In", &["m5"])]),
                None,
            ),
            (
                json!([one(
                    "beta.kubernetes.io/instance-type",
                    "In",
                    &["m5.large", "c5.xlarge"]
                )]),
                Some("node.kubernetes.io/instance-type allows only c5.xlarge, m5.large"),
            ),
            (
                json!([one(INSTANCE_TYPE, "In", &["m5.large", "m6g.large"])]),
                None,
            ),
            (
                json!([one(MANUFACTURER, "In", &["intel", "amd"])]),
                Some("karpenter.k8s.aws/instance-cpu-manufacturer allows only amd, intel"),
            ),
            (json!([one(MANUFACTURER, "In", &["intel", "aws"])]), None),
            (
                json!([one(MANUFACTURER, "NotIn", &["aws"])]),
                Some("karpenter.k8s.aws/instance-cpu-manufacturer excludes aws"),
            ),
            (json!([one(MANUFACTURER, "Exists", &[])]), None),
        ] {
            let reason = without("karpenter.k8s.aws", requirements.clone());
            assert_eq!(reason.as_deref(), expected, "{requirements}");
        }
        // Other providers may use the same names.
        let families = json!([one(FAMILY, "In", &["m5"])]);
        assert_eq!(without("karpenter.azure.com", families), None);
        let families = json!([one("eks.amazonaws.com/instance-family", "In", &["m5"])]);
        assert!(without("eks.amazonaws.com", families).is_some());
    }
}
