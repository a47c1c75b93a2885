//! Registries that throttle or keep failing: left alone, and found out about.

use super::*;

#[tokio::test]
async fn a_registry_that_throttles_is_left_alone_as_long_as_it_asks() {
    for retry_after in [Some("300"), None] {
        let bench = Bench::new().await;
        let (repo, image) = bench.multi("app");
        let (_, other) = bench.multi("other");
        let reply = Reply::error(429, "TOOMANYREQUESTS");
        repo.fault(Some(Fault::reply(
            retry_after.map_or(reply.clone(), |value| reply.header("retry-after", value)),
        )));
        assert_eq!(bench.ask(&image).await, Err(LookupError::Throttled));
        assert_eq!(bench.ask(&other).await, Err(LookupError::Throttled), "the whole host");
        assert_eq!(bench.seen(), ["GET"]);
        repo.fault(None);
        later(if retry_after.is_some() { 250 } else { 50 } * SECOND).await;
        assert_eq!(bench.ask(&other).await, Err(LookupError::Throttled));
        later(61 * SECOND).await;
        assert_eq!(bench.ask(&other).await, Ok(BOTH));
        assert_eq!(bench.ask(&image).await, Ok(BOTH));
    }
}

#[tokio::test]
async fn a_registry_that_keeps_failing_delays_nobody_until_it_is_well_again() {
    let bench = Bench::new().await;
    let mut images = Vec::new();
    for i in 0..20 {
        let (repo, image) = bench.multi(&format!("app{i}"));
        repo.fault(Some(Fault::status(503)));
        images.push((repo, image));
    }
    let mut outcomes = Vec::new();
    for (_, image) in &images[..6] {
        outcomes.push(bench.ask(image).await);
    }
    let (faults, open) = (Err(LookupError::Unreachable), Err(LookupError::CircuitOpen));
    assert_eq!(outcomes, [faults, faults, faults, open, open, open]);
    assert_eq!(bench.seen().len(), 3);

    // A probe finds it still failing, and nobody waits for that.
    later(21 * SECOND).await;
    assert_eq!(bench.ask_within(&images[6].1, Duration::ZERO).await, open);
    bench.landed().await;
    assert_eq!(bench.ask(&images[7].1).await, open);
    assert_eq!(bench.seen().len(), 1);

    images.iter().for_each(|(repo, _)| repo.fault(None));
    later(21 * SECOND).await;
    while bench.ask_within(&images[8].1, Duration::ZERO).await == open {
        bench.landed().await;
    }
    for (_, image) in &images {
        assert_eq!(bench.ask(image).await, Ok(BOTH), "{image}");
    }
}

#[tokio::test]
async fn nobody_waits_for_the_lookup_that_finds_out_nor_has_to_ask_for_it() {
    let bench = Bench::new().await;
    let (repo, image) = bench.multi("app");
    repo.fault(Some(Fault::status(503)));
    for tag in ["v2", "v3", "v4"] {
        let _ = bench.ask(&repo.reference(tag).parse().unwrap()).await;
    }
    repo.fault(Some(Fault::hang()));
    bench.seen();
    later(21 * SECOND).await;
    for _ in 0..3 {
        let begun = Instant::now();
        assert_eq!(bench.ask(&image).await, Err(LookupError::CircuitOpen));
        assert!(begun.elapsed() < SECOND);
    }
    bench.remote.wait_until(|seen| seen.len() == 1).await;

    // It hangs until its timeout; the next probe comes by itself, and finds it well.
    repo.fault(None);
    later(11 * SECOND).await;
    bench.landed().await;
    later(21 * SECOND).await;
    bench.remote.wait_until(|seen| seen.len() == 2).await;
    bench.landed().await;
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
}
