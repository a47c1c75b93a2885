use super::*;
use tolerarch_support::metrics::counted;

#[test]
fn hosts_without_label_count_as_other() {
    let metrics = Metrics::new(["docker.io"]).unwrap();
    let counts = ResolverMetrics::register(&metrics).unwrap();
    for host in [
        "docker.io",
        "docker.io:443",
        "evil-1.test",
        "evil-2.test",
        "evil-3.test",
    ] {
        counts.count_lookup(host, LookupResult::Hit);
    }
    let text = metrics.render().unwrap();
    for (host, hits) in [("docker.io", 2), ("other", 3)] {
        let line = format!(r#"tolerarch_lookups_total{{registry="{host}",result="hit"}} {hits}"#);
        assert!(text.contains(&line), "{line} in\n{text}");
    }
    assert!(!text.contains("evil"));
}

#[test]
fn lookups_in_flight_are_counted_until_they_end() {
    let metrics = Metrics::new([]).unwrap();
    let lookup = counted(
        &ResolverMetrics::register(&metrics)
            .unwrap()
            .families
            .in_flight,
    );
    assert!(
        metrics
            .render()
            .unwrap()
            .contains("tolerarch_lookups_in_flight 1")
    );
    drop(lookup);
    assert!(
        metrics
            .render()
            .unwrap()
            .contains("tolerarch_lookups_in_flight 0")
    );
}
