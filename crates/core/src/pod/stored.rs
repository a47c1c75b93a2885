//! Upper bound of an object's bytes in etcd, by its JSON. API servers store protobuf, without names of members. A Pod
//! near etcd's limit is left unchanged rather than refused. A Pod of 200 KiB with 1,000 objects and 5,000 members
//! counts as 294 KiB, of 1.5 MiB. `e2e/upstream` compares the bound with the encoder of the API server.

/// Bytes of JSON below which all of them count. No list takes more than ten times the bytes of its JSON (of containers
/// that are all `{}`), which fits as well.
const SMALL: usize = 128 << 10;
/// Bytes of an empty message that are written, with its tag and length; `knows_every_field` has the largest.
const MESSAGE: usize = 64;
/// Bytes of a member beside its JSON: tags and lengths of an entry of a map, and of a message around its value.
const MEMBER: usize = 6;
/// Bytes of a negative number.
const NEGATIVE: usize = 10;
/// Bytes of an escape in `fieldsV1`, which is stored as JSON, beside the character.
const ESCAPE: usize = 5;

pub(crate) fn size_of_json(json: &[u8]) -> usize {
    if json.len() < SMALL { json.len() } else { bound(json) }
}

fn bound(json: &[u8]) -> usize {
    let beside = |byte: &u8| match byte {
        b'{' => MESSAGE,
        b':' => MEMBER,
        b'-' => NEGATIVE,
        // The byte 0xe2 begins U+2028 and U+2029.
        b'<' | b'>' | b'&' | 0xe2 => ESCAPE,
        _ => 0,
    };
    json.len() + json.iter().map(beside).sum::<usize>()
}

#[cfg(test)]
mod tests;
