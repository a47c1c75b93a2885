//! Upper bound of an object's bytes in etcd, computed from its JSON. API servers store protobuf, without names of members.
//! The bound is for Pods near etcd's limit, which stay unchanged so that etcd does not refuse them. For example, a Pod of
//! 200 KiB with 1,000 objects and 5,000 members counts as 294 KiB of 1.5 MiB. `e2e/conformance` compares the bound with the
//! encoder of the API server.

/// Bytes of JSON below which the length of the JSON is precise enough. No list takes more than ten times the bytes of its
/// JSON (a list of containers that are all `{}`), and that fits into etcd as well.
const SMALL: usize = 128 << 10;
/// Maximum bytes of an empty message as stored, with its tag and length.
const MESSAGE: usize = 64;

/// Returns an upper bound of the bytes that an object with this JSON takes in etcd, or its length if it is small.
pub(crate) fn size_of_json(json: &[u8]) -> usize {
    if json.len() < SMALL {
        json.len()
    } else {
        bound(json)
    }
}

fn bound(json: &[u8]) -> usize {
    let mut bytes = json.len();
    for byte in json {
        bytes += match byte {
            b'{' => MESSAGE,
            // Tags and lengths of an entry of a map, and of a message around its value.
            b':' => 6,
            // A negative number.
            b'-' => 10,
            // `fieldsV1` is stored as JSON with these characters escaped. U+2028 and U+2029 begin with 0xe2.
            b'<' | b'>' | b'&' | 0xe2 => 5,
            _ => 0,
        };
    }
    bytes
}

#[cfg(test)]
mod tests;
