//! What gives way when the budget is used up.

use super::*;

fn used(budget: &Budget) -> usize {
    budget.0.lock().used
}

#[tokio::test(start_paused = true)]
async fn what_occupies_the_most_goes_first() {
    let budget = Budget::new(1600);
    let mut old = budget.room(Instant::now());
    old.hold(200).unwrap();
    advance(Duration::from_secs(10)).await;
    let mut large = budget.room(Instant::now());
    large.hold(1200).unwrap();
    advance(Duration::from_millis(1)).await;
    let mut small = budget.room(Instant::now());
    small.hold(250).unwrap();
    old.evicted().await;
    assert_eq!(used(&budget), 1450);
    small.hold(450).unwrap();
    large.evicted().await;
    assert!(old.hold(201).is_err() && large.hold(1201).is_err());
    assert_eq!(used(&budget), 450);
    drop((old, large));
    assert_eq!(used(&budget), 450);
    drop(small);
    assert_eq!(used(&budget), 0);
}

#[tokio::test(start_paused = true)]
async fn the_one_that_asks_for_too_much_goes_itself() {
    let budget = Budget::new(1000);
    let (mut small, mut large) = (budget.room(Instant::now()), budget.room(Instant::now()));
    small.hold(100).unwrap();
    assert!(large.hold(950).is_err());
    large.evicted().await;
    assert_eq!(used(&budget), 100);
}
