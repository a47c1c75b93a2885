//! Flags of a cluster-autoscaler, as the container that runs it has them.

use super::status::Status;
use tolerarch_core::pod::is_name;

/// Name of the program, and of images that run it.
const PROGRAM: &str = "cluster-autoscaler";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// Names of expanders, the first of which decides, and each further one among the groups that are left; empty for
    /// the default: `least-waste`, before version 1.33 `random`. `None` for a value that only the process knows.
    pub expanders: Option<Vec<String>>,
    /// Namespace of its ConfigMaps; `None` for a value that only the process knows, which then is its Pod's namespace.
    pub namespace: Option<String>,
    /// Name of the ConfigMap of its status.
    pub status: String,
    pub ignored_taints: IgnoredTaints,
    /// Whether it divides new nodes between groups that it takes for similar (`--balance-similar-node-groups`).
    pub balances: bool,
}

/// Taints that the cluster-autoscaler takes off the nodes that it simulates, as they come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredTaints {
    keys: Vec<String>,
    prefixes: Vec<String>,
}

impl IgnoredTaints {
    /// Prefixes that count without a flag.
    const PREFIXES: [&str; 3] = [
        "ignore-taint.cluster-autoscaler.kubernetes.io/",
        "startup-taint.cluster-autoscaler.kubernetes.io/",
        "status-taint.cluster-autoscaler.kubernetes.io/",
    ];

    fn of(words: &[&str]) -> Self {
        let mut ignored = Self::default();
        for flag in ["startup-taint", "status-taint", "ignore-taint"] {
            ignored.keys.extend(values(words, flag).map(str::to_owned));
        }
        let prefixes = values(words, "startup-taint-prefix").map(str::to_owned);
        ignored.prefixes.extend(prefixes);
        ignored
    }

    /// Returns whether taints with this key are ignored.
    pub fn has(&self, key: &str) -> bool {
        let prefixes = self.prefixes.iter().map(String::as_str);
        let mut prefixes = prefixes.chain(Self::PREFIXES);
        self.keys.iter().any(|other| other == key) || prefixes.any(|prefix| key.starts_with(prefix))
    }
}

impl Flags {
    /// Reads the command and arguments of a container; `None` if the container does not run the cluster-autoscaler.
    pub fn of(image: &str, words: &[String]) -> Option<Self> {
        // A shell may run it, with all flags in one argument.
        let words: Vec<&str> = words
            .iter()
            .flat_map(|word| word.split_whitespace())
            .collect();
        if !is_image_of_it(image) && !runs_it(&words) {
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

/// Returns whether a command is the program, and not only named after it in an argument.
fn runs_it(words: &[&str]) -> bool {
    let mut is_value = false;
    for word in words {
        if word.rsplit('/').next() == Some(PROGRAM) && !word.starts_with('-') && !is_value {
            return true;
        }
        is_value = word.starts_with("--") && !word.contains('=');
    }
    false
}

/// Returns whether an image is a cluster-autoscaler by its name, without the registry, the tag and the digest. Images of
/// one architecture have its name at the end.
fn is_image_of_it(image: &str) -> bool {
    let name = image.split('@').next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    let name = name.split(':').next().unwrap_or_default();
    match name.strip_prefix(PROGRAM) {
        Some("") => true,
        Some(suffix) => ["-amd64", "-arm64", "-ppc64le", "-s390x"].contains(&suffix),
        None => false,
    }
}

/// Returns the value of a flag, of which the last one counts.
fn value<'a>(words: &[&'a str], flag: &str) -> Option<&'a str> {
    values(words, flag).last()
}

/// Returns the values of a flag that may be there several times: `--flag=value` or `--flag value`.
fn values<'a>(words: &[&'a str], flag: &str) -> impl Iterator<Item = &'a str> {
    words.iter().enumerate().filter_map(move |(at, word)| {
        let rest = word.strip_prefix("--")?.strip_prefix(flag)?;
        let value = if rest.is_empty() {
            words.get(at.checked_add(1)?).copied()?
        } else {
            rest.strip_prefix('=')?
        };
        Some(value.trim_matches(['"', '\'']))
    })
}

/// Returns whether a flag that is a switch is on: `--flag` or `--flag=true`.
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
    fn the_program_is_known_by_its_name_or_that_of_its_image() {
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

        let places = |words: &[&str]| {
            let flags = flags("cluster-autoscaler", words).unwrap();
            (flags.namespace, flags.status)
        };
        let expected = |namespace: Option<&str>, status: &str| {
            (namespace.map(str::to_owned), status.to_owned())
        };
        let own = [
            "--namespace=autoscaling",
            "--status-config-map-name",
            "status",
        ];
        assert_eq!(places(&own), expected(Some("autoscaling"), "status"));
        assert_eq!(
            places(&[]),
            expected(Some("kube-system"), "cluster-autoscaler-status")
        );
        let odd = [
            "--namespace=$(POD_NAMESPACE)",
            "--status-config-map-name=../secrets/a",
        ];
        assert_eq!(places(&odd), expected(None, "cluster-autoscaler-status"));
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
    fn switches_are_read() {
        let balances = |words: &[&str]| flags("cluster-autoscaler", words).unwrap().balances;
        assert!(!balances(&[]) && !balances(&["--balance-similar-node-groups=false"]));
        assert!(
            balances(&["--balance-similar-node-groups"])
                && balances(&["--balance-similar-node-groups=true"])
        );
    }
}
