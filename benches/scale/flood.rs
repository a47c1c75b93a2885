//! A million images through a cache for a hundred thousand, beside a set that is in use all the time.

use futures_util::future::try_join_all;
use serde_json::json;
use tokio::time::{Duration, Instant};

use super::registry::Registry;
use super::replica::{Replicas, reason};
use crate::support::{Result, percentile, request, typical};

/// Images of one Pod: what one Pod may look up at once.
const NEW: usize = 8;
/// Connections, each of which sends one Pod after the other.
const CONNECTIONS: usize = 16;
/// One hot image is asked for with each Pod.
const HOT: usize = 10_000;

pub(crate) async fn run(part: usize) -> Result<()> {
    let images = 1_000_000 / part;
    let capacity = 100_000 / part;
    let hot = HOT.min(capacity / 10);
    let registry = Registry::start(Duration::ZERO).await?;
    let settings = json!({
        "cache": {"capacity": capacity},
        // Many at once, as the registry is near; what is measured is the cache, not the defaults' courtesy.
        "lookup": {"concurrency": 256, "perRegistry": 256},
    });
    let replicas = Replicas::start(1, &registry, settings).await?;
    let begun = Instant::now();
    let before = replicas.resident()?;
    let name = registry.address();
    let workers = (0..CONNECTIONS).map(|worker| {
        let name = name.clone();
        let replicas = &replicas;
        async move {
            let mut connection = replicas.connect(0).await?;
            let mut latencies = Vec::new();
            let each = images / CONNECTIONS;
            for first in (worker * each..(worker + 1) * each).step_by(NEW) {
                let mut pod: Vec<String> = (first..(first + NEW).min((worker + 1) * each))
                    .map(|image| format!("{name}/team-{}/service-{image}:v1", image % 100))
                    .collect();
                pod.push(format!("{name}/hot/service-{}:v1", (first / NEW) % hot));
                let mut review = typical::review(&small(&pod));
                // Each namespace has a share of its own.
                review["request"]["namespace"] = format!("team-{worker}").into();
                let request = request(&review.to_string());
                let begun = Instant::now();
                let answer = connection.review(&request).await?;
                latencies.push(begun.elapsed());
                match reason(answer)? {
                    "tolerated" => {}
                    other => return Err(format!("a Pod of the flood: {other}").into()),
                }
            }
            Result::Ok(latencies)
        }
    });
    let mut latencies = try_join_all(workers).await?.concat();
    latencies.sort_unstable();
    let took = begun.elapsed();
    let after = replicas.resident()?;
    let cpu = replicas.cpu_seconds()?;
    let (_, gets) = registry.asked();
    let asked_again = gets.saturating_sub((images + hot) as u64);
    let pods = latencies.len();
    let hot_hits = 100.0 * (1.0 - asked_again as f64 / pods.saturating_sub(hot).max(1) as f64);
    println!(
        "flood: {images} different images through a cache for {capacity}, {hot} others in use all the time"
    );
    println!(
        "  {took:.1?}, {:.0} lookups a second, {:.0} µs of CPU each",
        gets as f64 / took.as_secs_f64(),
        1e6 * cpu / gets as f64
    );
    println!(
        "  {pods} Pods with {NEW} new images and one in use: p50 {:.1?}, p99 {:.1?}",
        percentile(&latencies, 50),
        percentile(&latencies, 99)
    );
    println!("  images in use answered from the cache: {hot_hits:.1} %");
    println!(
        "  entries: {} tags, {} digests; {} evicted",
        replicas.sum("tolerarch_cache_entries{", "tag").await?,
        replicas
            .sum("tolerarch_cache_entries{", "platforms")
            .await?,
        replicas.sum("tolerarch_cache_evictions_total{", "").await?
    );
    println!("  resident: {before:.1} MiB before, {after:.1} MiB after\n");
    Ok(())
}

/// A Pod with no more than its images.
fn small(images: &[String]) -> serde_json::Value {
    let containers: Vec<_> = images
        .iter()
        .enumerate()
        .map(|(place, image)| json!({"name": format!("c{place}"), "image": image}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a-"}, "spec": {"containers": containers}})
}
