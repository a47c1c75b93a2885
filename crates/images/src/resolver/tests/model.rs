//! Random sequences of lookups, passing time, moving tags and faults, against a simple model. No outcome is a platform
//! set that the tag did not have, or is older than promised, and no lookup sends more requests than it may.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// A Pod needs the image of this repository.
    Ask(usize),
    /// This many seconds pass.
    Wait(u64),
    /// The tag of this repository moves to this content.
    Move(usize, usize),
    /// The registry has this behaviour from now on.
    Behave(usize),
}

const REPOS: usize = 2;
const CONTENTS: [&[&str]; 3] = [
    &["linux/amd64", "linux/arm64"],
    &["linux/amd64"],
    &["linux/arm64", "linux/s390x"],
];
const WELL: usize = 0;
const RESETS: usize = 2;
const TAG: u64 = 100;
const REVALIDATE: u64 = 50;
const IF_ERROR: u64 = 400;

fn behaviour(which: usize) -> Option<Fault> {
    match which {
        WELL => None,
        1 => Some(Fault::status(500)),
        RESETS => Some(Fault::reset()),
        3 => Some(Fault::status(429)),
        4 => Some(Fault::status(404)),
        5 => Some(Fault::status(405).only_head()),
        _ => Some(Fault::status(403)),
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..REPOS).prop_map(Step::Ask),
        3 => prop_oneof![0..5u64, 0..200u64, 0..800u64].prop_map(Step::Wait),
        2 => (0..REPOS, 0..CONTENTS.len()).prop_map(|(repo, content)| Step::Move(repo, content)),
        2 => prop_oneof![2 => Just(0usize), 3 => 1..7usize].prop_map(Step::Behave),
    ];
    prop::collection::vec(step, 1..40)
}

/// Contents that a tag has had, and the second until which it had each (`u64::MAX`: until now).
type History = Vec<(Support, u64)>;

async fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let test = ResolverTest::with(|_, cache| {
        cache.tag = Duration::from_secs(TAG);
        cache.stale_while_revalidate = Duration::from_secs(REVALIDATE);
        cache.stale_if_error = Duration::from_secs(IF_ERROR);
    })
    .await;
    let support =
        |content: usize| Support::Index(tolerarch_core::testing::platforms(CONTENTS[content]));
    let repos: Vec<Repo> = (0..REPOS)
        .map(|i| test.remote.repo(&format!("app{i}")))
        .collect();
    let images: Vec<ImageRef> = repos
        .iter()
        .map(|repo| repo.reference("v1").parse().unwrap())
        .collect();
    let mut histories: Vec<History> = vec![vec![(support(0), u64::MAX)]; REPOS];
    repos
        .iter()
        .for_each(|repo| drop(repo.index(Some("v1"), CONTENTS[0].iter().copied())));
    let mut now = 0u64;
    let mut failed = None;
    let mut well_since = Some(0);
    // Number of requests: a request that an idle connection does not answer is sent once more.
    let mut times = 1;
    for step in steps {
        match step {
            Step::Wait(seconds) => {
                later(Duration::from_secs(seconds)).await;
                now += seconds;
                // Probes became due meanwhile.
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                test.wait_until_idle().await;
            }
            Step::Move(repo, content) => {
                repos[repo].index(Some("v1"), CONTENTS[content].iter().copied());
                histories[repo].last_mut().unwrap().1 = now;
                histories[repo].push((support(content), u64::MAX));
            }
            Step::Behave(which) => {
                repos.iter().for_each(|repo| repo.fault(behaviour(which)));
                times = if which == RESETS { 2 } else { 1 };
                well_since = (which == WELL).then_some(well_since.unwrap_or(now));
            }
            Step::Ask(repo) => {
                test.new_requests();
                let counted = || test.lookup_count("failed") + test.lookup_count("stale");
                let failed_before = counted();
                let outcome = test.look_up(&images[repo]).await;
                test.wait_until_idle().await;
                if well_since.is_none() && counted() > failed_before {
                    failed = Some(now);
                }
                if well_since.is_some_and(|since| now - since > 61) {
                    prop_assert!(
                        outcome.is_ok(),
                        "{:?} although the registry has worked for a minute",
                        outcome
                    );
                }
                let bound = match failed {
                    // After a failure an answer may be as old as `IF_ERROR` allows, as long as the failure counts.
                    Some(failed) if now - failed <= IF_ERROR => TAG + IF_ERROR,
                    _ => TAG + REVALIDATE,
                };
                if let Ok(support) = outcome {
                    let true_once = histories[repo]
                        .iter()
                        .any(|(had, until)| *had == support && now.saturating_sub(bound) <= *until);
                    prop_assert!(
                        true_once,
                        "{:?} of {:?} at {}",
                        support,
                        histories[repo],
                        now
                    );
                }
                let requests = test.new_requests();
                prop_assert!(requests.len() <= 2 * times, "{:?}", requests);
                prop_assert!(
                    requests.iter().filter(|method| *method == "GET").count() <= times,
                    "{:?}",
                    requests
                );
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn answers_are_true_fresh_and_cheap(steps in steps()) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(steps))?;
    }
}
