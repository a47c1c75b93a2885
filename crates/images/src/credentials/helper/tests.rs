use super::super::testing::TestDir;
use super::*;
use crate::credentials::program::Program;
use tolerarch_support::concurrency::Tenant;

/// Makes a helper that records each run, then runs this script.
fn helper(dir: &TestDir, script: &str) -> Arc<Program> {
    let runs = dir.path("runs");
    dir.program(
        "docker-credential-test",
        &format!("echo run >>'{}'\n{script}", runs.display()),
    );
    Program::new(
        "credential helper",
        Helper::new("test", Some(dir.root().as_os_str())).unwrap(),
    )
}

async fn credential(helper: &Arc<Program>, host: &str) -> Option<Arc<Credential>> {
    helper
        .credentials(host, &Tenant::Operator)
        .await
        .unwrap()
        .pop()
}

fn basic(user: &str, password: &str) -> Option<Arc<Credential>> {
    Some(Arc::new(Credential::Basic {
        user: user.into(),
        password: password.to_owned().into(),
    }))
}

#[tokio::test]
async fn helper_receives_the_server_and_returns_credentials() {
    let dir = TestDir::new();
    let helper = helper(
        &dir,
        r#"[ "$*" = get ] || exit 1
read server
case $server in
  a.b:5000) echo '{"ServerURL":"a.b:5000","Username":"user","Secret":"word"}' ;;
  token) echo '{"Username":"<token>","Secret":"identity"}' ;;
  https://index.docker.io/v1/) echo '{"Username":"hub","Secret":"word"}' ;;
  empty) echo '{"Username":"","Secret":""}' ;;
  garbage) echo 'canary' ;;
  failing) echo '{"Username":"user","Secret":"word"}'; exit 1 ;;
  *) echo 'credentials not found in native keychain'; exit 1 ;;
esac"#,
    );
    let identity = Some(Arc::new(Credential::Identity("identity".to_owned().into())));
    for (host, expected) in [
        ("a.b:5000", basic("user", "word")),
        ("token", identity),
        ("docker.io", basic("hub", "word")),
        ("empty", None),
        ("garbage", None),
        ("failing", None),
        ("unknown", None),
    ] {
        assert_eq!(credential(&helper, host).await, expected, "{host}");
    }
}

/// A helper runs as often as a plugin whose answers are for a registry, or for a minute where it has no credential.
#[tokio::test]
async fn empty_answer_is_cached_for_its_registry() {
    let dir = TestDir::new();
    let helper = helper(
        &dir,
        r#"read server; [ "$server" = a.b ] && echo '{"Username":"user","Secret":"word"}'"#,
    );
    for _ in 0..3 {
        assert_eq!(credential(&helper, "a.b").await, basic("user", "word"));
        assert_eq!(credential(&helper, "c.d").await, None);
    }
    assert_eq!(dir.read("runs").lines().count(), 2);
    assert_eq!(helper.protocol.id("a.b"), helper.protocol.id("a.b"));
    assert_ne!(helper.protocol.id("a.b"), helper.protocol.id("c.d"));
}

#[test]
fn helper_name_must_not_be_a_path() {
    let dir = TestDir::new();
    dir.program("docker-credential-ecr-login", "");
    let new = |name: &str| Helper::new(name, Some(dir.root().as_os_str())).map(|_| ());
    assert_eq!(new("ecr-login"), Ok(()));
    assert!(Helper::new("ecr-login", Some(OsStr::new("bin:relative"))).is_err());
    for name in ["", "../x", "a/b", "a b", "a;b", "a$b", "é"] {
        assert!(
            new(name).unwrap_err().contains("letters, digits"),
            "{name:?}"
        );
    }
}
