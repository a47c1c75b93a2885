use super::super::provider::{Provider, read};
use super::super::testing::TestDir;
use super::*;

const CONFIG: &str = r"
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
  - name: plugin
    apiVersion: credentialprovider.kubelet.k8s.io/v1
    matchImages: [
      '*.example.com',
      'a.b:5000/team'#of a team
    ]
    defaultCacheDuration: 1h
    args: [first, second arg]
    env:
      - {name: CANARY, value: canary}
";

fn providers(dir: &TestDir, config: &str) -> Vec<Provider> {
    read(config, dir.root(), &[]).unwrap()
}

/// Makes a plugin that records each run, then runs this script with the request in `$request`.
fn plugin_with(dir: &TestDir, script: &str, config: &str) -> Arc<Program> {
    dir.program(
        "plugin",
        &format!(
            "request=$(cat); echo \"$request\" >>'{}'\n{script}",
            dir.path("runs").display()
        ),
    );
    let mut providers = providers(dir, config);
    assert_eq!(providers.len(), 1);
    Program::new("credential provider plugin", providers.remove(0))
}

fn is_for(provider: &Provider, image: &str) -> bool {
    provider
        .match_images
        .iter()
        .any(|pattern| pattern.matches(image))
}

fn plugin(dir: &TestDir, script: &str) -> Arc<Program> {
    plugin_with(dir, script, CONFIG)
}

fn runs(dir: &TestDir) -> usize {
    dir.read("runs").lines().count()
}

/// Makes a script that prints this answer.
fn answer_script(cache_key: &str, more: &str, auth: &str) -> String {
    format!(
        "echo '{{\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1\",\"kind\":\"CredentialProviderResponse\",\"cacheKeyType\":\"{cache_key}\",{more}\"auth\":{auth}}}'"
    )
}

const AUTH: &str = r#"{"r.example.com":{"username":"user","password":"word"}}"#;

async fn passwords(plugin: &Arc<Program>, image: &str) -> Vec<String> {
    let text = |credential: Arc<Credential>| match &*credential {
        Credential::Basic { user, password } => format!("{user}:{}", password.reveal()),
        other => format!("{other:?}"),
    };
    plugin
        .credentials(image, &Tenant::Operator)
        .await
        .unwrap()
        .into_iter()
        .map(text)
        .collect()
}

#[tokio::test]
async fn plugin_gets_and_sends_what_kubelet_defines() {
    let dir = TestDir::new();
    let auth = r#"{"r.example.com":{"username":"'"$CANARY"'","password":"'"$1/$2"'"},"r.example.com/team":{"username":"team","password":"'"$HOME"'"},"other.com":{"username":"no","password":"no"}}"#;
    let plugin = plugin(&dir, &answer_script("Image", "", auth));
    let provider = &providers(&dir, CONFIG)[0];
    assert!(is_for(provider, "r.example.com/team/app"));
    assert!(is_for(provider, "a.b:5000/team/app"));
    assert!(!is_for(provider, "a.b/team/app"));
    assert!(!is_for(provider, "r.s.example.com/team/app"));
    let home = tolerarch_support::environment::Environment::of_process()
        .text("HOME")
        .unwrap_or_default();
    assert_eq!(
        passwords(&plugin, "r.example.com/team/app").await,
        [format!("team:{home}"), "canary:first/second arg".into()]
    );
    let request: serde_json::Value = serde_json::from_str(&dir.read("runs")).unwrap();
    assert_eq!(
        request,
        serde_json::json!({
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "kind": "CredentialProviderRequest",
            "image": "r.example.com/team/app",
        })
    );
}

#[tokio::test]
async fn answer_is_used_within_its_scope() {
    for (cache_key, expected) in [("Image", 3), ("Registry", 2), ("Global", 1)] {
        let dir = TestDir::new();
        let plugin = plugin(
            &dir,
            &answer_script(
                cache_key,
                "",
                r#"{"*.example.com":{"username":"u","password":"p"}}"#,
            ),
        );
        for _ in 0..2 {
            for image in ["r.example.com/a", "r.example.com/b", "s.example.com/a"] {
                assert_eq!(passwords(&plugin, image).await, ["u:p"]);
            }
        }
        assert_eq!(runs(&dir), expected, "{cache_key}");
    }
}

