//! Limits of what one tenant's made-up accounts can take from the Pods of others.

use futures_util::FutureExt;
use tokio::time::timeout;

use super::*;

/// Makes a plugin whose runs for made-up accounts hang.
fn plugin_for_real_accounts(dir: &TestDir, cache_key: &str) -> Arc<Program> {
    let answer = says(
        cache_key,
        r#""cacheDuration":"0s","#,
        r#"{"*.example.com":{"username":"u","password":"p"}}"#,
    );
    plugin(
        dir,
        &format!("case $request in *made-up*) exec sleep 600;; esac\n{answer}"),
    )
}

/// Starts a lookup of a Pod of this namespace, and leaves it running.
async fn ask(plugin: &Arc<Program>, image: &str, namespace: &str) {
    let plugin = Arc::clone(plugin);
    let image = image.to_owned();
    let tenant = Tenant::of(namespace);
    drop(tokio::spawn(async move {
        plugin.credentials(&image, &tenant).await
    }));
    tokio::task::yield_now().await;
}

/// Less than the time that a run may wait, and that a run may take.
const GOAL: Duration = Duration::from_secs(4);

async fn victim_is_served(plugin: &Arc<Program>, image: &str) {
    let found = timeout(GOAL, plugin.credentials(image, &Tenant::of("victim"))).await;
    assert_eq!(found.unwrap().unwrap().len(), 1, "{image}");
}

#[tokio::test]
async fn a_run_that_another_tenant_has_queued_begins_by_the_share_of_who_asks_for_it() {
    let dir = TestDir::new();
    let plugin = plugin_for_real_accounts(&dir, "Registry");
    for account in 0..4 {
        ask(
            &plugin,
            &format!("made-up-{account}.example.com/app"),
            "attacker",
        )
        .await;
    }
    ask(&plugin, "real.example.com/app", "attacker").await;
    victim_is_served(&plugin, "real.example.com/app").await;
}

/// Nobody waits for a plugin with one answer for all images while it hangs for another image.
#[tokio::test]
async fn a_run_that_hangs_for_another_image_keeps_no_one_waiting() {
    let dir = TestDir::new();
    let plugin = plugin_for_real_accounts(&dir, "Global");
    victim_is_served(&plugin, "real.example.com/app").await;
    for _ in 0..8 {
        ask(&plugin, "made-up.example.com/app", "attacker").await;
    }
    for app in 0..2 {
        victim_is_served(&plugin, &format!("real.example.com/{app}")).await;
    }
}

/// Otherwise those who look up one image that hangs would take the runs of all others.
#[tokio::test]
async fn who_joins_a_run_gives_the_permit_back() {
    let dir = TestDir::new();
    let plugin = plugin_for_real_accounts(&dir, "Image");
    for namespace in ["a", "b", "c", "d"] {
        ask(&plugin, "made-up.example.com/app", namespace).await;
    }
    let mut held = Vec::new();
    for _ in 1..RUNS {
        held.push(
            timeout(GOAL, plugin.acquire("a.b", &Tenant::Operator))
                .await
                .unwrap()
                .unwrap(),
        );
    }
}

/// Returns a permit for a Pod of this namespace, if the run may begin at once.
fn turn(plugin: &Program, image: &str, namespace: &str) -> Option<Permit> {
    plugin
        .acquire(image, &Tenant::of(namespace))
        .now_or_never()?
        .ok()
}

#[tokio::test]
async fn made_up_accounts_of_one_namespace_leave_runs_for_others() {
    let dir = TestDir::new();
    let plugin = plugin(&dir, "");
    let image = |number: usize| format!("{number}.dkr.ecr.us-east-1.amazonaws.com/app");
    let held: Vec<_> = (0..64)
        .filter_map(|number| turn(&plugin, &image(number), "attacker"))
        .collect();
    assert_eq!(held.len(), 2, "half of the runs");
    let others: Vec<_> = (0..2)
        .filter_map(|number| turn(&plugin, &image(number), "victim"))
        .collect();
    assert_eq!(
        others.len(),
        2,
        "the other half is for others, also at the same registry"
    );
}
