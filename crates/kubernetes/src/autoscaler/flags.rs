//! Flags of a cluster-autoscaler, read from the command and the arguments of its container.

use super::status::Status;
use tolerarch_core::pod::is_name;

/// Name of the program, and of images that run it.
const PROGRAM: &str = "cluster-autoscaler";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// Names of the expanders: the first one chooses, and each further one chooses among the groups that are left.
    /// Empty for the default: `least-waste`, before version 1.33 `random`. `None` if the value is a variable.
    pub expanders: Option<Vec<String>>,
    /// Namespace of its ConfigMaps. `None` if the value is a variable: it then is the namespace of its Pod.
    pub namespace: Option<String>,
    /// Name of the ConfigMap of its status.
    pub status: String,
    pub ignored_taints: IgnoredTaints,
    /// Whether it divides new nodes between groups that it considers similar (`--balance-similar-node-groups`).
    pub balances: bool,
}

/// Taints that the cluster-autoscaler removes from simulated nodes, because such taints come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredTaints {
    keys: Vec<String>,
    prefixes: Vec<String>,
}

impl IgnoredTaints {
    /// Prefixes that the cluster-autoscaler ignores without a flag.
    const PREFIXES: [&str; 3] = [
        "ignore-taint.cluster-autoscaler.kubernetes.io/",
        "startup-taint.cluster-autoscaler.kubernetes.io/",
        "status-taint.cluster-autoscaler.kubernetes.io/",
    ];

    fn of(words: &[&str]) -> Self {
        let mut ignored = Self::default();
        for flag in ["startup-taint", "status-taint", "ignore-taint"] {
            for key in values(words, flag) {
                ignored.keys.push(key.to_owned());
            }
        }
        for prefix in values(words, "startup-taint-prefix") {
            ignored.prefixes.push(prefix.to_owned());
        }
        ignored
    }

    /// Returns whether taints with this key are ignored.
    pub fn has(&self, key: &str) -> bool {
        if self.keys.iter().any(|ignored| ignored == key) {
            return true;
        }
        let configured = self.prefixes.iter().map(String::as_str);
        let mut prefixes = configured.chain(Self::PREFIXES);
        prefixes.any(|prefix| key.starts_with(prefix))
    }
}

impl Flags {
    /// Reads the command and arguments of a container; `None` if the container does not run the cluster-autoscaler.
    pub fn of(image: &str, words: &[String]) -> Option<Self> {
        // A shell may run the program, with all flags in one argument.
        let words = words.iter().flat_map(|word| word.split_whitespace());
        let words: Vec<&str> = words.collect();
        if !is_program_image(image) && !runs_program(&words) {
            return None;
        }
        let expanders = match value(&words, "expander") {
            None => Some(Vec::new()),
            Some(text) if text.contains('$') => None,
            Some(text) => Some(text.split(',').map(str::to_owned).collect()),
        };
        let namespace = value(&words, "namespace").unwrap_or("kube-system");
        let status = value(&words, "status-config-map-name").filter(|name| is_name(name));
        Some(Self {
            expanders,
            namespace: is_name(namespace).then(|| namespace.to_owned()),
            status: status.unwrap_or(Status::CONFIG_MAP).to_owned(),
            ignored_taints: IgnoredTaints::of(&words),
            balances: is_set(&words, "balance-similar-node-groups"),
        })
    }
}

/// Returns whether a command runs the program. The value of a flag may have the program's name as well.
fn runs_program(words: &[&str]) -> bool {
    let mut is_value = false;
    for word in words {
        let is_flag = word.starts_with('-');
        if !is_flag && !is_value && word.rsplit('/').next() == Some(PROGRAM) {
            return true;
        }
        is_value = word.starts_with("--") && !word.contains('=');
    }
    false
}

/// Returns whether the last component of an image's name, without tag and digest, is the program's. Images for one
/// architecture end in its name.
fn is_program_image(image: &str) -> bool {
    let name = image.split('@').next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    let name = name.split(':').next().unwrap_or_default();
    match name.strip_prefix(PROGRAM) {
        Some("") => true,
        Some(suffix) => ["-amd64", "-arm64", "-ppc64le", "-s390x"].contains(&suffix),
        None => false,
    }
}

/// Returns the value of a flag: the last one if the flag is repeated.
fn value<'a>(words: &[&'a str], flag: &str) -> Option<&'a str> {
    values(words, flag).pop()
}

/// Returns the values of a flag that may be repeated: `--flag=value` or `--flag value`.
fn values<'a>(words: &[&'a str], flag: &str) -> Vec<&'a str> {
    let mut values = Vec::new();
    let mut words = words.iter().copied().peekable();
    while let Some(word) = words.next() {
        let Some(name) = word.strip_prefix("--") else {
            continue;
        };
        let value = match name.strip_prefix(flag) {
            Some("") => words.peek().copied(),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        if let Some(value) = value {
            values.push(value.trim_matches(['"', '\'']));
        }
    }
    values
}

