//! Measures the resolver's cache: `cargo bench --bench resolver`. It prints:
//!
//! - the time of a hit, and that of the bare map below the cache (the ceiling)
//! - hits a second on one and two threads
//! - the time of a decision with and without recorded failed images
//! - memory for each image
//! - the share of a working set that survives a flood of other images

#![allow(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test tells one story, however long"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};
use tolerarch::config::Config;
use tolerarch_core::image::{ImageRef, PlatformSet, Support};
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::Policy;
use tolerarch_core::reason::Reason;
use tolerarch_engine::decide::{Snapshot, Wait};
use tolerarch_engine::lessons::{Evidence, FailedImage, Lesson, Lessons, Timestamp, node_id};
use tolerarch_images::credentials::{Credentials, Keyring};
use tolerarch_images::registry::{AddressGuard, Digest, Registry, RegistryMetrics, ResolvedImage};
use tolerarch_images::resolver::{CacheSettings, Requester, Resolver, ResolverMetrics};
use tolerarch_support::metrics::Metrics;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Time for which each figure is measured.
const SPAN: Duration = Duration::from_millis(1500);
/// Hits between two looks at the clock.
const BATCH: usize = 1000;

fn main() -> Outcome<()> {
    // `cargo test --benches` only checks that the bench starts.
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        memory()?;
        speed().await?;
        records().await?;
        flood().await
    })
}

fn resolver(capacity: usize) -> Outcome<Resolver> {
    let metrics = Metrics::new([])?;
    let registry = Registry::new(
        [],
        AddressGuard::default(),
        RegistryMetrics::register(&metrics)?,
    )?;
    let Config { lookup, cache, .. } = Config::default();
    Ok(Resolver::new(
        registry,
        lookup,
        CacheSettings { capacity, ..cache },
        ResolverMetrics::register(&metrics)?,
        None,
    ))
}

fn image(number: usize) -> Outcome<ImageRef> {
    Ok(format!(
        "registry.example.com/team-{}/service-{number}:v1.{}",
        number % 100,
        number % 7
    )
    .parse()?)
}

fn fill(resolver: &Resolver, images: &[ImageRef]) {
    for image in images {
        let digest = Digest::of_content(image.as_str().as_bytes());
        resolver.store(
            image,
            &ResolvedImage {
                digest,
                support: Support::Index(PlatformSet::AMD64_AND_ARM64),
                lacks_parts: false,
            },
        );
    }
}

/// Returns whether the cache has the image. The deadline is over, so nothing else can answer.
async fn is_hit(resolver: &Resolver, image: &ImageRef) -> bool {
    let candidates = |image: &ImageRef| Keyring::default().candidates(image);
    let images = [image];
    let mut lookups = resolver.lookups(Requester::OPERATOR, &images, candidates, Instant::now());
    matches!(lookups.next().await, Some((_, Ok(_))))
}

async fn hits_per_second(resolver: Resolver, images: Vec<ImageRef>) -> f64 {
    let mut hits = 0usize;
    let mut index = 0usize;
    let started = Instant::now();
    while started.elapsed() < SPAN {
        for _ in 0..BATCH {
            hits += usize::from(is_hit(&resolver, &images[index]).await);
            index = (index + 7919) % images.len();
        }
    }
    hits as f64 / started.elapsed().as_secs_f64()
}

async fn speed() -> Outcome<()> {
    let images = (0..100_000).map(image).collect::<Outcome<Vec<_>>>()?;
    let resolver = resolver(200_000)?;
    fill(&resolver, &images);

    let bare = quick_cache::sync::Cache::<Box<str>, Support>::new(200_000);
    for image in &images {
        bare.insert(
            image.as_str().into(),
            Support::Index(PlatformSet::AMD64_AND_ARM64),
        );
    }
    let mut gets = 0usize;
    let mut index = 0usize;
    let started = Instant::now();
    while started.elapsed() < SPAN {
        for _ in 0..BATCH {
            gets += usize::from(black_box(bare.get(images[index].as_str())).is_some());
            index = (index + 7919) % images.len();
        }
    }
    let ceiling = gets as f64 / started.elapsed().as_secs_f64();

    let one = tokio::spawn(hits_per_second(resolver.clone(), images.clone())).await?;
    let both = [0, 1].map(|_| tokio::spawn(hits_per_second(resolver.clone(), images.clone())));
    let [first, second] = both;
    let two = first.await? + second.await?;
    println!(
        "warm hit            {:>8.0} ns   bare map {:.0} ns, {:.0} % of it",
        1e9 / one,
        1e9 / ceiling,
        100.0 * one / ceiling
    );
    println!("hits a second       {one:>8.0} on 1 thread, {two:.0} on 2");
    Ok(())
}

