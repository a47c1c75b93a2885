//! The cost of connections that API servers keep open.

use futures_util::future::try_join_all;
use serde_json::json;
use tokio::time::{Duration, Instant};

use super::registry::Registry;
use super::replica::{Replicas, reason};
use crate::support::connection::Connection;
use crate::support::{Result, percentile, request, typical};

/// Number of concurrent handshakes.
const AT_ONCE: usize = 50;

pub(crate) async fn run(part: usize) -> Result<()> {
    let count = 4000 / part;
    let reviews = 20_000 / part;
    let registry = Registry::start(Duration::ZERO).await?;
    let replicas = Replicas::start(1, &registry, json!({})).await?;
    let image = format!("{}/shop/web:v1", registry.address());
    let request = request(&typical::review(&typical::pod(&[image])).to_string());
    let mut busy = replicas.connect(0).await?;
    let latencies = async |connection: &mut Connection| {
        let mut latencies = Vec::new();
        for _ in 0..reviews {
            let begun = Instant::now();
            let answer = connection.review(&request).await?;
            latencies.push(begun.elapsed());
            if reason(answer)? != "tolerated" {
                return Err(reason(answer)?.to_owned().into());
            }
        }
        latencies.sort_unstable();
        Result::Ok(latencies)
    };
    let alone = latencies(&mut busy).await?;
    let before = replicas.resident()?;
    let cpu = replicas.cpu_seconds()?;
    let begun = Instant::now();
    let mut connections = Vec::new();
    while connections.len() < count {
        let some = (0..AT_ONCE.min(count - connections.len())).map(|_| replicas.connect(0));
        connections.extend(try_join_all(some).await?);
    }
    let opened = begun.elapsed();
    let cpu = replicas.cpu_seconds()? - cpu;
    // Each connection is used once.
    for connection in &mut connections {
        connection.review(&request).await?;
    }
    let after = replicas.resident()?;
    let beside = latencies(&mut busy).await?;
    println!("kept: {count} connections beside one in use");
    println!(
        "  opened in {opened:.1?}, {:.0} µs of CPU each",
        1e6 * cpu / count as f64
    );
    println!(
        "  resident: {before:.1} MiB before, {after:.1} MiB after, {:.1} KiB each",
        (after - before) * 1024.0 / count as f64
    );
    let show = |sorted: &[Duration]| {
        format!(
            "p50 {:.0?}, p99 {:.0?}",
            percentile(sorted, 50),
            percentile(sorted, 99)
        )
    };
    println!(
        "  reviews on the one in use: {} alone, {} beside them\n",
        show(&alone),
        show(&beside)
    );
    drop(connections);
    Ok(())
}
