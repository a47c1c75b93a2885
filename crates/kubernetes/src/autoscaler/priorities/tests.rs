use serde::Deserialize;

use super::*;

/// A text of the ConfigMap, and how sigs.k8s.io/yaml, Go's `regexp` and the expander read it.
#[derive(Deserialize)]
struct Case {
    text: String,
    groups: Vec<String>,
    #[serde(default)]
    is_refused: bool,
    /// Whether upstream reads it differently from run to run.
    #[serde(default)]
    is_random: bool,
    /// The priority of each group, `null` for those without.
    #[serde(default)]
    priorities: Vec<Option<i64>>,
    #[serde(default)]
    best: Vec<String>,
}

type Answer = Result<(Vec<Option<i64>>, Vec<String>), ()>;

/// Marks of texts that may be unknown: classes of Unicode, flags, tags, anchors, numbers and forms of YAML.
const UNKNOWN: [&str; 12] = [
    r"\p", r"\P", "(?", "!", "&", r"\'", ".inf", ".nan", "? [", ":]", ":[", ":,",
];

/// Returns the groups that the expander chooses for a Pod: those of the highest priority, or all if none has a
/// priority.
fn best<'a>(priorities: &Priorities, groups: &[&'a str]) -> Vec<&'a str> {
    let highest = groups
        .iter()
        .map(|group| priorities.of(group))
        .max()
        .flatten();
    groups
        .iter()
        .copied()
        .filter(|group| priorities.of(group) == highest)
        .collect()
}

#[test]
fn agrees_with_upstream() {
    let mut answers: Vec<(String, Answer, Answer)> = Vec::new();
    let mut unknown = 0;
    let mut refused = 0;
    for case in conformance::cases::<Case>("priorities") {
        let expected: Answer = if case.is_refused {
            Err(())
        } else {
            Ok((case.priorities, case.best))
        };
        let groups: Vec<&str> = case.groups.iter().map(String::as_str).collect();
        let parsed = Priorities::parse(&case.text);
        assert!(
            !case.is_random || matches!(parsed, Err(PrioritiesError::Unknown(_))),
            "{:?}",
            case.text
        );
        let answer = match parsed {
            Err(PrioritiesError::Unknown(why)) => {
                let has_mark = UNKNOWN.iter().any(|mark| case.text.contains(mark));
                // A key that is a list, on separate lines.
                let has_list = case
                    .text
                    .split('?')
                    .skip(1)
                    .any(|rest| rest.trim_start().starts_with('-'));
                assert!(
                    has_mark || has_list || case.is_random,
                    "{:?}: {why}",
                    case.text
                );
                unknown += 1;
                continue;
            }
            Err(PrioritiesError::Invalid(_)) => {
                refused += 1;
                Err(())
            }
            Ok(priorities) => {
                let of_groups = groups.iter().map(|group| priorities.of(group)).collect();
                let best = best(&priorities, &groups)
                    .into_iter()
                    .map(str::to_owned)
                    .collect();
                Ok((of_groups, best))
            }
        };
        answers.push((format!("{:?} {groups:?}", case.text), answer, expected));
    }
    assert!(
        refused > 50 && answers.len() - refused > 100,
        "{refused} of {} refused",
        answers.len()
    );
    assert!(
        unknown * 8 < answers.len(),
        "{unknown} unknown beside {}",
        answers.len()
    );
    conformance::assert_agreement(answers);
}

#[test]
fn four_hundred_patterns_are_read() {
    let mut text = "100:\n".to_owned();
    for number in 0..400 {
        text += &format!("- (?i)^eks-.*-multi-arch-{number}-[0-9a-f]{{8}}$\n");
    }
    text += "10:\n- .*\n";
    let priorities = Priorities::parse(&text).unwrap();
    let named = "eks-prod-multi-arch-399-0a1b2c3d";
    assert_eq!(
        best(&priorities, &["eks-plain", named, "eks-other"]),
        [named]
    );
    assert_eq!(priorities.of("eks-prod-multi-arch-400-0a1b2c3d"), Some(10));
}

#[test]
fn text_over_a_bound_is_unknown() {
    let lists =
        |pattern: &str, times: usize| format!("1:\n{}", format!("- {pattern}\n").repeat(times));
    let aliases = format!("0: &a [{}]\n", "x,".repeat(100));
    let aliases = (1..100).fold(aliases, |text, priority| {
        text + &format!("{priority}: *a\n")
    });
    let nested = format!("1: ['{}a{}']", "(".repeat(100), ")".repeat(100));
    let too_long = "#".repeat(TEXT + 1);
    for text in [
        lists(".{1000}", 50_000),
        lists(&r"\W".repeat(1000), 300),
        nested,
        aliases,
        too_long,
    ] {
        let read = Priorities::parse(&text);
        assert!(
            matches!(read, Err(PrioritiesError::Unknown(_))),
            "{text:.60}: {read:?}"
        );
    }
}

#[test]
fn invalid_pattern_outweighs_an_unknown_one() {
    let unknown = "1:\n- \\pL\n";
    assert!(matches!(
        Priorities::parse(unknown),
        Err(PrioritiesError::Unknown(_))
    ));
    let refused = format!("{unknown}- '*'\n");
    assert_eq!(
        Priorities::parse(&refused).unwrap_err().to_string(),
        "priority 1, pattern \"*\": a repetition of nothing"
    );
}

#[test]
fn priorities_below_minus_one_are_checked_but_not_used() {
    let priorities = Priorities::parse("-2: [multi]\n-1: [plain]\n").unwrap();
    assert_eq!(priorities.of("multi"), None);
    assert_eq!(priorities.of("plain"), Some(-1));
    assert_eq!(best(&priorities, &["multi", "plain"]), ["plain"]);
    assert_eq!(best(&priorities, &["multi", "other"]), ["multi", "other"]);
    assert!(Priorities::parse("-2: ['*']\n").is_err());
}
