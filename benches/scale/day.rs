//! A compressed day of a large cluster: the requests that replicas send to a registry, with and without a shared cache.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep_until};

use super::cluster::{Day, Event, compressed};
use super::registry::Registry;
use super::replica::{Replicas, reason};
use crate::redis::Redis;
use crate::support::{Result, percentile, request, typical};

/// Time that the day takes. Two times are not compressed: a circuit stays open for 3 s, and a registry takes time to answer.
/// So the hour of the outage has more effect than on a real day.
const TIME: Duration = Duration::from_secs(60);
const QUICK: Duration = Duration::from_secs(10);
/// Time of each answer of the registry.
const LATENCY: Duration = Duration::from_millis(20);
/// Number of connections of API servers to each replica.
const CONNECTIONS: usize = 16;

pub(crate) async fn run(part: usize) -> Result<()> {
    let time = if part < 100 { TIME } else { QUICK };
    let day = Arc::new(Day::new(part, time));
    println!(
        "day: {} Pods with {} different images, in {time:?} instead of 24 h; the registry answers after {LATENCY:?}, and fails for an hour",
        day.pods, day.images,
    );
    println!(
        "  {:<24}{:>9}{:>9}{:>9}{:>9}{:>12}{:>10}{:>10}{:>11}",
        "replicas", "hits", "shared", "GET", "HEAD", "per image", "p50", "p99", "resident"
    );
    for replicas in [2, 4] {
        replay(&day, time, replicas, None).await?;
        let Some(redis) = Redis::start(&[]).await else {
            continue;
        };
        replay(&day, time, replicas, Some(&redis)).await?;
    }
    println!();
    Ok(())
}

/// Returns the default lifetimes, compressed.
fn settings(time: Duration, redis: Option<&Redis>) -> Value {
    let minutes = |minutes: u64| compressed(Duration::from_secs(60 * minutes), time);
    let seconds = |seconds: u64| compressed(Duration::from_secs(seconds), time);
    let mut settings = json!({
        "cache": {
            "tagTtl": minutes(60),
            "staleWhileRevalidate": minutes(10),
            "staleIfError": minutes(24 * 60),
            "negative": {
                "notFound": minutes(1), "denied": minutes(1), "throttled": minutes(1),
                "timeout": seconds(15), "unreachable": seconds(15), "badManifest": minutes(1),
            },
        },
    });
    if let Some(redis) = redis {
        settings["cache"]["shared"] = json!({"url": redis.url()});
    }
    settings
}

/// Runs the day with this number of replicas, and prints the results.
async fn replay(day: &Arc<Day>, time: Duration, count: usize, redis: Option<&Redis>) -> Result<()> {
    let registry = Registry::start(LATENCY).await?;
    let replicas = Replicas::start(count, &registry, settings(time, redis)).await?;
    let next = &AtomicUsize::new(0);
    let started = Instant::now();
    // As with API servers, each connection belongs to one replica, and a free connection takes the next event.
    let connections = (0..CONNECTIONS * count).map(|number| {
        let registry = &registry;
        let replicas = &replicas;
        async move {
            let mut connection = replicas.connect(number % count).await?;
            let mut latencies = Vec::new();
            let mut reasons = BTreeMap::<String, usize>::new();
            while let Some((at, event)) = day.events.get(next.fetch_add(1, Ordering::Relaxed)) {
                sleep_until(started + *at).await;
                match event {
                    Event::Outage(fails) => registry.fail(*fails),
                    Event::Pod(namespace, images) => {
                        let name = registry.address();
                        let images: Vec<String> = images
                            .iter()
                            .map(|image| format!("{name}/{image}"))
                            .collect();
                        let mut review = typical::review(&typical::pod(&images));
                        review["request"]["namespace"] = namespace.as_str().into();
                        let request = request(&review.to_string());
                        let sent = Instant::now();
                        let answer = connection.review(&request).await?;
                        latencies.push(sent.elapsed());
                        *reasons.entry(reason(answer)?.to_owned()).or_default() += 1;
                    }
                }
            }
            Result::Ok((latencies, reasons))
        }
    });
    let mut latencies = Vec::new();
    let mut reasons = BTreeMap::<String, usize>::new();
    for (some_latencies, some_reasons) in try_join_all(connections).await? {
        latencies.extend(some_latencies);
        for (reason, count) in some_reasons {
            *reasons.entry(reason).or_default() += count;
        }
    }
    latencies.sort_unstable();
    let (heads, gets) = registry.request_counts();
    let results = async |result: &str| {
        replicas
            .sum("tolerarch_lookups_total{", &format!("result=\"{result}\""))
            .await
    };
    let lookups = replicas.sum("tolerarch_lookups_total{", "").await?;
    let hits = results("hit").await? + results("stale").await?;
    let share = |count: u64| 100.0 * count as f64 / lookups.max(1) as f64;
    let title = format!(
        "{count}{}",
        if redis.is_some() {
            ", with a shared cache"
        } else {
            ""
        }
    );
    println!(
        "  {title:<24}{:>7.2} %{:>7.2} %{gets:>9}{heads:>9}{:>12.2}{:>10}{:>10}{:>7.1} MiB",
        share(hits),
        share(results("shared").await?),
        (gets + heads) as f64 / day.images as f64,
        format!("{:.2?}", percentile(&latencies, 50)),
        format!("{:.2?}", percentile(&latencies, 99)),
        replicas.resident()?,
    );
    let others: Vec<String> = reasons
        .iter()
        .filter(|(reason, _)| *reason != "tolerated")
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    println!(
        "    left unchanged: {}",
        if others.is_empty() {
            "none".to_owned()
        } else {
            others.join(", ")
        }
    );
    if reasons
        .get("tolerated")
        .is_none_or(|tolerated| *tolerated < day.pods / 2)
    {
        return Err(format!("few Pods were tolerated: {reasons:?}").into());
    }
    Ok(())
}
