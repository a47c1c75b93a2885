use super::*;
use tolerarch_core::policy::Require;
use tolerarch_core::testing::platforms;

fn faults(placement: &str) -> Vec<String> {
    let faults = Config::parse(&format!("placement: {placement}")).unwrap_err();
    faults.into_iter().map(|fault| fault.to_string()).collect()
}

#[test]
fn placement_is_read() {
    let text = "placement: {require: nodeSelector, platforms: [linux/s390x, linux/amd64], whenUnknown: [linux/amd64]}";
    let placement = Config::parse(text).unwrap().policy.placement;
    let PlacementRules {
        require,
        platforms: all,
        when_unknown,
        ..
    } = placement;
    assert_eq!(require, Require::NodeSelector);
    assert_eq!(all, platforms(&["linux/amd64", "linux/s390x"]));
    assert_eq!(when_unknown, platforms(&["linux/amd64"]));
    for off in [
        "{}",
        "{require: off}",
        "{require: false}",
        "{require: 'off', platforms: }",
    ] {
        let config = Config::parse(&format!("placement: {off}")).unwrap();
        assert_eq!(config.policy.placement, PlacementRules::default(), "{off}");
    }
}

#[test]
fn invalid_placement_is_refused() {
    let message =
        "placement.require (line 1): found \"affinty\", expected off, affinity or nodeSelector";
    assert_eq!(faults("{require: affinty}"), [message]);
    let message = "placement (line 1): the cluster has no platforms; write for example [linux/amd64, linux/arm64]";
    assert_eq!(faults("{platforms: []}"), [message]);
    for discovered in ["discovered", "[discovered]"] {
        let faults = faults(&format!("{{platforms: {discovered}}}"));
        assert!(
            faults.len() == 1 && faults[0].contains("discovered needs `discover`"),
            "{faults:?}"
        );
    }
}

#[test]
fn discovered_platforms_are_read() {
    let read = |text: &str| {
        Sources::default()
            .read(text)
            .map_err(|faults| faults[0].to_string())
    };
    for discovered in [
        "discovered",
        "[discovered]",
        "[linux/s390x, discovered]",
        "[discovered, linux/s390x]",
    ] {
        let text = format!(
            "{{discover: {{nodes: true}}, placement: {{platforms: {discovered}, prefer: [{{platform: linux/s390x, weight: 1}}]}}}}"
        );
        let loaded = read(&text).unwrap();
        let PlacementRules {
            platforms,
            discovered: is_discovered,
            ..
        } = loaded.config.policy.placement;
        assert!(
            is_discovered && platforms == PlacementRules::default().platforms,
            "{discovered}"
        );
        assert_eq!(
            loaded.warnings(),
            [],
            "the cluster's platforms are unknown yet"
        );
        assert_eq!(Config::parse(&loaded.to_yaml()).unwrap(), loaded.config);
    }
    let strange =
        read("{discover: {nodes: true}, placement: {platforms: [discovered, linux/sparc]}}")
            .unwrap_err();
    assert!(strange.contains("linux/sparc"), "{strange}");
    let profile = read("profiles: {batch: {placement: {platforms: discovered}}}").unwrap_err();
    assert!(
        profile.starts_with("profiles[\"batch\"].placement.platforms (line 1): discovered needs"),
        "{profile}"
    );
    let inherited = read(
        "{discover: {nodePools: true}, placement: {platforms: discovered}, profiles: {batch: {}}}",
    )
    .unwrap();
    assert!(inherited.config.profiles["batch"].placement.discovered);
}

#[test]
fn profiles_may_name_discovered_pools() {
    let read = |text: &str| Sources::default().read(text);
    assert!(read("profiles: {batch: {pools: [spot]}}").is_err());
    let loaded =
        read("{discover: {nodePools: true}, profiles: {batch: {pools: [spot]}, all: {}}}").unwrap();
    let profiles = &loaded.config.profiles;
    assert!(!profiles["batch"].opens_discovered && profiles["all"].opens_discovered);
}

#[test]
fn placement_without_effect_is_warned_about() {
    let warnings = |placement: &str| -> Vec<String> {
        let loaded = Sources::default()
            .read(&format!("placement: {placement}"))
            .unwrap();
        loaded
            .warnings()
            .iter()
            .map(|warning| warning.message.clone())
            .collect()
    };
    assert_eq!(
        warnings("{require: affinity, whenUnknown: [linux/amd64]}"),
        [""; 0]
    );
    assert_eq!(
        warnings("{whenUnknown: [linux/amd64]}"),
        ["whenUnknown has no effect while require is off"]
    );
    assert_eq!(
        warnings("{require: affinity, whenUnknown: [linux/s390x]}"),
        ["whenUnknown has linux/s390x, which is not in platforms"]
    );
}

