use futures_util::FutureExt;
use tokio::time::advance;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
/// The default of `server.maxConnections`, and the grace period of `serve`.
const SHIPPED: Limits = Limits {
    connections: 4096,
    per_peer: 4096,
    grace_period: Duration::from_secs(5),
};
const FLOODER: [u8; 4] = [10, 0, 0, 66];
const API_SERVER: [u8; 4] = [10, 0, 0, 1];

type Entered = (Slot, Arc<Activity>);

fn enter_now(slots: &Arc<Slots>, peer: [u8; 4]) -> Option<Entered> {
    let slot = slots.take(peer.into())?;
    let activity = Arc::clone(&slot.activity);
    Some((slot, activity))
}

async fn enter(slots: &Arc<Slots>, peer: [u8; 4]) -> Option<Entered> {
    advance(SECOND).await;
    enter_now(slots, peer)
}

fn has_to_close((_, activity): &Entered) -> bool {
    activity.close_requested().now_or_never().is_some()
}

fn begin_answer((_, activity): &Entered) {
    activity.head_complete();
    activity.body_complete();
}

#[tokio::test(start_paused = true)]
async fn connection_that_waited_longest_makes_room() {
    let slots = Slots::new(Limits {
        connections: 3,
        per_peer: 3,
        grace_period: Duration::ZERO,
    });
    let answering = enter(&slots, [10, 0, 0, 1]).await.unwrap();
    begin_answer(&answering);
    let used = enter(&slots, [10, 0, 0, 1]).await.unwrap();
    let idle = enter(&slots, [10, 0, 0, 1]).await.unwrap();
    advance(SECOND).await;
    used.1.answer_complete();
    let next = enter(&slots, [10, 0, 0, 2]).await.unwrap();
    assert!(has_to_close(&idle) && !has_to_close(&used) && !has_to_close(&answering));
    for connection in [&used, &next] {
        begin_answer(connection);
    }
    assert!(
        enter(&slots, [10, 0, 0, 2]).await.is_none(),
        "all are being answered"
    );
    drop(used);
    assert!(enter(&slots, [10, 0, 0, 2]).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn crowded_address_takes_only_its_own_slots() {
    let slots = Slots::new(Limits {
        connections: 9,
        per_peer: 2,
        grace_period: Duration::ZERO,
    });
    let other = enter(&slots, [10, 0, 0, 2]).await.unwrap();
    let first = enter(&slots, [10, 0, 0, 1]).await.unwrap();
    let second = enter(&slots, [10, 0, 0, 1]).await.unwrap();
    let third = enter(&slots, [10, 0, 0, 1]).await.unwrap();
    assert!(has_to_close(&first) && ![&other, &second, &third].into_iter().any(has_to_close));
}

#[tokio::test(start_paused = true)]
async fn fresh_connection_keeps_its_slot() {
    let slots = Slots::new(Limits {
        connections: 1,
        per_peer: 1,
        grace_period: 3 * SECOND,
    });
    let first = enter(&slots, [10, 0, 0, 1]).await.unwrap();
    assert!(enter(&slots, [10, 0, 0, 1]).await.is_none() && !has_to_close(&first));
    advance(2 * SECOND).await;
    assert!(enter(&slots, [10, 0, 0, 1]).await.is_some() && has_to_close(&first));
}

#[tokio::test(start_paused = true)]
async fn never_answered_connection_makes_room_first() {
    let slots = Slots::new(Limits {
        connections: 3,
        per_peer: 3,
        grace_period: SECOND,
    });
    let idle = enter(&slots, FLOODER).await.unwrap();
    idle.1.answer_complete();
    advance(9 * SECOND).await;
    let fresh = enter(&slots, FLOODER).await.unwrap();
    let answering = enter(&slots, FLOODER).await.unwrap();
    begin_answer(&answering);
    let first = enter(&slots, API_SERVER).await.unwrap();
    assert!(has_to_close(&fresh) && !has_to_close(&idle));
    // While fresh connections are in their grace period, an idle one makes room.
    let second = enter_now(&slots, FLOODER).unwrap();
    assert!(has_to_close(&idle) && ![&first, &second, &answering].into_iter().any(has_to_close));
}

/// Otherwise 4,100 connections that are renewed just before their idle timeout would suffice.
#[tokio::test(start_paused = true)]
async fn flood_from_one_address_refuses_no_other() {
    for answered in [false, true] {
        let slots = Slots::new(SHIPPED);
        let flood = || {
            let connection = enter_now(&slots, FLOODER)?;
            if answered {
                begin_answer(&connection);
            }
            Some(connection)
        };
        let mut flooding: Vec<Entered> = (0..SHIPPED.connections).filter_map(|_| flood()).collect();
        assert_eq!(flooding.len(), SHIPPED.connections);
        let mut api_server = Vec::new();
        for _ in 0..20 {
            for _ in 0..50 {
                let connection = enter_now(&slots, API_SERVER).expect("a slot");
                connection.1.answer_complete();
                api_server.push(connection);
            }
            assert!(slots.open.lock().values().map(Vec::len).sum::<usize>() <= SHIPPED.connections);
            // Closed connections are opened again.
            flooding.retain(|connection| !has_to_close(connection));
            flooding.extend((0..100).map_while(|_| flood()));
            advance(SECOND / 4).await;
        }
        assert_eq!(
            api_server
                .iter()
                .filter(|connection| has_to_close(connection))
                .count(),
            0,
            "{answered}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn equal_addresses_do_not_close_each_others() {
    let slots = Slots::new(Limits {
        connections: 4,
        per_peer: 4,
        grace_period: SECOND,
    });
    let all: Vec<_> = (0..4)
        .map(|i| enter_now(&slots, [10, 0, 0, i % 2]).unwrap())
        .collect();
    for connection in &all {
        begin_answer(connection);
    }
    for peer in 0..2 {
        assert!(enter(&slots, [10, 0, 0, peer]).await.is_none());
    }
    assert!(!all.iter().any(has_to_close));
    let third = enter(&slots, [10, 0, 0, 2]).await.unwrap();
    assert_eq!(
        all.iter()
            .filter(|connection| has_to_close(connection))
            .count(),
        1
    );
    begin_answer(&third);
    assert!(
        enter(&slots, [10, 0, 0, 2]).await.is_none(),
        "no other address has two more"
    );
}

/// Compares with the rule itself, over connections that change their stage at random.
#[tokio::test(start_paused = true)]
async fn lowest_rank_makes_room() {
    let limits = Limits {
        connections: 24,
        per_peer: 16,
        grace_period: 2 * SECOND,
    };
    let slots = Slots::new(limits);
    let mut random = fastrand::Rng::with_seed(7);
    let mut open: Vec<(u8, Entered)> = Vec::new();
    let mut accepted = 0;
    let mut refused = 0;
    let mut cut_off = 0;
    for _ in 0..20_000 {
        advance(Duration::from_millis(random.u64(1..400))).await;
        if !open.is_empty() && random.u8(..3) > 0 {
            let index = random.usize(..open.len());
            let (_, (_, activity)) = &open[index];
            match random.u8(..12) {
                0 => drop(open.swap_remove(index)),
                1..=2 => activity.answer_complete(),
                _ => begin_answer(&open[index].1),
            }
            continue;
        }
        let peer = *random.choice(&[1, 1, 1, 2, 2, 3, 4]).unwrap();
        let of = [0, 1, 2, 3, 4].map(|peer| open.iter().filter(|(of, _)| *of == peer).count());
        let of_this_peer = of[usize::from(peer)];
        let most = *of.iter().max().unwrap();
        let full = open.len() >= limits.connections;
        let crowded = of_this_peer >= limits.per_peer;
        let forced = !crowded && of_this_peer + 1 < most;
        let grace_period = if forced {
            Duration::ZERO
        } else {
            limits.grace_period
        };
        let eligible = |of_peer: u8| match (crowded, forced) {
            (true, _) => of_peer == peer,
            (false, true) => of[usize::from(of_peer)] == most,
            (false, false) => of_peer == peer || of[usize::from(of_peer)] == most,
        };
        let now = Instant::now();
        let waiting = open
            .iter()
            .filter(|(of_peer, _)| eligible(*of_peer))
            .filter_map(|(of_peer, (_, activity))| {
                let (served, since) = activity.waiting()?;
                (now - since >= grace_period).then_some((served, *of_peer, since))
            });
        let waiting: Vec<_> = waiting.collect();
        let entered = enter_now(&slots, [10, 0, 0, peer]);
        let closed_index = open
            .iter()
            .position(|(_, connection)| has_to_close(connection));
        let closed = closed_index.map(|index| open.swap_remove(index));
        if let Some(connection) = entered {
            open.push((peer, connection));
            accepted += 1;
        } else {
            refused += 1;
            assert!((full || crowded) && !forced && waiting.is_empty());
            continue;
        }
        let Some((of_peer, (_, activity))) = closed else {
            assert!(!full && !crowded);
            continue;
        };
        assert!(eligible(of_peer), "{of_peer} for {peer}");
        match activity.waiting() {
            // No connection of the same address has a lower rank, and no other one was never answered.
            Some((served, since)) => {
                let is_lower = |(other_served, other_peer, other_since): &(bool, u8, Instant)| {
                    let has_lower_rank = (*other_served, *other_since) < (served, since);
                    has_lower_rank && *other_peer == of_peer || !other_served && served && !forced
                };
                assert!(now - since >= grace_period && !waiting.iter().any(is_lower));
            }
            None => {
                cut_off += 1;
                let mut peers = waiting.iter().map(|(_, other_peer, _)| other_peer);
                assert!(forced && !peers.any(|other_peer| *other_peer == of_peer));
            }
        }
    }
    assert!(
        accepted > 1000 && refused > 100 && cut_off > 10,
        "{accepted} {refused} {cut_off}"
    );
}
