//! Limits on what one tenant's made-up accounts can take from the Pods of others.

use futures_util::FutureExt;
use tokio::time::timeout;

use super::*;

/// Makes a plugin whose runs for made-up accounts hang.
fn plugin_for_real_accounts(dir: &TestDir, cache_key: &str) -> Arc<Program> {
    let answer = answer_script(
        cache_key,
        r#""cacheDuration":"0s","#,
        r#"{"*.example.com":{"username":"u","password":"p"}}"#,
    );
    plugin(
        dir,
        &format!("case $request in *made-up*) exec sleep 600;; esac\n{answer}"),
    )
}

/// Starts a lookup for a Pod of this namespace, which continues in its own task.
async fn start_lookup(plugin: &Arc<Program>, image: &str, namespace: &str) {
    let plugin = Arc::clone(plugin);
    let image = image.to_owned();
    let tenant = Tenant::of(namespace);
    drop(tokio::spawn(async move {
        plugin.credentials(&image, &tenant).await
    }));
    tokio::task::yield_now().await;
}

/// Less than the maximum time of a run, and of the wait for a run.
const GOAL: Duration = Duration::from_secs(4);

async fn victim_is_served(plugin: &Arc<Program>, image: &str) {
    let credentials = timeout(GOAL, plugin.credentials(image, &Tenant::of("victim"))).await;
    assert_eq!(credentials.unwrap().unwrap().len(), 1, "{image}");
}

#[tokio::test]
async fn own_share_starts_a_run_that_another_tenant_queued() {
    let dir = TestDir::new();
    let plugin = plugin_for_real_accounts(&dir, "Registry");
    for account in 0..4 {
        start_lookup(
            &plugin,
            &format!("made-up-{account}.example.com/app"),
            "attacker",
        )
        .await;
    }
    start_lookup(&plugin, "real.example.com/app", "attacker").await;
    victim_is_served(&plugin, "real.example.com/app").await;
}

/// No lookup waits for a plugin with one answer for all images while the plugin hangs for another image.
#[tokio::test]
async fn hanging_run_delays_no_other_image() {
    let dir = TestDir::new();
    let plugin = plugin_for_real_accounts(&dir, "Global");
    victim_is_served(&plugin, "real.example.com/app").await;
    for _ in 0..8 {
        start_lookup(&plugin, "made-up.example.com/app", "attacker").await;
    }
    for app in 0..2 {
        victim_is_served(&plugin, &format!("real.example.com/{app}")).await;
    }
}

/// Otherwise lookups of one image whose run hangs would take the permits of all others.
#[tokio::test]
async fn joining_a_run_returns_the_permit() {
    let dir = TestDir::new();
    let plugin = plugin_for_real_accounts(&dir, "Image");
    for namespace in ["a", "b", "c", "d"] {
        start_lookup(&plugin, "made-up.example.com/app", namespace).await;
    }
    let mut permits = Vec::new();
    for _ in 1..RUNS {
        permits.push(
            timeout(GOAL, plugin.acquire("a.b", &Tenant::Operator))
                .await
                .unwrap()
                .unwrap(),
        );
    }
}

/// Returns a permit for a Pod of this namespace, if the run may begin at once.
fn immediate_permit(plugin: &Program, image: &str, namespace: &str) -> Option<Permit> {
    plugin
        .acquire(image, &Tenant::of(namespace))
        .now_or_never()?
        .ok()
}

#[tokio::test]
async fn many_accounts_of_one_namespace_leave_runs_for_others() {
    let dir = TestDir::new();
    let plugin = plugin(&dir, "");
    let image = |number: usize| format!("{number}.dkr.ecr.us-east-1.amazonaws.com/app");
    let permits: Vec<_> = (0..64)
        .filter_map(|number| immediate_permit(&plugin, &image(number), "attacker"))
        .collect();
    assert_eq!(permits.len(), 2, "half of the runs");
    let others: Vec<_> = (0..2)
        .filter_map(|number| immediate_permit(&plugin, &image(number), "victim"))
        .collect();
    assert_eq!(
        others.len(),
        2,
        "the other half is for others, also at the same registry"
    );
}
