//! The servers of one URL, one or the nodes of a cluster, and commands to them, whose time their callers limit. The
//! library's own clients dial by themselves, and read without a bound.

use std::fmt::Display;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use futures_util::future::join_all;
use redis::{Cmd, FromRedisValue, RedisConnectionInfo, RedisError, RedisResult, Value, cmd};
use tokio::time::Duration;
use zeroize::Zeroizing;

use super::SharedCacheSettings;
use super::entry::LENGTH;
use super::key::Keys;
use super::node::{self, ANSWERS, Dialer, NODES_OF_A_CLUSTER, Node};
use super::url::{Address, ServerUrl};
use tolerarch_support::file;

/// Slots that a cluster spreads its keys over.
const SLOTS: usize = 16384;
/// Nodes that are connected to at a time; a cluster may have a thousand, and most have some.
const NODES: usize = 128;
/// The owner of a slot that none of these has.
const NO_NODE: u8 = u8::MAX;
/// Nodes that are asked for one key: the one that had it, the one that has it, and the one that takes it over.
const TRIES: usize = 3;
/// Bytes of a user name, a password or a key.
const SECRET_BYTES: u64 = 4096;
/// Bytes of a key below which it can be guessed.
const KEY_BYTES: usize = 16;
/// Bytes of a bundle of certificate authorities.
const CA_BYTES: u64 = 4 << 20;

type Range = (RangeInclusive<usize>, Address);

pub(super) struct Server {
    nodes: Vec<(Address, Node)>,
    /// The place in `nodes` of the one that has a slot. Which nodes there are is asked by the next connection.
    owners: Vec<AtomicU8>,
}

impl Server {
    /// Connects to the server, or to the nodes of the cluster that answer. The caller limits the time.
    pub(super) async fn connect(url: &ServerUrl, dialer: &Dialer) -> RedisResult<Self> {
        let ranges = match &*url.addresses {
            [address] if !url.is_cluster => vec![(0..=SLOTS - 1, address.clone())],
            seeds => ranges_of_any(dialer, seeds).await?,
        };
        let mut addresses: Vec<&Address> = ranges.iter().map(|(_, owner)| owner).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses.truncate(NODES);
        let dialled = addresses.iter().map(|address| dialer.dial(address, ANSWERS));
        let (mut nodes, mut failed) = (Vec::new(), no_node());
        let owners: Vec<_> = (0..SLOTS).map(|_| AtomicU8::new(NO_NODE)).collect();
        for (address, node) in addresses.iter().copied().zip(join_all(dialled).await) {
            match node {
                Ok(node) => nodes.push((address.clone(), node)),
                Err(error) => failed = error,
            }
        }
        if nodes.is_empty() {
            return Err(failed);
        }
        let own = Self { nodes, owners };
        for (slots, owner) in &ranges {
            let place = own.place(owner).unwrap_or(NO_NODE);
            own.owners[slots.clone()].iter().for_each(|slot| slot.store(place, Ordering::Relaxed));
        }
        Ok(own)
    }

    /// Empty if there is none. Never more than an entry has and one byte: another value may have any size.
    pub(super) async fn get(&self, key: &str) -> RedisResult<Vec<u8>> {
        self.send(key, cmd("GETRANGE").arg(key).arg(0).arg(LENGTH)).await
    }

    pub(super) async fn set(&self, key: &str, value: &[u8], life: Duration) -> RedisResult<()> {
        let life = u64::try_from(life.as_millis()).unwrap_or(u64::MAX).max(1);
        self.send(key, cmd("SET").arg(key).arg(value).arg("PX").arg(life)).await
    }

    pub(super) async fn delete(&self, key: &str) -> RedisResult<()> {
        self.send(key, cmd("DEL").arg(key)).await
    }

    async fn send<T: FromRedisValue>(&self, key: &str, command: &Cmd) -> RedisResult<T> {
        let owner = &self.owners[slot(key.as_bytes())];
        let (mut place, mut asking) = (owner.load(Ordering::Relaxed), false);
        for _ in 0..TRIES {
            let (address, node) = self.nodes.get(usize::from(place)).ok_or_else(no_node)?;
            let answer = match asking {
                true => node.send_asking(command).await,
                false => node.send(command).await,
            };
            let Err(error) = answer else { return answer };
            let Some((next, _)) = error.redirect_node() else { return Err(error) };
            place = redirected(next, address).and_then(|next| self.place(&next)).ok_or_else(no_node)?;
            asking = error.code() == Some("ASK");
            if !asking {
                owner.store(place, Ordering::Relaxed);
            }
        }
        Err(no_node())
    }

    fn place(&self, address: &Address) -> Option<u8> {
        let place = self.nodes.iter().position(|(own, _)| own == address)?;
        u8::try_from(place).ok()
    }
}

