use tokio::sync::oneshot;

use super::*;

#[test]
fn component_is_healthy_if_all_its_states_are() {
    let metrics = Metrics::new([]).unwrap();
    let one = Reported::default();
    let other = Reported::default();
    let wrong = Reported::default();
    let one_in_check = one.clone();
    let other_in_check = other.clone();
    let component = Component::new("part", move || [one_in_check.get(), other_in_check.get()]);
    let health = Health::register(&metrics, vec![component]).unwrap();
    let faults = Health {
        components: [Component::reported("part", wrong.clone())].into(),
        ..health.clone()
    };
    let shows = |health: &Health, states: &[State], value| {
        let expected: Vec<_> = states.iter().map(|state| ("part", *state)).collect();
        assert_eq!(health.check(), expected);
        let line = format!("tolerarch_component_healthy{{component=\"part\"}} {value}\n");
        assert!(metrics.render().unwrap().contains(&line));
    };
    shows(&health, &[State::Healthy], 1);
    one.set(State::Degraded("a"));
    shows(&health, &[State::Degraded("a")], 0);
    other.set(State::Failed(""));
    shows(&health, &[State::Degraded("a"), State::Failed("")], 0);
    one.set(State::Healthy);
    other.set(State::Healthy);
    shows(&health, &[State::Healthy], 1);
    // The end of one fault hides no other.
    wrong.set_fault("b", true);
    wrong.set_fault("c", true);
    wrong.set_fault("b", true);
    shows(&faults, &[State::Degraded("b"), State::Degraded("c")], 0);
    wrong.set_fault("b", false);
    shows(&faults, &[State::Degraded("c")], 0);
    wrong.set(State::Healthy);
    shows(&faults, &[State::Healthy], 1);
}

#[test]
fn component_without_a_state_is_not_listed() {
    let metrics = Metrics::new([]).unwrap();
    let exists = Arc::new(Mutex::new(false));
    let exists_in_check = Arc::clone(&exists);
    let component = Component::new("part", move || {
        exists_in_check.lock().then_some(State::Healthy)
    });
    let health = Health::register(&metrics, vec![component]).unwrap();
    let is_counted = || metrics.render().unwrap().contains("component=\"part\"");
    assert!(health.check().is_empty() && !is_counted());
    *exists.lock() = true;
    assert!(health.check() == [("part", State::Healthy)] && is_counted());
}

#[tokio::test(start_paused = true)]
async fn hanging_access_to_files_is_reported() {
    let state = Reported::default();
    state.set_fault("also", true);
    let (end, ended) = oneshot::channel::<u8>();
    let reported = state.clone();
    let access = tokio::spawn(async move { reported.await_files(ended).await });
    tokio::time::sleep(STALLED / 2).await;
    assert!(!state.has(UNREAD));
    tokio::time::sleep(STALLED).await;
    assert!(state.has(UNREAD) && state.has("also"));
    end.send(7).unwrap();
    assert_eq!(access.await.unwrap(), Ok(7));
    assert!(!state.has(UNREAD) && state.has("also"));
}
