use super::super::testing::{TestDir, limits};
use super::*;

/// A helper that runs this script after it has counted its run.
fn helper(dir: &TestDir, script: &str) -> Arc<Helper> {
    let runs = dir.path("runs");
    dir.program("docker-credential-test", &format!("echo run >>'{}'\n{script}", runs.display()));
    Arc::new(Helper::new("test", &[dir.root().into()], limits()).unwrap())
}

fn runs(dir: &TestDir) -> usize {
    dir.read("runs").lines().count()
}

fn basic(user: &str, password: &str) -> Option<Arc<Credential>> {
    Some(Arc::new(Credential::Basic { user: user.into(), password: password.to_owned().into() }))
}

#[tokio::test]
async fn speaks_dockers_protocol() {
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
        assert_eq!(helper.credential(host, &Callers::operator()).await, Ok(expected), "{host}");
    }
}

#[tokio::test]
async fn runs_once_for_all_who_ask() {
    let dir = TestDir::new();
    let helper = helper(&dir, r#"echo '{"Username":"user","Secret":"word"}'"#);
    let callers = Callers::operator();
    let both = tokio::join!(helper.credential("a.b", &callers), helper.credential("a.b", &callers));
    assert_eq!(both, (Ok(basic("user", "word")), Ok(basic("user", "word"))));
    helper.credential("a.b", &Callers::operator()).await.unwrap();
    assert_eq!(runs(&dir), 1);
    helper.credential("c.d", &Callers::operator()).await.unwrap();
    assert_eq!(runs(&dir), 2);
    assert_eq!(helper.id("a.b"), helper.id("a.b"));
    assert_ne!(helper.id("a.b"), helper.id("c.d"));
}

#[tokio::test]
async fn remembers_also_that_there_is_nothing() {
    let dir = TestDir::new();
    let helper = helper(&dir, "exit 1");
    for _ in 0..3 {
        assert_eq!(helper.credential("a.b", &Callers::operator()).await, Ok(None));
    }
    assert_eq!(runs(&dir), 1);
}

#[tokio::test]
async fn a_run_that_never_began_says_nothing() {
    let dir = TestDir::new();
    let helper = helper(&dir, r#"echo '{"Username":"user","Secret":"word"}'"#);
    let all = helper.runner.all_slots().await;
    tokio::time::pause();
    assert_eq!(helper.credential("a.b", &Callers::operator()).await, Err(Busy));
    tokio::time::resume();
    drop(all);
    assert_eq!(helper.credential("a.b", &Callers::operator()).await, Ok(basic("user", "word")));
}

#[tokio::test]
async fn runs_again_for_a_refused_credential_but_not_at_once() {
    let dir = TestDir::new();
    let helper = helper(&dir, &format!("cat '{}'", dir.path("answer").display()));
    dir.write("answer", r#"{"Username":"user","Secret":"old"}"#);
    assert_eq!(helper.credential("a.b", &Callers::operator()).await, Ok(basic("user", "old")));
    dir.write("answer", r#"{"Username":"user","Secret":"new"}"#);
    assert!(!helper.refetch("a.b", &Callers::operator()).await, "it ran a moment ago");
    helper.answers.put(CacheKey::Recent("a.b".into()), None, Duration::ZERO);
    assert!(helper.refetch("a.b", &Callers::operator()).await);
    assert_eq!(helper.credential("a.b", &Callers::operator()).await, Ok(basic("user", "new")));
    helper.answers.put(CacheKey::Recent("a.b".into()), None, Duration::ZERO);
    assert!(!helper.refetch("a.b", &Callers::operator()).await, "nothing has changed");
    assert_eq!(runs(&dir), 3);
}

#[test]
fn a_helper_is_a_name_and_not_a_path() {
    let dir = TestDir::new();
    dir.program("docker-credential-ecr-login", "");
    let new = |name: &str| Helper::new(name, &[dir.root().into()], limits()).map(|_| ());
    assert_eq!(new("ecr-login"), Ok(()));
    for name in ["", "../x", "a/b", "a b", "a;b", "a$b", "é"] {
        assert!(new(name).unwrap_err().contains("letters, digits"), "{name:?}");
    }
}
