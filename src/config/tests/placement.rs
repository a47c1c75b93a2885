use super::*;
use crate::policy::Require;
use crate::testing::platforms;

fn faults(placement: &str) -> Vec<String> {
    let faults = Config::parse(&format!("placement: {placement}")).unwrap_err();
    faults.into_iter().map(|fault| fault.to_string()).collect()
}

#[test]
fn reads_placement() {
    let text = "placement: {require: nodeSelector, platforms: [linux/s390x, linux/amd64], whenUnknown: [linux/amd64]}";
    let placement = Config::parse(text).unwrap().policy.placement;
    let PlacementRules { require, platforms: all, when_unknown } = placement;
    assert_eq!(require, Require::NodeSelector);
    assert_eq!(all, platforms(&["linux/amd64", "linux/s390x"]));
    assert_eq!(when_unknown, platforms(&["linux/amd64"]));
    for off in ["{}", "{require: off}", "{require: 'off', platforms: }"] {
        let config = Config::parse(&format!("placement: {off}")).unwrap();
        assert_eq!(config.policy.placement, PlacementRules::default(), "{off}");
    }
}

#[test]
fn refuses_what_cannot_be_placed() {
    let message = "placement.require (line 1): found \"affinty\", expected off, affinity or nodeSelector";
    assert_eq!(faults("{require: affinty}"), [message]);
    let message =
        "placement (line 1): the cluster has no platforms; write for example [linux/amd64, linux/arm64]";
    assert_eq!(faults("{platforms: []}"), [message]);
    for discovered in ["discovered", "[discovered]"] {
        let seen = faults(&format!("{{platforms: {discovered}}}"));
        assert!(seen.len() == 1 && seen[0].contains("discovered needs `discover`"), "{seen:?}");
    }
}

#[test]
fn warns_of_what_does_nothing() {
    let warnings = |placement: &str| -> Vec<String> {
        let loaded = Sources::default().read(&format!("placement: {placement}")).unwrap();
        loaded.warnings().iter().map(|warning| warning.message.clone()).collect()
    };
    assert_eq!(warnings("{require: affinity, whenUnknown: [linux/amd64]}"), [""; 0]);
    assert_eq!(warnings("{whenUnknown: [linux/amd64]}"), ["whenUnknown does nothing while require is off"]);
    assert_eq!(
        warnings("{require: affinity, whenUnknown: [linux/s390x]}"),
        ["whenUnknown has linux/s390x, which the cluster's nodes do not have by platforms"]
    );
}
