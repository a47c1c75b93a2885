use super::*;

#[tokio::test(start_paused = true)]
async fn values_live_for_their_lifetime() {
    let cache = TtlCache::new(10, 10, |_, _| 1);
    cache.put("a", 1, Duration::from_secs(60));
    assert_eq!(cache.get(&"a"), Some(1));
    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(cache.get(&"a"), Some(1));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(cache.get(&"a"), None);
    cache.put("a", 2, Duration::from_secs(60));
    cache.put("a", 3, Duration::ZERO);
    assert_eq!(cache.get(&"a"), None);
}

#[tokio::test(start_paused = true)]
async fn expired_values_are_dropped() {
    let cache = TtlCache::new(10, 10, |_, _| 1);
    let short = Arc::new(());
    let long = Arc::new(());
    for _ in 0..2 {
        cache.put("short", Arc::clone(&short), Duration::from_secs(10));
        cache.put("long", Arc::clone(&long), SWEEP * 2);
        sleep(SWEEP + Duration::from_secs(1)).await;
        assert_eq!(
            (Arc::strong_count(&short), Arc::strong_count(&long)),
            (1, 2)
        );
        sleep(SWEEP * 2).await;
        assert_eq!(Arc::strong_count(&long), 1);
    }
    let gone = Arc::downgrade(&cache);
    drop(cache);
    sleep(SWEEP).await;
    assert!(gone.upgrade().is_none());
}

#[tokio::test]
async fn total_weight_is_limited() {
    let cache = TtlCache::new(100, 4000, |_, (value, _): &(Arc<[u8]>, Instant)| {
        value.len() as u64
    });
    let bytes: Arc<[u8]> = vec![0; 100].into();
    for key in 0..1000 {
        cache.put(key, Arc::clone(&bytes), LIFE);
    }
    assert!(
        (2..=41).contains(&Arc::strong_count(&bytes)),
        "{}",
        Arc::strong_count(&bytes)
    );
}
