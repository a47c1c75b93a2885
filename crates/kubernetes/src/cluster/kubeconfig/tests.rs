mod upstream;

use std::fs;

use tempfile::TempDir;

use super::*;

/// Names and contents of files.
const FILES: &[(&str, &str)] = &[
    (
        "context",
        "apiVersion: v1\nkind: Config\ncurrent-context: one\n",
    ),
    (
        "clusters",
        "clusters: [{name: c, cluster: {server: 'https://a.test', certificate-authority: ca.pem}}]\n",
    ),
    (
        "contexts",
        "contexts: [{name: one, context: {cluster: c, user: u, namespace: ''}}, {name: two, context: {cluster: d, namespace: team}}]\n",
    ),
    (
        "others",
        "current-context: two\nclusters: [{name: c, cluster: {}}, {name: d, cluster: {server: 'https://d.test'}}]\n",
    ),
    (
        "nulls",
        "apiVersion: v1\nkind: Config\nclusters: null\nusers: null\ncurrent-context: ''\n",
    ),
    ("empty", ""),
    ("comment", "# nothing\n---\n"),
    (
        "stray",
        "arn:aws:eks:eu-central-1:111122223333:cluster/services\n",
    ),
    ("torn", "users:\n- name: u\n  user: {token: hunter2\n"),
    ("deployment", "apiVersion: apps/v1\nkind: Deployment\n"),
    ("another", "apiVersion: v1\nkind: Secret\n"),
];

struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("ca.pem"), "").unwrap();
        for (name, text) in FILES {
            fs::write(home.path().join(name), text).unwrap();
        }
        Self(home)
    }

    /// Returns host, namespace and context for a `KUBECONFIG` with these files. An empty name is an empty entry.
    fn load(&self, files: &[&str], context: Option<&str>) -> Result<String, String> {
        let path = |name: &&str| {
            if name.is_empty() {
                PathBuf::new()
            } else {
                self.0.path().join(name)
            }
        };
        let list =
            std::env::join_paths(files.iter().map(path)).map_err(|error| error.to_string())?;
        summary(load(
            None,
            context,
            &Environment::from_iter([("KUBECONFIG", list)]),
        ))
    }
}

fn summary(loaded: Result<(Access, String), ConnectError>) -> Result<String, String> {
    let (access, context) = loaded.map_err(|error| error.to_string())?;
    let config = access.config;
    Ok(format!(
        "{} {} {context}",
        config.cluster_url.host().unwrap_or_default(),
        config.default_namespace
    ))
}

#[test]
fn merged_files_agree_with_kubectl() {
    let home = Home::new();
    for (files, context, expected) in [
        (
            &["context", "clusters", "contexts"][..],
            None,
            "a.test default one",
        ),
        (
            &["", "context", "missing", "", "clusters", "contexts"],
            None,
            "a.test default one",
        ),
        (
            &["empty", "comment", "context", "clusters", "contexts"],
            None,
            "a.test default one",
        ),
        (
            &["nulls", "context", "clusters", "contexts"],
            None,
            "a.test default one",
        ),
        (
            &["context", "clusters", "others", "contexts"],
            None,
            "a.test default one",
        ),
        (&["others", "context", "contexts"], None, "d.test team two"),
        (
            &["context", "others", "contexts"],
            Some("two"),
            "d.test team two",
        ),
    ] {
        assert_eq!(
            home.load(files, context).as_deref(),
            Ok(expected),
            "{files:?}"
        );
    }
}

#[test]
fn error_names_the_file_without_its_content() {
    let home = Home::new();
    for (files, words) in [
        (
            &["context", "stray", "clusters"][..],
            &["/stray is not a kubeconfig", "line 1"][..],
        ),
        (&["torn"], &["/torn is not a kubeconfig", "line "]),
        (
            &["deployment", "context"],
            &["/deployment is not a kubeconfig", "v1 and Config"],
        ),
        (&["another"], &["/another is not a kubeconfig"]),
        (
            &["nulls", "missing"],
            &["no current context", "/nulls, ", "/missing"],
        ),
        (&["context", "clusters"], &["no context \"one\""]),
    ] {
        let error = home.load(files, None).unwrap_err();
        assert!(
            words.iter().all(|word| error.contains(word)),
            "{files:?}: {error}"
        );
        assert!(
            !error.contains("hunter2") && !error.contains("arn:"),
            "{error}"
        );
    }
}

#[test]
fn named_file_or_home_file_is_read_without_a_list() {
    let home = Home::new();
    let whole = |server: &str| {
        format!("{}{}", FILES[0].1, FILES[2].1)
            + &format!("clusters: [{{name: c, cluster: {{server: 'https://{server}'}}}}]\n")
    };
    fs::create_dir(home.0.path().join(".kube")).unwrap();
    fs::write(home.0.path().join(".kube/config"), whole("home.test")).unwrap();
    fs::write(home.0.path().join("named"), whole("named.test")).unwrap();
    let of_home = Environment::from_iter([
        ("HOME", home.0.path().as_os_str()),
        ("KUBECONFIG", "".as_ref()),
    ]);
    assert_eq!(
        summary(load(None, None, &of_home)).unwrap(),
        "home.test default one"
    );
    let named = home.0.path().join("named");
    assert_eq!(
        summary(load(Some(&named), None, &of_home)).unwrap(),
        "named.test default one"
    );
    for (file, words) in [
        ("missing", "/missing cannot be read"),
        ("nulls", "no current context"),
    ] {
        let error = summary(load(Some(&home.0.path().join(file)), None, &of_home)).unwrap_err();
        assert!(
            error.contains("the kubeconfig cannot be used") && error.contains(words),
            "{error}"
        );
    }
}