/// The ranges of a cluster, as the first of these nodes knows them that answers.
async fn ranges_of_any(dialer: &Dialer, seeds: &[Address]) -> RedisResult<Vec<Range>> {
    let mut failed = no_node();
    for seed in seeds {
        let asked = async {
            let node = dialer.dial(seed, NODES_OF_A_CLUSTER).await?;
            let known: Value = node.send(cmd("CLUSTER").arg("SLOTS")).await?;
            Ok::<_, RedisError>(ranges(&known, seed))
        };
        match asked.await {
            Ok(ranges) if !ranges.is_empty() => return Ok(ranges),
            Ok(_) => {}
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// What `CLUSTER SLOTS` of the node at this address says; what makes no sense is left out.
fn ranges(known: &Value, (asked, _): &Address) -> Vec<Range> {
    let range = |range: &Value| {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &**range else { return None };
        let [host, Value::Int(port), ..] = &**primary else { return None };
        let host: Option<String> = redis::from_redis_value_ref(host).ok()?;
        // A node may not know under which name it is reached.
        let host = host.filter(|host| !host.is_empty() && host != "?").unwrap_or_else(|| asked.clone());
        let slot = |slot: i64| usize::try_from(slot).ok().filter(|slot| *slot < SLOTS);
        Some((slot(*first)?..=slot(*last)?, (host, u16::try_from(*port).ok()?)))
    };
    let Value::Array(known) = known else { return Vec::new() };
    known.iter().filter_map(range).filter(|(slots, _)| !slots.is_empty()).collect()
}

/// Where a redirection leads, `host:port`; without a host to another port of the node that answered.
fn redirected(to: &str, (from, _): &Address) -> Option<Address> {
    let (host, port) = to.rsplit_once(':')?;
    let host = if host.is_empty() || host == "?" { from } else { host };
    Some((host.to_owned(), port.parse().ok()?))
}

/// The slot of a key: CRC-16 (XMODEM) of it, or of what stands in its first braces.
fn slot(key: &[u8]) -> usize {
    let open = key.iter().position(|byte| *byte == b'{').map(|open| &key[open + 1..]);
    let tag = open.and_then(|rest| Some(&rest[..rest.iter().position(|byte| *byte == b'}')?]));
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc =
        hashed.iter().fold(0u16, |crc, byte| {
            (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            })
        });
    usize::from(crc) % SLOTS
}

fn no_node() -> RedisError {
    io::Error::other("no node of the cluster is known to have it").into()
}

/// How to dial and what makes keys: read anew for each connection, as passwords are rotated.
pub(super) fn read(settings: &SharedCacheSettings, url: &ServerUrl) -> io::Result<(Dialer, Keys)> {
    let mut redis = RedisConnectionInfo::default().set_skip_set_lib_name().set_db(url.database.into());
    if let Some(user) = secret("usernameFile", settings.username_file.as_deref())? {
        redis = redis.set_username(text("usernameFile", &user)?);
    }
    if let Some(password) = secret("passwordFile", settings.password_file.as_deref())? {
        redis = redis.set_password(text("passwordFile", &password)?);
    }
    let key = secret("keyFile", settings.key_file.as_deref())?;
    if key.as_ref().is_some_and(|key| key.len() < KEY_BYTES) {
        tracing::warn!("cache.shared.keyFile: shorter than {KEY_BYTES} bytes, so that it can be guessed");
    }
    let ca = settings.ca_file.as_deref().map(|path| bytes("caFile", path, CA_BYTES)).transpose()?;
    let tls = url.tls.then(|| node::tls(ca.as_ref().map(|ca| ca.as_slice())));
    let tls = tls.transpose().map_err(io::Error::other)?;
    Ok((Dialer { tls, redis }, Keys::new(&settings.prefix, key.as_ref().map(|key| key.as_slice()))))
}

/// What a file holds, without the end of its last line.
fn secret(key: &str, path: Option<&Path>) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let Some(path) = path else { return Ok(None) };
    let mut secret = bytes(key, path, SECRET_BYTES)?;
    while secret.ends_with(b"\n") || secret.ends_with(b"\r") {
        secret.pop();
    }
    if secret.is_empty() { Err(unusable(key, path, "empty")) } else { Ok(Some(secret)) }
}

fn bytes(key: &str, path: &Path, limit: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    file::read_at_most(path, limit).map(Zeroizing::new).map_err(|cause| unusable(key, path, cause))
}

fn unusable(key: &str, path: &Path, cause: impl Display) -> io::Error {
    io::Error::other(format!("cache.shared.{key}: {}: {cause}", path.display()))
}

fn text<'a>(key: &str, bytes: &'a [u8]) -> io::Result<&'a str> {
    std::str::from_utf8(bytes).map_err(|_| io::Error::other(format!("cache.shared.{key}: no text")))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn reads_what_a_cluster_says_of_its_nodes() {
        let node = |host: &str, port| Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)]);
        let range = |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), node]);
        let known = Value::Array(vec![
            range(0, 99, node("b", 1)),
            range(100, 16383, node("", 2)),
            range(5, 16384, node("c", 3)),
            range(9, 5, node("c", 3)),
            Value::Nil,
        ]);
        let at = |host: &str, port| (host.to_owned(), port);
        assert_eq!(ranges(&known, &at("a", 9)), [(0..=99, at("b", 1)), (100..=16383, at("a", 2))]);
        assert_eq!(redirected("::1:80", &at("a", 1)), Some(at("::1", 80)));
        assert_eq!(redirected(":80", &at("a", 1)), Some(at("a", 80)));
    }
}