#[tokio::test]
async fn answer_is_cached_for_its_duration() {
    let default_none = CONFIG.replace("1h", "0s");
    for (config, duration, expected) in [
        (CONFIG, "", 1),
        (CONFIG, r#""cacheDuration":null,"#, 1),
        (CONFIG, r#""cacheDuration":"6h0m0s","#, 1),
        (CONFIG, r#""cacheDuration":"5h59m59.999999999s","#, 1),
        (CONFIG, r#""cacheDuration":"2540400h10m10s","#, 1),
        (CONFIG, r#""cacheDuration":"0s","#, 2),
        (CONFIG, r#""cacheDuration":"-1h","#, 2),
        (&default_none, "", 2),
        (&default_none, r#""cacheDuration":"1h","#, 1),
    ] {
        let dir = TestDir::new();
        let plugin = plugin_with(&dir, &answer_script("Registry", duration, AUTH), config);
        for _ in 0..2 {
            assert_eq!(
                passwords(&plugin, "r.example.com/a").await,
                ["user:word"],
                "{duration}"
            );
        }
        assert_eq!(runs(&dir), expected, "{duration}");
    }
}

/// As in kubelet's decoder, null counts as missing, and an empty entry is no credential.
#[tokio::test]
async fn optional_members_of_an_answer_may_be_missing() {
    for (auth, expected) in [
        (
            r#"{"r.example.com":{"username":"user","password":null}}"#,
            &["user:"][..],
        ),
        (
            r#"{"r.example.com":{"username":null,"password":"word"}}"#,
            &[":word"],
        ),
        (r#"{"r.example.com":{}}"#, &[]),
        (r#"{"r.example.com":{"username":"","password":""}}"#, &[]),
        (
            r#"{"r.example.com":null,"*.example.com":{"username":"u","password":"p"}}"#,
            &["u:p"],
        ),
        ("null", &[]),
    ] {
        let dir = TestDir::new();
        let plugin = plugin(&dir, &answer_script("Image", "", auth));
        assert_eq!(
            passwords(&plugin, "r.example.com/a").await,
            expected,
            "{auth}"
        );
        assert_eq!(
            passwords(&plugin, "r.example.com/a").await,
            expected,
            "{auth}"
        );
        assert_eq!(runs(&dir), 1, "{auth}");
    }
}

#[test]
fn configuration_is_read_as_by_kubelet() {
    let dir = TestDir::new();
    dir.program("plugin", "");
    for config in [
        CONFIG.replace("value: canary", "value: null"),
        CONFIG.replace(", value: canary", ""),
        CONFIG.replace("value: canary", "value: ''"),
    ] {
        assert_eq!(
            providers(&dir, &config)[0].env,
            [("CANARY".to_owned(), String::new())],
            "{config}"
        );
    }
    let broken_end = format!("{CONFIG}---\nother: [document\n");
    for config in [
        format!("{CONFIG}---\n"),
        format!("---{CONFIG}---\nother: document\n"),
        broken_end,
    ] {
        assert_eq!(providers(&dir, &config).len(), 1, "{config}");
    }
    let twice = format!("{CONFIG}    args: []\n");
    let fault = read(&twice, dir.root(), &[]).unwrap_err();
    assert_eq!(fault, "line 15: duplicate field `args`");
}

#[tokio::test]
async fn concurrent_lookups_of_an_image_share_a_run() {
    let dir = TestDir::new();
    let plugin = plugin(
        &dir,
        &answer_script("Image", r#""cacheDuration":"0s","#, AUTH),
    );
    let (one, other) = tokio::join!(
        passwords(&plugin, "r.example.com/a"),
        passwords(&plugin, "r.example.com/a")
    );
    assert_eq!((one, runs(&dir)), (other, 1));
}

#[tokio::test]
async fn configured_api_version_is_used() {
    for version in ["v1beta1", "v1alpha1"] {
        let config = CONFIG.replace("k8s.io/v1", &format!("k8s.io/{version}"));
        let answer = answer_script("Image", "", AUTH);
        let dir = TestDir::new();
        let spoken = plugin_with(
            &dir,
            &answer.replace("k8s.io/v1", &format!("k8s.io/{version}")),
            &config,
        );
        assert_eq!(
            passwords(&spoken, "r.example.com/a").await,
            ["user:word"],
            "{version}"
        );
        let dir = TestDir::new();
        let other = plugin_with(&dir, &answer, &config);
        assert!(
            passwords(&other, "r.example.com/a").await.is_empty(),
            "{version}"
        );
    }
}

#[tokio::test]
async fn failed_plugin_is_not_run_again_at_once() {
    let good = answer_script("Image", "", AUTH);
    for script in [
        "exit 1".to_owned(),
        format!("{good}; echo canary >&2; exit 1"),
        "echo canary".to_owned(),
        String::new(),
        good.replace("CredentialProviderResponse", "CredentialProviderRequest"),
        good.replace("\"Image\"", "\"Pod\""),
        good.replace("\"auth\"", "\"auht\""),
        good.replace("\"password\"", "\"passwrod\""),
        answer_script("Image", r#""cacheDuration":"1 hour","#, AUTH),
        format!("{good}; while :; do echo canarycanarycanarycanary; done"),
    ] {
        let dir = TestDir::new();
        let plugin = plugin(&dir, &script);
        for _ in 0..2 {
            assert!(
                passwords(&plugin, "r.example.com/a").await.is_empty(),
                "{script}"
            );
        }
        assert_eq!(runs(&dir), 1, "{script}");
    }
    let dir = TestDir::new();
    let hanging = plugin(&dir, "exec sleep 600");
    tokio::time::pause();
    assert!(passwords(&hanging, "r.example.com/a").await.is_empty());
}

/// A tenant names images that a registry denies. A plugin must not run for each of them.
#[tokio::test]
async fn refused_answer_is_dropped_after_ten_seconds() {
    let dir = TestDir::new();
    let plugin = plugin(&dir, &format!(". '{}'", dir.path("answer").display()));
    dir.write(
        "answer",
        &answer_script("Registry", "", &AUTH.replace(":\"word", ":\"old")),
    );
    assert_eq!(passwords(&plugin, "r.example.com/a").await, ["user:old"]);
    dir.write(
        "answer",
        &answer_script("Registry", "", &AUTH.replace(":\"word", ":\"new")),
    );
    plugin.refused("r.example.com/a");
    assert_eq!(
        passwords(&plugin, "r.example.com/a").await,
        ["user:old"],
        "it ran a moment ago"
    );
    tokio::time::pause();
    tokio::time::advance(REFUSED_LIFE).await;
    tokio::time::resume();
    plugin.refused("r.example.com/b");
    assert_eq!(
        passwords(&plugin, "r.example.com/a").await,
        ["user:new"],
        "the answer was for all of the registry"
    );
    assert_eq!(runs(&dir), 2);
}

#[tokio::test]
async fn failure_is_cached_in_the_scope_of_the_last_answer() {
    for (scope, expected) in [("Image", 3), ("Registry", 2), ("Global", 1)] {
        let dir = TestDir::new();
        let answer = answer_script(scope, r#""cacheDuration":"0s","#, AUTH);
        let plugin = plugin(
            &dir,
            &format!(
                "[ -e '{}' ] && exit 1; {answer}",
                dir.path("fails").display()
            ),
        );
        passwords(&plugin, "r.example.com/before").await;
        dir.write("fails", "");
        for image in ["r.example.com/a", "r.example.com/b", "s.example.com/a"] {
            assert!(passwords(&plugin, image).await.is_empty());
        }
        assert_eq!(runs(&dir), 1 + expected, "{scope}");
    }
}

#[tokio::test]
async fn wider_answer_precedes_a_cached_failure() {
    let dir = TestDir::new();
    let answer = answer_script(
        "Global",
        "",
        &AUTH.replace("r.example.com", "*.example.com"),
    );
    let plugin = plugin(
        &dir,
        &format!(
            "[ -e '{}' ] && exit 1; {answer}",
            dir.path("fails").display()
        ),
    );
    let fails = dir.write("fails", "");
    assert!(passwords(&plugin, "r.example.com/a").await.is_empty());
    std::fs::remove_file(fails).unwrap();
    for image in ["s.example.com/a", "r.example.com/b"] {
        assert_eq!(passwords(&plugin, image).await, ["user:word"], "{image}");
    }
    assert_eq!(runs(&dir), 2);
}

/// A wait for other runs says nothing about a plugin.
#[tokio::test]
async fn run_that_never_began_is_not_cached() {
    let dir = TestDir::new();
    let plugin = plugin(&dir, &answer_script("Image", "", AUTH));
    let mut all = Vec::new();
    for registry in 0..RUNS {
        all.push(
            plugin
                .acquire(&registry.to_string(), &Tenant::Operator)
                .await
                .unwrap(),
        );
    }
    tokio::time::pause();
    let busy = plugin
        .credentials("r.example.com/a", &Tenant::Operator)
        .await;
    assert_eq!(busy, Err(Busy));
    tokio::time::resume();
    drop(all);
    assert_eq!(passwords(&plugin, "r.example.com/a").await, ["user:word"]);
}

#[test]
fn plugin_with_token_attributes_is_left_out() {
    let dir = TestDir::new();
    for name in ["plugin", "other"] {
        dir.program(name, "");
    }
    let config = format!(
        "{CONFIG}    tokenAttributes: {{serviceAccountTokenAudience: x, requireServiceAccount: true, cacheType: Token}}\n{}",
        CONFIG
            .split_once("providers:\n")
            .unwrap()
            .1
            .replace("name: plugin", "name: other")
    );
    let plugins = providers(&dir, &config);
    let names: Vec<_> = plugins.iter().map(|plugin| &plugin.name).collect();
    assert_eq!(names, ["other"]);
}

#[test]
fn json_and_older_versions_are_accepted() {
    let dir = TestDir::new();
    dir.program("plugin", "");
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let json = serde_json::json!({
            "apiVersion": format!("kubelet.config.k8s.io/{version}"),
            "kind": "CredentialProviderConfig",
            "providers": [{
                "name": "plugin",
                "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
                "matchImages": ["a.b"],
                "defaultCacheDuration": "12h",
            }],
        });
        let parsed = providers(&dir, &json.to_string());
        assert_eq!(
            parsed[0].default_cache_duration,
            Duration::from_secs(12 * 3600)
        );
        assert_eq!(parsed[0].program, dir.path("plugin"));
    }
}

/// The documentation's examples work unchanged.
#[test]
fn examples_of_the_documentation_are_read() {
    let page = include_str!("../../../../../docs/credentials.md");
    let example = page
        .split("```yaml\n")
        .find(|part| part.starts_with("# providers.yaml"))
        .unwrap();
    let example = example.split("```").next().unwrap();
    let dir = TestDir::new();
    for name in [
        "ecr-credential-provider",
        "auth-provider-gcp",
        "acr-credential-provider",
    ] {
        dir.program(name, "");
    }
    let plugins = providers(&dir, example);
    for (image, expected) in [
        (
            "123456789012.dkr.ecr.eu-central-1.amazonaws.com/app",
            "ecr-credential-provider",
        ),
        (
            "123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com/app",
            "ecr-credential-provider",
        ),
        (
            "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/app",
            "ecr-credential-provider",
        ),
        (
            "123456789012.dkr-ecr.us-east-2.on.aws/app",
            "ecr-credential-provider",
        ),
        (
            "123456789012.dkr-ecr-fips.us-east-2.on.aws/app",
            "ecr-credential-provider",
        ),
        (
            "123456789012.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn/app",
            "ecr-credential-provider",
        ),
        (
            "123456789012.dkr.ecr.eusc-de-east-1.amazonaws.eu/app",
            "ecr-credential-provider",
        ),
        (
            "123456789012.dkr.ecr.us-isof-east-1.csp.hci.ic.gov/app",
            "ecr-credential-provider",
        ),
        (
            "public.ecr.aws/docker/library/nginx",
            "ecr-credential-provider",
        ),
        (
            "ecr-public.aws.com/docker/library/nginx",
            "ecr-credential-provider",
        ),
        (
            "europe-west1-docker.pkg.dev/project/repository/app",
            "auth-provider-gcp",
        ),
        ("eu.gcr.io/project/app", "auth-provider-gcp"),
        ("gcr.io/project/app", "auth-provider-gcp"),
        ("company.azurecr.io/app", "acr-credential-provider"),
    ] {
        let chosen: Vec<_> = plugins
            .iter()
            .filter(|plugin| is_for(plugin, image))
            .map(|plugin| &plugin.name)
            .collect();
        assert_eq!(chosen, [expected], "{image}");
    }
    assert!(
        plugins
            .iter()
            .all(|plugin| !is_for(plugin, "docker.io/library/nginx"))
    );
}

mod isolation;
