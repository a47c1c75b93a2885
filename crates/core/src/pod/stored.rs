//! Upper bound of an object's bytes in etcd, by its JSON. API servers store protobuf, without names of members. A Pod
//! near etcd's limit is left unchanged rather than refused. A Pod of 200 KiB with 1,000 objects and 5,000 members
//! counts as 294 KiB, of 1.5 MiB. `e2e/conformance` compares the bound with the encoder of the API server.

/// Bytes of JSON below which all of them count. No list takes more than ten times the bytes of its JSON (of containers
/// that are all `{}`), which fits as well.
const SMALL: usize = 128 << 10;
/// Bytes of an empty message that are written, with its tag and length; `knows_every_field` has the largest.
const MESSAGE: usize = 64;

pub(crate) fn size_of_json(json: &[u8]) -> usize {
    if json.len() < SMALL {
        json.len()
    } else {
        bound(json)
    }
}

fn bound(json: &[u8]) -> usize {
    let beside = |byte: &u8| match byte {
        b'{' => MESSAGE,
        // Tags and lengths of an entry of a map, and of a message around its value.
        b':' => 6,
        // A negative number.
        b'-' => 10,
        // An escape in `fieldsV1`, which is stored as JSON, beside the character; 0xe2 begins U+2028 and U+2029.
        b'<' | b'>' | b'&' | 0xe2 => 5,
        _ => 0,
    };
    json.len() + json.iter().map(beside).sum::<usize>()
}

#[cfg(test)]
mod tests;
