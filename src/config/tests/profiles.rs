use super::*;
use tolerarch_core::policy::Require;
use tolerarch_core::testing::platforms;

const TEXT: &str = "
profiles:
  batch: {mode: observe, pools: [spot], placement: {platforms: [linux/amd64]}, explain: false}
  web: {pools: []}
  plain:
mode: enforce
explain: true
placement: {require: affinity, podLabels: [team]}
overrides: [{match: ghcr.io/acme/*, platforms: [linux/arm64]}]
pools:
  - {name: multi-arch, platforms: [linux/amd64], tolerations: [{key: a}]}
  - {name: spot, platforms: [linux/arm64], tolerations: [{key: b}]}
";

fn faults(profiles: &str) -> Vec<String> {
    let faults = Config::parse(&format!("profiles: {profiles}")).unwrap_err();
    faults.into_iter().map(|fault| fault.to_string()).collect()
}

#[test]
fn profile_inherits_unset_keys() {
    let config = Config::parse(TEXT).unwrap();
    let policies = config.policies(&config.policy);
    let names = |policy: &Policy| {
        policy
            .pools
            .iter()
            .map(|pool| pool.name.clone())
            .collect::<Vec<_>>()
    };
    let batch = &policies["batch"];
    assert_eq!(
        (batch.mode, names(batch), batch.explain),
        (Mode::Observe, vec!["spot".to_owned()], false)
    );
    let PlacementRules {
        require,
        platforms: all,
        pod_labels,
        ..
    } = &batch.placement;
    assert_eq!(
        (*require, *all),
        (Require::Affinity, platforms(&["linux/amd64"]))
    );
    assert_eq!(
        (pod_labels, &batch.overrides),
        (&vec!["team".to_owned()], &config.policy.overrides)
    );
    assert_eq!(
        policies["web"],
        Policy {
            pools: Vec::new(),
            ..config.policy.clone()
        }
    );
    assert_eq!(policies["plain"], config.policy);
}

#[test]
fn invalid_names_of_profiles_and_pools_are_refused() {
    let message =
        "profiles[\"x\"].pools (line 1): there is no pool \"multiarch\"; did you mean multi-arch?";
    assert_eq!(faults("{x: {pools: [multiarch]}}"), [message]);
    assert_eq!(
        faults("{x: {pools: [nonesuch, multi-arch, multiarch]}}").len(),
        2
    );
    for (name, said) in [
        ("a/b", "label of namespaces"),
        ("'-a'", "label of namespaces"),
        ("unknown", "metrics"),
    ] {
        let faults = faults(&format!("{{{name}: {{}}}}"));
        assert!(
            faults.len() == 1 && faults[0].contains(said),
            "{name}: {faults:?}"
        );
    }
    assert!(faults("{x: {budget: 1s}}")[0].contains("unknown key"));
    assert!(faults("{x: {placement: {platforms: []}}}")[0].contains("no platforms"));
}
