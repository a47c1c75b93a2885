//! Limits on untrusted input: Pods name registries, so every response may be hostile.

use std::time::Duration;

/// Bytes of a manifest or an index; containerd's `MaxManifestSize` is about as large.
pub(crate) const MANIFEST: usize = 4 << 20;
/// Bytes of a config blob. Real ones have a few kilobytes.
pub(crate) const CONFIG: usize = 1 << 20;
/// Bytes of a token server's answer, as in go-containerregistry.
pub(crate) const TOKEN: usize = 64 << 10;
/// Bytes of an error response: read so that the connection can be used again.
pub(crate) const ERROR: usize = 64 << 10;
/// How long such a body may take.
pub(crate) const ERROR_TIME: Duration = Duration::from_millis(500);
/// Bytes of all answers that are read at a time: twelve of the largest manifests. Beyond, the largest and slowest go.
pub(crate) const BODIES: usize = 48 << 20;
/// Characters of the cause of a broken connection.
pub(crate) const CAUSE: usize = 200;
/// Characters of a host that a registry named, in a message.
pub(crate) const SHOWN_HOST: usize = 100;
/// Bytes of one response on the wire, handshake included: the largest body, and 1 MiB for what is around it.
pub(crate) const RESPONSE: usize = MANIFEST + (1 << 20);
/// Bytes of the headers of an answer.
pub(crate) const HEADERS: usize = 64 << 10;
/// Entries of one index.
pub(crate) const ENTRIES: usize = 1000;
/// Indexes within indexes: the one that the Pod names is the first.
pub(crate) const DEPTH: usize = 3;
/// Documents below one index that are fetched because no entry says what they are.
pub(crate) const FETCHES: usize = 8;
/// Entries of one index that are asked for at a time, each on a connection.
pub(crate) const PARTS: usize = 4;
/// Redirects of one request: a domain of one's own before k8s.gcr.io, whose blobs take three. Other clients follow ten.
pub(crate) const REDIRECTS: usize = 5;
/// Name servers that are asked, as many as the C library takes (`MAXNS`).
pub(crate) const NAME_SERVERS: usize = 3;
/// How long a name may take, so that time is left to connect (`CONNECT_TIME`); and how long the one family is waited for when the
/// other has answered (RFC 8305, section 3).
pub(crate) const NAME_TIME: Duration = Duration::from_secs(4);
pub(crate) const OTHER_FAMILY: Duration = Duration::from_millis(50);
/// Requests to one name server that are under way. Each lookup has two, and there are never as many lookups.
pub(crate) const NAME_REQUESTS: usize = 4096;
/// Addresses of one host that are tried.
pub(crate) const ADDRESSES: usize = 8;
/// How long one address is tried alone before the next one is tried beside it (RFC 8305, section 5).
pub(crate) const NEXT_ADDRESS: Duration = Duration::from_millis(250);
/// Connections to one registry that are kept for the next lookup, and for how long. As many as run at a time by default
/// (`lookup.perRegistry`): with fewer, those that end together would be closed while others wait to begin.
pub(crate) const IDLE: usize = 16;
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(20);
/// Challenges (by host) and tokens (by repository and credential) that are remembered.
pub(crate) const CHALLENGES: usize = 1000;
pub(crate) const TOKENS: usize = 10_000;
/// Bytes of all tokens, of one token, and of what a challenge says.
pub(crate) const TOKENS_BYTES: u64 = 16 << 20;
pub(crate) const TOKEN_BYTES: usize = 16 << 10;
pub(crate) const CHALLENGE_BYTES: usize = 2048;
/// How long a connection may take, handshake included: the pool lets an attempt go on after its lookup has ended.
pub(crate) const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Connections to all registries together that are kept for the next lookup; further ones are used once.
pub(crate) const IDLE_ALL: usize = 256;
/// Redirects of one request for a token, within its origin.
pub(crate) const TOKEN_REDIRECTS: usize = 2;
/// Life of a token that does not say, and the shortest that there is (distribution's token specification); and the longest that
/// is believed.
pub(crate) const TOKEN_LIFE: Duration = Duration::from_secs(60);
pub(crate) const TOKEN_LIFE_MAX: Duration = Duration::from_secs(3600);
/// How long before its end a token is no longer used.
pub(crate) const TOKEN_MARGIN: Duration = Duration::from_secs(5);
/// Mirrors of one registry that are asked.
pub(crate) const MIRRORS: usize = 4;
/// How long one mirror may take while other endpoints are left; and how long after a failure it is tried last.
pub(crate) const MIRROR_TIME: Duration = Duration::from_secs(2);
pub(crate) const MIRROR_FAILING: Duration = Duration::from_secs(20);
/// Repositories that a mirror fails for in a row before it is tried last for all; and how many failures are remembered.
pub(crate) const MIRROR_FAILURES_IN_A_ROW: usize = 3;
pub(crate) const MIRROR_FAILURES: usize = 256;
/// Entries of `registries.hostsDir` that are read.
pub(crate) const HOST_DIRECTORIES: usize = 1000;
