//! The nodes of a cluster: which of them has a key. The library's own client dials by itself, and reads without a bound.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use redis::{Cmd, FromRedisValue, Value, cmd};

use super::node::{ANSWERS, Dialer, NODES_OF_A_CLUSTER, Node};
use super::server::{ServerError, text_of};
use super::url::Address;

/// Slots that keys are spread over.
const SLOTS: u16 = 16384;
/// Nodes that are connected to at a time; a cluster may have a thousand, and most have some.
const NODES: usize = 128;
/// Nodes that are asked for one key: the one that had it, the one that has it, and the one that takes it over.
const TRIES: usize = 3;

pub(super) struct Cluster {
    dialer: Dialer,
    /// The last slot of each range and the node that has it, by the first one.
    ranges: Mutex<BTreeMap<u16, (u16, Address)>>,
    nodes: Mutex<HashMap<Address, Node>>,
}

impl Cluster {
    /// Connects to all nodes that the one at this address knows, as far as they answer.
    pub(super) async fn connect(dialer: Dialer, address: &Address) -> Result<Self, ServerError> {
        let node = dialer.dial(address, NODES_OF_A_CLUSTER).await?;
        let known: Value = node.send(cmd("CLUSTER").arg("SLOTS")).await?;
        let ranges = ranges(&known, address);
        if ranges.is_empty() {
            return Err(ServerError::NoPrimary);
        }
        let mut owners: Vec<Address> = ranges.values().map(|(_, owner)| owner.clone()).collect();
        owners.sort_unstable_by(|a, b| (&a.host, a.port).cmp(&(&b.host, b.port)));
        owners.dedup();
        owners.truncate(NODES);
        let own = Self { dialer, ranges: ranges.into(), nodes: Mutex::default() };
        join_all(owners.iter().map(|owner| own.node(owner))).await;
        Ok(own)
    }

    /// Sends a command to the node that has its key.
    pub(super) async fn send<T: FromRedisValue>(&self, key: &str, command: &Cmd) -> Result<T, ServerError> {
        let slot = slot(key.as_bytes());
        let owner = locked(&self.ranges).range(..=slot).next_back().map(|(_, owner)| owner.clone());
        let (_, mut address) = owner.filter(|(last, _)| *last >= slot).ok_or(ServerError::NoPrimary)?;
        let mut asking = false;
        for _ in 0..TRIES {
            let node = self.node(&address).await?;
            let answer = match asking {
                true => node.send_asking(command).await,
                false => node.send(command).await,
            };
            let Err(ServerError::Redis(error)) = answer else { return answer };
            let Some(next) = error.redirect_node().and_then(|(next, _)| redirected(next, &address)) else {
                if error.is_io_error() {
                    locked(&self.nodes).remove(&address);
                }
                return Err(error.into());
            };
            asking = error.code() == Some("ASK");
            address = next;
            if !asking {
                self.moved(slot, address.clone());
            }
        }
        Err(ServerError::NoPrimary)
    }

    async fn node(&self, address: &Address) -> Result<Node, ServerError> {
        if let Some(node) = locked(&self.nodes).get(address) {
            return Ok(node.clone());
        }
        let node = self.dialer.dial(address, ANSWERS).await?;
        let mut nodes = locked(&self.nodes);
        if nodes.len() >= NODES {
            nodes.clear();
        }
        nodes.insert(address.clone(), node.clone());
        Ok(node)
    }

