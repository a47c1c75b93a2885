//! Where kubelet's plugins are configured.

use super::*;

/// As kubelet 1.36 reads `--image-credential-provider-config`.
#[tokio::test]
async fn plugins_of_a_directory_are_read() {
    let dir = TestDir::new();
    for name in ["one", "two", "three"] {
        let answer = PLUGIN.replace("\"plugin\"", &format!("\"{name}\""));
        dir.program(&format!("bin/{name}"), &answer.replace("a.b/team", "c.d"));
    }
    let config = |name: &str| PROVIDERS.replace("- name: plugin", &format!("- name: {name}"));
    dir.write("d/20.json.yaml", &config("two"));
    dir.write("d/10-z.yml", &config("one"));
    dir.write("d/README.md", "canary");
    dir.write("d/a.yaml.d/b.yaml", "canary");
    let link = |from: &str, to: &str| std::os::unix::fs::symlink(from, dir.path(to)).unwrap();
    dir.write("d/..data/30.json", &config("three"));
    link("..data/30.json", "d/30.json");
    let providers = ProviderSettings {
        config: Some(dir.path("d")),
        bin_dir: Some(dir.path("bin")),
    };
    let settings = CredentialSettings {
        providers,
        ..CredentialSettings::default()
    };
    let keyring = load(&dir, &settings, &["a.b"]).unwrap().shared_keyring();
    let expected =
        ["one", "two", "three"].map(|name| format!("credential provider plugin {name}:1"));
    assert_eq!(
        presented(&keyring.candidates(&image("a.b/x"))).await,
        expected
    );

    dir.write("d/40.yaml", &config("one"));
    let credentials = load(&dir, &settings, &[]).unwrap();
    let fault = credentials.faults()[0].to_string();
    assert!(
        fault.ends_with("40.yaml: providers[0].name: there is another of this name"),
        "{fault}"
    );
}
