//! The order of evictions when the budget is used up.

use super::*;

fn used(budget: &Budget) -> usize {
    budget.0.lock().used
}

#[tokio::test(start_paused = true)]
async fn holder_that_occupies_the_most_is_evicted_first() {
    let budget = Budget::new(1600);
    let mut old = budget.reserve(Instant::now());
    budget.resize(&mut old, 200).unwrap();
    advance(Duration::from_secs(10)).await;
    let mut large = budget.reserve(Instant::now());
    budget.resize(&mut large, 1200).unwrap();
    advance(Duration::from_millis(1)).await;
    let mut small = budget.reserve(Instant::now());
    budget.resize(&mut small, 250).unwrap();
    old.evicted().await;
    assert_eq!(used(&budget), 1450);
    budget.resize(&mut small, 450).unwrap();
    large.evicted().await;
    assert!(budget.resize(&mut old, 201).is_err() && budget.resize(&mut large, 1201).is_err());
    assert_eq!(used(&budget), 450);
    drop((old, large));
    assert_eq!(used(&budget), 450);
    drop(small);
    assert_eq!(used(&budget), 0);
}

#[tokio::test(start_paused = true)]
async fn holder_that_reserves_too_much_is_evicted_itself() {
    let budget = Budget::new(1000);
    let mut small = budget.reserve(Instant::now());
    let mut large = budget.reserve(Instant::now());
    budget.resize(&mut small, 100).unwrap();
    assert!(budget.resize(&mut large, 950).is_err());
    large.evicted().await;
    assert_eq!(used(&budget), 100);
}