    /// One slot has another node by now.
    fn moved(&self, slot: u16, owner: Address) {
        let mut ranges = locked(&self.ranges);
        let before = ranges.range(..=slot).next_back().map(|(first, range)| (*first, range.clone()));
        if let Some((first, (last, old))) = before.filter(|(_, (last, _))| *last >= slot) {
            match slot.checked_sub(1) {
                Some(end) if first < slot => drop(ranges.insert(first, (end, old.clone()))),
                _ => {}
            }
            if slot < last {
                ranges.insert(slot + 1, (last, old));
            }
        }
        ranges.insert(slot, (slot, owner));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `CLUSTER SLOTS` of the node at this address says; what makes no sense is left out.
fn ranges(known: &Value, asked: &Address) -> BTreeMap<u16, (u16, Address)> {
    let Value::Array(known) = known else { return BTreeMap::new() };
    let range = |range: &Value| {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &**range else { return None };
        let [host, Value::Int(port), ..] = &**primary else { return None };
        // A node may not know under which name it is reached.
        let host = text_of(host).filter(|host| !host.is_empty() && *host != "?").unwrap_or(&asked.host);
        let owner = Address { host: host.to_owned(), port: u16::try_from(*port).ok()? };
        let slot = |slot: i64| u16::try_from(slot).ok().filter(|slot| *slot < SLOTS);
        Some((slot(*first)?, (slot(*last)?, owner)))
    };
    known.iter().filter_map(range).collect()
}

/// Where a redirection leads, `host:port`; without a host to another port of the node that answered.
fn redirected(to: &str, from: &Address) -> Option<Address> {
    let (host, port) = to.rsplit_once(':')?;
    let host = if host.is_empty() || host == "?" { &from.host } else { host };
    Some(Address { host: host.to_owned(), port: port.parse().ok()? })
}

/// The slot of a key: CRC-16 (XMODEM) of it, or of what stands in its first braces.
fn slot(key: &[u8]) -> u16 {
    let open = key.iter().position(|byte| *byte == b'{').map(|open| &key[open + 1..]);
    let tag = open.and_then(|rest| Some(&rest[..rest.iter().position(|byte| *byte == b'}')?]));
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc =
        hashed.iter().fold(0u16, |crc, byte| {
            (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            })
        });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Address {
        Address { host: "a".into(), port }
    }

    /// As `CLUSTER KEYSLOT` has them.
    #[test]
    fn knows_the_slot_of_a_key() {
        let slots = ["", "123456789", "foo", "{foo}bar", "a{foo}{bar}", "{}foo", "{foo"]
            .map(|key| slot(key.as_bytes()));
        assert_eq!(slots[..4], [0, 12739, 12182, 12182]);
        assert_eq!(slots[4], slots[2]);
        assert!(slots[5] != slots[2] && slots[6] != slots[2]);
    }

    #[test]
    fn a_slot_that_has_moved_leaves_the_others_where_they_are() {
        let node = |host: &str, port| Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)]);
        let range = |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), node]);
        let known = Value::Array(vec![
            range(0, 99, node("b", 1)),
            range(100, 16383, node("", 2)),
            range(5, 16384, node("c", 3)),
            Value::Nil,
        ]);
        let ranges = ranges(&known, &at(9));
        assert_eq!(
            ranges.values().map(|(last, owner)| (*last, owner.to_string())).collect::<Vec<_>>(),
            [(99, "b:1".into()), (16383, "a:2".into())]
        );
        let redis = redis::RedisConnectionInfo::default();
        let dialer = Dialer { tls: None, redis, timeout: std::time::Duration::ZERO };
        let cluster = Cluster { dialer, ranges: ranges.into(), nodes: Mutex::default() };
        for slot in [100, 0, 200, 16383, 200] {
            cluster.moved(slot, at(7));
        }
        let owner = |slot: u16| {
            let ranges = locked(&cluster.ranges);
            let (_, (last, owner)) = ranges.range(..=slot).next_back().unwrap();
            assert!(*last >= slot);
            owner.port
        };
        let slots = [0, 1, 99, 100, 101, 199, 200, 201, 16382, 16383];
        assert_eq!(slots.map(owner), [7, 1, 1, 7, 2, 2, 7, 2, 2, 7]);
        assert_eq!(redirected("::1:80", &at(1)).map(|to| to.host), Some("::1".into()));
        assert_eq!(redirected(":80", &at(1)), Some(at(80)));
    }
}