/// Measures a decision on a Pod with three cached images, without and with the maximum number of recorded failed images.
async fn records() -> Outcome<()> {
    let images = (0..3).map(image).collect::<Outcome<Vec<_>>>()?;
    let resolver = resolver(1000)?;
    fill(&resolver, &images);
    let containers: Value = images
        .iter()
        .map(|image| json!({"image": image.as_str()}))
        .collect();
    let pod = json!({"metadata": {}, "spec": {"containers": containers}});
    let pod = Pod::of_value(&pod)?;
    let mut snapshot = Snapshot {
        policy: Policy::default(),
        profiles: BTreeMap::new(),
        budget: Duration::ZERO,
        credentials: Credentials::default(),
        resolver,
        lessons: Arc::default(),
    };
    let mut record = Lessons::default();
    for number in 0..1000 {
        let failed = FailedImage {
            digest: Digest::of_content(&usize::to_be_bytes(number)),
            architecture: "arm64".to_owned(),
            evidence: Evidence::ExecFormatError,
            namespace: format!("team-{}", number % 100),
            nodes: ["node-1", "node-2"].map(node_id).to_vec(),
        };
        record.record(Lesson::Image(failed), Timestamp::now());
    }
    let mut without = 0.0;
    for failed in [
        Lessons::default(),
        record.clone(),
        Lessons::default(),
        record,
    ] {
        let is_empty = failed.is_empty();
        snapshot.lessons = failed.into();
        let mut tolerated = 0usize;
        let mut decided = 0usize;
        let begun = Instant::now();
        while begun.elapsed() < SPAN {
            for _ in 0..BATCH {
                let wait = Wait::Until {
                    deadline: Instant::now(),
                    review: None,
                };
                let decision = snapshot.decide(&snapshot.policy, "team", &pod, wait).await;
                tolerated += usize::from(decision.reason == Reason::Tolerated);
            }
            decided += BATCH;
        }
        assert_eq!(tolerated, decided, "every image is in the cache");
        let nanos = begun.elapsed().as_nanos() as f64 / decided as f64;
        if is_empty {
            without = nanos;
        } else {
            println!(
                "a decision          {nanos:>8.0} ns with 1000 failed images, {without:.0} ns without, {:.2} times",
                nanos / without
            );
        }
    }
    Ok(())
}

/// Returns the resident bytes of the process (proc(5): the second field of statm, in pages of 4 KiB).
fn resident() -> Outcome<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = statm
        .split_whitespace()
        .nth(1)
        .ok_or("no resident set in statm")?
        .parse()?;
    Ok(pages * 4096)
}

fn memory() -> Outcome<()> {
    for count in [100_000, 1_000_000] {
        let resolver = resolver(count)?;
        let before = resident()?;
        let mut key_bytes = 0;
        for number in 0..count {
            let image = image(number)?;
            key_bytes += image.as_str().len();
            fill(&resolver, std::slice::from_ref(&image));
        }
        let bytes = (resident()? - before) as f64 / count as f64;
        let key = key_bytes as f64 / count as f64;
        println!(
            "bytes an image      {:>8.0} beside the key of {key:.0}, at {count} images",
            bytes - key
        );
        black_box(&resolver);
    }
    Ok(())
}

async fn flood() -> Outcome<()> {
    let capacity = 100_000;
    let resolver = resolver(capacity)?;
    let working = (0..10_000).map(image).collect::<Outcome<Vec<_>>>()?;
    fill(&resolver, &working);
    let survivors = async |resolver: &Resolver| {
        let mut survivors = 0;
        for image in &working {
            survivors += usize::from(is_hit(resolver, image).await);
        }
        survivors
    };
    survivors(&resolver).await;
    for times in [1, 10] {
        for number in 0..times * capacity {
            let name = format!("flood.example.com/x-{times}/y:{number}").parse::<ImageRef>()?;
            fill(&resolver, std::slice::from_ref(&name));
        }
        let left = survivors(&resolver).await;
        println!(
            "flood               {:>8.1} % of a working set of {} survive {times} x {capacity} other images",
            100.0 * left as f64 / working.len() as f64,
            working.len()
        );
        fill(&resolver, &working);
        survivors(&resolver).await;
    }
    Ok(())
}
