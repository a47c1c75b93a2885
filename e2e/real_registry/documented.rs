//! The tables of `docs/registries.md`, generated from the registries that the tests run or play.

use std::fmt::Write;
use std::path::Path;

use testregistry::personality::{Needs, PERSONALITIES, Personality};
use tolerarch_support::environment::Environment;

/// Rows on registries that the tests run: name, needed settings, hosts to reach, and the test.
const RUN: [[&str; 4]; 11] = [
    [
        "distribution, Docker's own, 3 and 2.8",
        "nothing",
        "-",
        "agreement::distribution_without_authentication",
    ],
    [
        "… with a password",
        "nothing",
        "-",
        "agreement::distribution_with_a_password",
    ],
    [
        "… with tokens from another host, or another port of an IP address",
        "`tokenHosts`; [nothing](#played-in-the-tests) where both are of one domain",
        "that host",
        "agreement::distribution_with_tokens_from_another_port",
    ],
    [
        "… with a self-signed certificate",
        "`caFile`: that certificate",
        "-",
        "agreement::distribution_with_a_self_signed_certificate",
    ],
    [
        "… as a pull-through cache",
        "nothing",
        "-",
        "agreement::distribution_as_a_cache",
    ],
    [
        "… with its blobs in an S3",
        "nothing; without TLS `plainHttp` of the S3",
        "the S3",
        "agreement::distribution_with_its_blobs_in_an_s3",
    ],
    [
        "go-containerregistry, `crane registry serve`",
        "`plainHttp`: it has no TLS",
        "-",
        "agreement::go_containerregistry",
    ],
    [
        "nginx that sends clients to another host, also as registry.k8s.io does",
        "nothing",
        "that host, and where it has its tokens",
        "fronts::front_like_that_of_registry_k8s_io",
    ],
    [
        "nginx with TLS in front of a registry that names `http://` in its challenge",
        "nothing",
        "-",
        "fronts::registry_behind_a_tls_proxy",
    ],
    [
        "Keycloak as the token server of distribution",
        "`tokenHosts`; nothing where both are of one domain",
        "Keycloak",
        "heavy::keycloak_in_front_of_distribution",
    ],
    [
        "Pulp",
        "nothing; without TLS `plainHttp` of its content server",
        "its content server",
        "heavy::pulp::pulp_with_its_blobs_at_another_port",
    ],
];

fn run_table() -> String {
    let mut table = "| what | needs | has to reach | test |\n|---|---|---|---|\n".to_owned();
    for [what, needs, reach, test] in RUN {
        writeln!(table, "| {what} | {needs} | {reach} | `zoo::{test}` |").unwrap();
    }
    table
}

fn played_table() -> String {
    let mut table = "| registry | such as | needs | has to reach |\n|---|---|---|---|\n".to_owned();
    for personality in PERSONALITIES {
        let Personality {
            name,
            image,
            needs,
            operator_needs,
            ..
        } = personality;
        let mut text = needs_text(needs);
        if operator_needs != needs {
            text += &format!("; for a password of yours {}", needs_text(operator_needs));
        }
        let others: Vec<String> = personality
            .others()
            .iter()
            .map(|host| format!("`{host}`"))
            .collect();
        let others = if others.is_empty() {
            "-".to_owned()
        } else {
            others.join(", ")
        };
        writeln!(table, "| {name} | `{image}` | {text} | {others} |").unwrap();
    }
    table
}

fn needs_text(needs: &Needs) -> String {
    match needs {
        Needs::Nothing => "nothing".to_owned(),
        Needs::CaFile => "`caFile`: the cluster's own authority".to_owned(),
        Needs::TokenHosts(host) => format!("`tokenHosts: [{host}]`"),
    }
}

/// Returns the page with this table between its marks.
fn with_table(page: &str, name: &str, table: &str) -> String {
    let begin =
        format!("<!-- {name}: made by UPDATE=1 cargo test --test real_registry documented -->\n");
    let (before, rest) = page
        .split_once(&begin)
        .expect("a mark where the table begins");
    let (_, after) = rest
        .split_once("<!-- end -->")
        .expect("a mark where it ends");
    format!("{before}{begin}{table}<!-- end -->{after}")
}

#[test]
fn documented() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/registries.md");
    let page = std::fs::read_to_string(&file).unwrap();
    let expected = with_table(
        &with_table(&page, "run", &run_table()),
        "played",
        &played_table(),
    );
    if Environment::of_process().get("UPDATE").is_some() {
        std::fs::write(&file, expected).unwrap();
    } else {
        assert!(
            page == expected,
            "run UPDATE=1 cargo test --test real_registry documented"
        );
    }
}

#[test]
fn each_row_names_a_test() {
    let sources = [
        include_str!("zoo/agreement.rs"),
        include_str!("zoo/fronts.rs"),
        include_str!("zoo/heavy.rs"),
        include_str!("zoo/heavy/pulp.rs"),
    ]
    .concat();
    for [what, .., test] in RUN {
        let (_, name) = test.rsplit_once("::").unwrap();
        assert!(
            sources.contains(&format!("async fn {name}()")),
            "{what}: {test}"
        );
    }
}

#[test]
fn each_personality_has_a_source_and_a_unique_name() {
    let mut names: Vec<&str> = PERSONALITIES
        .iter()
        .map(|personality| personality.name)
        .collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), PERSONALITIES.len());
    for personality in PERSONALITIES {
        assert!(!personality.source.is_empty(), "{}", personality.name);
        assert!(
            personality.public || personality.private,
            "{}",
            personality.name
        );
    }
}
