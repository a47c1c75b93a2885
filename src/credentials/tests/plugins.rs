//! Where kubelet's plugins are configured.

use super::*;

/// As kubelet 1.36 reads `--image-credential-provider-config`.
#[tokio::test]
async fn plugins_may_be_configured_in_a_directory() {
    let place = Place::new();
    for name in ["one", "two", "three"] {
        let answer = PLUGIN.replace("\"plugin\"", &format!("\"{name}\""));
        place.program(&format!("bin/{name}"), &answer.replace("a.b/team", "c.d"));
    }
    let config = |name: &str| PROVIDERS.replace("- name: plugin", &format!("- name: {name}"));
    place.write("d/20.json.yaml", &config("two"));
    place.write("d/10-z.yml", &config("one"));
    place.write("d/README.md", "canary");
    place.write("d/a.yaml.d/b.yaml", "canary");
    let link = |from: &str, to: &str| std::os::unix::fs::symlink(from, place.path(to)).unwrap();
    place.write("d/..data/30.json", &config("three"));
    link("..data/30.json", "d/30.json");
    let providers = ProviderSettings { config: Some(place.path("d")), bin_dir: Some(place.path("bin")) };
    let settings = CredentialSettings { providers, ..CredentialSettings::default() };
    let keyring = load(&place, &settings, &["a.b"]).unwrap().shared_keyring();
    let expected = ["one", "two", "three"].map(|name| format!("credential provider plugin {name}:1"));
    assert_eq!(shown(&keyring.candidates(&image("a.b/x"))).await, expected);

    place.write("d/40.yaml", &config("one"));
    let credentials = load(&place, &settings, &[]).unwrap();
    let fault = credentials.faults()[0].to_string();
    assert!(fault.ends_with("40.yaml: providers[0].name: there is another of this name"), "{fault}");
}
