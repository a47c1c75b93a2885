use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::*;

#[tokio::test(start_paused = true)]
async fn keeps_values_for_their_lifetime() {
    let cache = TtlCache::new(10);
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
async fn drops_expired_values() {
    let cache = TtlCache::new(10);
    let (short, long) = (Arc::new(()), Arc::new(()));
    for _ in 0..2 {
        cache.put("short", Arc::clone(&short), Duration::from_secs(10));
        cache.put("long", Arc::clone(&long), limits::SWEEP * 2);
        sleep(limits::SWEEP + Duration::from_secs(1)).await;
        assert_eq!((Arc::strong_count(&short), Arc::strong_count(&long)), (1, 2));
        sleep(limits::SWEEP * 2).await;
        assert_eq!(Arc::strong_count(&long), 1);
    }
    let gone = Arc::downgrade(&cache);
    drop(cache);
    sleep(limits::SWEEP).await;
    assert!(gone.upgrade().is_none());
}

#[tokio::test]
async fn holds_no_more_than_its_weight() {
    let cache = TtlCache::weighed(100, 4000, |_, value: &Arc<[u8]>| value.len() as u64);
    let bytes: Arc<[u8]> = vec![0; 100].into();
    for key in 0..1000 {
        cache.put(key, Arc::clone(&bytes), LIFE);
    }
    assert!((2..=41).contains(&Arc::strong_count(&bytes)), "{}", Arc::strong_count(&bytes));
}

#[tokio::test]
async fn one_fetches_for_all_and_goes_on_alone() {
    let cache = TtlCache::new(10);
    let (runs, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let fetch = || {
        let (cache, runs, go) = (Arc::clone(&cache), Arc::clone(&runs), Arc::clone(&go));
        async move {
            runs.fetch_add(1, Ordering::SeqCst);
            go.notified().await;
            cache.put("a", 7, Duration::from_secs(60));
            Some(7)
        }
    };
    let operator = Callers::operator();
    let mut one = Box::pin(cache.join(&"a", &operator, |_| fetch()));
    let mut other = Box::pin(cache.join(&"a", &operator, |_| fetch()));
    assert!(futures_util::poll!(&mut one).is_pending());
    assert!(futures_util::poll!(&mut other).is_pending());
    drop(one);
    go.notify_one();
    assert_eq!(other.await, Some(7));
    assert_eq!(runs.load(Ordering::SeqCst), 1);

    // Its only caller goes away, and its value is kept all the same.
    cache.put("a", 0, Duration::ZERO);
    let mut abandoned = Box::pin(cache.join(&"a", &operator, |_| fetch()));
    assert!(futures_util::poll!(&mut abandoned).is_pending());
    drop(abandoned);
    go.notify_one();
    while cache.get(&"a") != Some(7) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn flights_are_bounded() {
    let cache = TtlCache::new(10);
    let mut waiting = Vec::new();
    for key in 0..FLIGHTS {
        let mut flight = Box::pin({
            let cache = Arc::clone(&cache);
            async move { cache.join(&key, &Callers::operator(), |_| std::future::pending::<Option<()>>()).await }
        });
        assert!(futures_util::poll!(&mut flight).is_pending());
        waiting.push(flight);
    }
    assert_eq!(cache.join(&FLIGHTS, &Callers::operator(), |_| async { Some(()) }).await, None);
}
