use super::*;

#[test]
fn labels_are_closed_sets() {
    let metrics = Metrics::new(["docker.io"]).unwrap();
    metrics.looked_up("docker.io", LookupResult::Hit);
    metrics.looked_up("evil-1.test", LookupResult::Hit);
    metrics.looked_up("evil-2.test", LookupResult::Hit);
    metrics.registry_request("docker.io", RequestKind::Manifest).end("2xx");
    metrics.registry_request("evil-3.test", RequestKind::Token).end("unreachable");
    drop(metrics.registry_request("evil-3.test", RequestKind::Config));
    metrics.requests_left("docker.io", 99);
    metrics.requests_left("evil-4.test", 5);
    let text = metrics.render().unwrap();
    for line in [
        r#"tolerarch_lookups_total{registry="docker.io",result="hit"} 1"#,
        r#"tolerarch_lookups_total{registry="other",result="hit"} 2"#,
        r#"tolerarch_registry_requests_total{code="2xx",kind="manifest",registry="docker.io"} 1"#,
        r#"tolerarch_registry_requests_total{code="unreachable",kind="token",registry="other"} 1"#,
        r#"tolerarch_registry_ratelimit_remaining{registry="docker.io"} 99"#,
        r#"tolerarch_registry_requests_total{code="abandoned",kind="config",registry="other"} 1"#,
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert!(!text.contains("evil"));
}

#[test]
fn every_reason_is_there_from_the_start() {
    let metrics = Metrics::new([]).unwrap();
    metrics.reviewed(Reason::Tolerated, Duration::from_millis(1));
    let text = metrics.render().unwrap();
    for reason in Reason::ALL {
        assert!(text.contains(&format!("tolerarch_reviews_total{{reason=\"{reason}\"}} ")), "{reason}");
    }
    assert!(text.contains("tolerarch_review_duration_seconds_count{reason=\"tolerated\"} 1"));
    assert!(text.contains("process_open_fds"));
}

#[test]
fn what_is_under_way_ends() {
    let metrics = Metrics::new([]).unwrap();
    let lookup = metrics.lookup_in_flight();
    assert!(metrics.render().unwrap().contains("tolerarch_lookups_in_flight 1"));
    drop(lookup);
    assert!(metrics.render().unwrap().contains("tolerarch_lookups_in_flight 0"));
}

#[test]
fn the_readme_has_every_metric_and_no_other() {
    let readme = include_str!("../../README.md");
    let metrics = Metrics::new([]).unwrap();
    // Families without a child are not gathered.
    metrics.registry_request("a.test", RequestKind::Token).end("2xx");
    metrics.requests_left("docker.io", 1);
    let names: Vec<String> =
        metrics.0.registry.gather().iter().map(|family| family.name().to_owned()).collect();
    for name in names.iter().filter(|name| !name.starts_with("process_")) {
        assert!(readme.contains(&format!("`{name}`")), "{name} is not in the README");
    }
    for name in readme.split('`').filter(|text| text.starts_with("tolerarch_")) {
        assert!(names.iter().any(|known| known == name), "{name} is in the README only");
    }
}
