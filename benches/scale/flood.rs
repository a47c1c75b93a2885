//! A million images pass through a cache for a hundred thousand, beside a working set that stays in use.

use futures_util::future::try_join_all;
use serde_json::json;
use tokio::time::{Duration, Instant};

use super::registry::Registry;
use super::replica::{Replicas, reason};
use crate::support::{Result, percentile, request, typical};

/// Number of new images in a Pod: as many as one Pod may look up at once.
const NEW: usize = 8;
/// Number of connections. Each sends one Pod after the other.
const CONNECTIONS: usize = 16;
/// Number of images in the working set. Each Pod has one of them.
const HOT: usize = 10_000;

pub(crate) async fn run(part: usize) -> Result<()> {
    let images = 1_000_000 / part;
    let capacity = 100_000 / part;
    let hot = HOT.min(capacity / 10);
    let registry = Registry::start(Duration::ZERO).await?;
    let settings = json!({
        "cache": {"capacity": capacity},
        // The registry is near, and the cache is measured. So the limits that spare registries are higher than by default.
        "lookup": {"concurrency": 256, "perRegistry": 256},
    });
    let replicas = Replicas::start(1, &registry, settings).await?;
    let started = Instant::now();
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
                let mut review = typical::review(&small_pod(&pod));
                // Each namespace has its own share of the lookups.
                review["request"]["namespace"] = format!("team-{worker}").into();
                let request = request(&review.to_string());
                let started = Instant::now();
                let answer = connection.review(&request).await?;
                latencies.push(started.elapsed());
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
    let took = started.elapsed();
    let after = replicas.resident()?;
    let cpu = replicas.cpu_seconds()?;
    let (_, gets) = registry.request_counts();
    let refetched = gets.saturating_sub((images + hot) as u64);
    let pods = latencies.len();
    let hot_hits = 100.0 * (1.0 - refetched as f64 / pods.saturating_sub(hot).max(1) as f64);
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

/// Returns a Pod with nothing but its images.
fn small_pod(images: &[String]) -> serde_json::Value {
    let containers: Vec<_> = images
        .iter()
        .enumerate()
        .map(|(index, image)| json!({"name": format!("c{index}"), "image": image}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a-"}, "spec": {"containers": containers}})
}