#[test]
fn preferences_and_pod_labels_are_read() {
    let text = "{prefer: [{platform: linux/arm64, weight: 80}], podLabels: [team, example.com/x]}";
    let loaded = Sources::default()
        .read(&format!("placement: {text}"))
        .unwrap();
    let placement = &loaded.config.policy.placement;
    let expected = tolerarch_core::policy::Preference {
        platform: platforms(&["linux/arm64"]),
        weight: 80,
    };
    assert_eq!(placement.prefer, [expected]);
    assert_eq!(placement.pod_labels, ["team", "example.com/x"]);
    assert_eq!(Config::parse(&loaded.to_yaml()).unwrap(), loaded.config);

    for (text, message) in [
        (
            "{prefer: [{platform: linux/arm64}]}",
            "the preference has no weight; write 1 to 100",
        ),
        ("{prefer: [{weight: 1}]}", "the preference has no platform"),
        (
            "{prefer: [{platform: linux/arm64, weight: 0}]}",
            "a number from 1 to 100",
        ),
        (
            "{prefer: [{platform: linux/arm64, weight: 1}, {platform: linux/arm64, weight: 2}]}",
            "is preferred twice",
        ),
        ("{podLabels: [a b]}", "expected a label key"),
        ("{podLabels: [kubernetes.io/arch]}", "expected a label key"),
    ] {
        let faults = faults(text);
        assert!(
            faults.len() == 1 && faults[0].contains(message),
            "{text}: {faults:?}"
        );
    }
}

#[test]
fn selection_of_a_pool_is_read() {
    let load = |text: &str| Sources::default().read(text);
    let text = "pools: [{name: multi, platforms: [linux/amd64], select: {labels: {group: multi}}}]";
    let loaded = load(text).unwrap();
    let pool = &loaded.config.policy.pools[0];
    assert_eq!(pool.select["group"], "multi");
    assert!(pool.tolerations.is_empty());
    assert_eq!(Config::parse(&loaded.to_yaml()).unwrap(), loaded.config);

    let first = |text: &str| load(text).map(drop).unwrap_err()[0].message.clone();
    let pool = |more: &str| format!("pools: [{{preset: karpenter, select: {{labels: {more}}}}}]");
    for (text, message) in [
        (pool("{a b: c}"), "no label key"),
        (pool("{a: b c}"), "expected a label value"),
        (pool("{kubernetes.io/arch: arm64}"), "names an architecture"),
        (
            "pools: [{preset: gke-compute-class, prefer: {weight: 1, labels: {a: b}}}]".to_owned(),
            "remove prefer or select",
        ),
        (
            pool("{team: a}") + "\nplacement: {podLabels: [team]}",
            "placement.podLabels has team as well",
        ),
        (
            pool("{team: a}") + "\nprofiles: {one: {placement: {podLabels: [team]}}}",
            "placement.podLabels has team as well",
        ),
    ] {
        let faults = first(&text);
        assert!(faults.contains(message), "{text}: {faults}");
    }

    let text = "pools: [{preset: gke-compute-class, select: {labels: {cloud.google.com/compute-class: own}}}]";
    let loaded = load(text).unwrap();
    let warnings = loaded.warnings();
    assert!(
        warnings[0].message.contains(
            "selects nodes with cloud.google.com/compute-class=own and tolerates the taint cloud.google.com/compute-class=multi-arch"
        ),
        "{warnings:?}"
    );
}

#[test]
fn preference_of_a_pool_is_read() {
    let pool = |prefer: &str| {
        let text = format!("pools: [{{preset: karpenter, prefer: {prefer}}}]");
        Sources::default()
            .read(&text)
            .map_err(|faults| faults[0].message.clone())
    };
    let loaded =
        pool("{weight: 50, labels: {karpenter.sh/nodepool: multi-arch, plain: }}").unwrap();
    let prefer = loaded.config.policy.pools[0].prefer.as_ref().unwrap();
    assert_eq!((prefer.weight, prefer.labels.len()), (50, 2));
    assert_eq!(Config::parse(&loaded.to_yaml()).unwrap(), loaded.config);
    for none in ["", "{}", "{labels: {}}"] {
        assert_eq!(pool(none).unwrap().config.policy.pools[0].prefer, None);
    }
    for (prefer, message) in [
        ("{weight: 50}", "the preference has no labels"),
        ("{labels: {a: b}}", "the preference has no weight"),
        ("{weight: 101, labels: {a: b}}", "a number from 1 to 100"),
        ("{weight: 1, labels: {a b: c}}", "no label key"),
        ("{weight: 1, labels: {a: b c}}", "expected a label value"),
    ] {
        let faults = pool(prefer).unwrap_err();
        assert!(faults.contains(message), "{prefer}: {faults}");
    }
}
