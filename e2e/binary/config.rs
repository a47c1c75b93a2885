//! `tolerarch config`: prints the effective configuration, or every error in it.

use std::fs;
use std::path::Path;

use super::program::run;

#[tokio::test]
async fn printed_configuration_is_a_valid_file() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["first.yaml", "second.yaml"].map(|name| directory.path().join(name));
    fs::write(
        &first,
        "mode: observe\npools: [{preset: gke}]\ncache:\n  tagTtl: 90s\n",
    )
    .unwrap();
    let (status, printed) = run(&[
        "config",
        "--config",
        first.to_str().unwrap(),
        "--log-level",
        "debug",
    ])
    .await;
    assert_eq!(status, Some(0), "{printed}");
    for (key, source) in [
        ("tagTtl: 90s", "first.yaml:4"),
        ("drain: 10s", "default"),
        ("level: debug", "--log-level"),
        ("value: arm64", "preset"),
    ] {
        assert!(
            printed
                .lines()
                .any(|line| line.contains(key) && line.ends_with(source)),
            "{key}:\n{printed}"
        );
    }
    fs::write(&second, &printed).unwrap();
    let (status, printed_again) = run(&["config", "--config", second.to_str().unwrap()]).await;
    let without_comments = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| {
                line.split(" # ")
                    .next()
                    .unwrap_or_default()
                    .trim_end()
                    .to_owned()
            })
            .collect()
    };
    assert_eq!(
        (status, without_comments(&printed_again)),
        (Some(0), without_comments(&printed))
    );
}

#[tokio::test]
async fn invalid_configuration_prints_every_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    fs::write(&file, "mdoe: observe\nlookup: {budget: soon}\n").unwrap();
    let (status, written) = run(&["config", "--config", file.to_str().unwrap()]).await;
    assert_eq!(status, Some(1), "{written}");
    for expected in [
        "config.yaml is not valid",
        "mdoe (line 1)",
        "did you mean mode?",
        "lookup.budget (line 2)",
    ] {
        assert!(written.contains(expected), "{expected} in {written}");
    }
}

#[tokio::test]
async fn named_files_need_not_exist() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    fs::write(
        &file,
        "registries: {hosts: {a.b: {caFile: /nonesuch/ca.crt}}}\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let (status, written) = run(&["config", "--config", file]).await;
    assert_eq!(status, Some(0), "{written}");
    let (status, written) = run(&["inspect", "--config", file, "a.b/c"]).await;
    assert!(
        status == Some(1) && written.contains("/nonesuch/ca.crt"),
        "{written}"
    );
}

#[tokio::test]
async fn schema_and_explanation_are_printed() {
    let (status, schema) = run(&["config", "--schema"]).await;
    assert_eq!(status, Some(0));
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    assert_eq!(
        schema["properties"]["mode"]["enum"],
        serde_json::json!(["enforce", "observe", null])
    );
    let (status, explained) = run(&["config", "--explain"]).await;
    assert!(
        status == Some(0) && explained.contains("tagTtl: 1h"),
        "{explained}"
    );
    assert_eq!(run(&["config", "--explain", "--schema"]).await.0, Some(2));
}

/// The chart's schema checks keys and types. Only the program checks whether settings fit together.
#[tokio::test]
async fn configurations_of_the_manifests_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut configs = vec![(
        "manifests".into(),
        fs::read_to_string(root.join("manifests/config.yaml")).unwrap(),
    )];
    for rendering in fs::read_dir(root.join("e2e/manifests/testdata/chart")).unwrap() {
        let rendering = rendering.unwrap().path();
        let text = fs::read_to_string(&rendering).unwrap();
        for rest in text.split("\n  config.yaml: |\n").skip(1) {
            let lines = rest.lines().map_while(|line| line.strip_prefix("    "));
            configs.push((
                rendering.display().to_string(),
                lines.collect::<Vec<_>>().join("\n"),
            ));
        }
    }
    assert!(configs.len() > 10, "{configs:?}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    for (name, config) in configs {
        fs::write(&file, config).unwrap();
        let (status, written) = run(&["config", "--config", file.to_str().unwrap()]).await;
        assert_eq!(status, Some(0), "{name}: {written}");
    }
}