/// Returns whether a boolean flag is on: `--flag` or `--flag=true`.
fn is_set(words: &[&str], flag: &str) -> bool {
    let mut is_set = false;
    for word in words {
        let Some(name) = word.strip_prefix("--") else {
            continue;
        };
        match name.strip_prefix(flag) {
            Some("" | "=true" | "=1" | "=t" | "=T" | "=TRUE" | "=True") => is_set = true,
            Some(rest) if rest.starts_with('=') => is_set = false,
            _ => {}
        }
    }
    is_set
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(image: &str, words: &[&str]) -> Option<Flags> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Flags::of(image, &words)
    }

    #[test]
    fn program_is_recognized_by_command_or_image() {
        let official = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.36.1";
        let hashed = "quay.io/release/art@sha256:0123";
        for (image, words, expected) in [
            (official, &["--v=4"][..], true),
            (
                "registry.k8s.io:443/autoscaling/cluster-autoscaler-arm64@sha256:0123",
                &[],
                true,
            ),
            (hashed, &["cluster-autoscaler", "--v=4"], true),
            (
                hashed,
                &["sh", "-c", "exec ./cluster-autoscaler --v=4"],
                true,
            ),
            (
                "quay.io/openshift/origin-cluster-autoscaler-operator:4.20",
                &["cluster-autoscaler-operator"],
                false,
            ),
            ("example.com/cluster-autoscaler-operator:1", &[], false),
            (
                hashed,
                &[
                    "/pod_nanny",
                    "--container=cluster-autoscaler",
                    "--deployment",
                    "cluster-autoscaler",
                ],
                false,
            ),
            (
                hashed,
                &["scaler", "--target=deployment/cluster-autoscaler"],
                false,
            ),
            (
                hashed,
                &["manager", "--leader=cluster-autoscaler-operator"],
                false,
            ),
            ("example.com/cluster-autoscaler/exporter:1", &[], false),
        ] {
            assert_eq!(flags(image, words).is_some(), expected, "{image} {words:?}");
        }
    }

    #[test]
    fn flags_are_read_in_both_forms() {
        let expanders = |words: &[&str]| flags("cluster-autoscaler", words).unwrap().expanders;
        let some = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(expanders(&["--v=4"]), some(&[]));
        assert_eq!(
            expanders(&["--expander=priority,least-waste"]),
            some(&["priority", "least-waste"])
        );
        assert_eq!(
            expanders(&["--expander", "priority", "--v=4"]),
            some(&["priority"])
        );
        assert_eq!(
            expanders(&["sh", "-c", "cluster-autoscaler --expander='price' >log"]),
            some(&["price"])
        );
        assert_eq!(
            expanders(&["--expander=random", "--expander=priority"]),
            some(&["priority"])
        );
        assert_eq!(expanders(&["--expander=$(EXPANDER)"]), None);
        assert_eq!(expanders(&["--expanders=x", "--expander"]), some(&[]));

        let config_maps = |words: &[&str]| {
            let flags = flags("cluster-autoscaler", words).unwrap();
            (flags.namespace, flags.status)
        };
        let expected = |namespace: Option<&str>, status: &str| {
            (namespace.map(str::to_owned), status.to_owned())
        };
        let configured = [
            "--namespace=autoscaling",
            "--status-config-map-name",
            "status",
        ];
        assert_eq!(
            config_maps(&configured),
            expected(Some("autoscaling"), "status")
        );
        assert_eq!(
            config_maps(&[]),
            expected(Some("kube-system"), "cluster-autoscaler-status")
        );
        let invalid = [
            "--namespace=$(POD_NAMESPACE)",
            "--status-config-map-name=../secrets/a",
        ];
        assert_eq!(
            config_maps(&invalid),
            expected(None, "cluster-autoscaler-status")
        );
    }

    #[test]
    fn taints_are_ignored_by_flags_and_by_prefixes() {
        let words = [
            "--startup-taint=a/b",
            "--status-taint",
            "c",
            "--ignore-taint=d",
            "--ignore-taint=e",
            "--startup-taint-prefix=f/",
        ];
        let ignored = flags("cluster-autoscaler", &words).unwrap().ignored_taints;
        for key in [
            "a/b",
            "c",
            "d",
            "e",
            "f/g",
            "startup-taint.cluster-autoscaler.kubernetes.io/x",
        ] {
            assert!(ignored.has(key), "{key}");
        }
        for key in ["a", "a/bc", "f", "tolerarch.io/multi-arch", ""] {
            assert!(!ignored.has(key), "{key}");
        }
    }

    #[test]
    fn boolean_flags_are_read() {
        let balances = |words: &[&str]| flags("cluster-autoscaler", words).unwrap().balances;
        assert!(!balances(&[]) && !balances(&["--balance-similar-node-groups=false"]));
        assert!(
            balances(&["--balance-similar-node-groups"])
                && balances(&["--balance-similar-node-groups=true"])
        );
    }
}
