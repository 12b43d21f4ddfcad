//! Tests with hand-made streams, valid and invalid.

use super::*;

fn simple(cookie: u64, error: u32) -> Vec<u8> {
    [&[0x67, 0x44, 0x66, 0x98][..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

fn chunk(last: bool, kind: u16, cookie: u64, body: &[u8]) -> Vec<u8> {
    let flags = u16::from(last);
    let head = [&[0x66, 0x8e, 0x33, 0xef][..], &flags.to_be_bytes(), &kind.to_be_bytes()].concat();
    [&head[..], &cookie.to_be_bytes(), &(body.len() as u32).to_be_bytes(), body].concat()
}

fn data(last: bool, cookie: u64, at: u64, bytes: &[u8]) -> Vec<u8> {
    chunk(last, 1, cookie, &[&at.to_be_bytes(), bytes].concat())
}

/// Creates a parser that expects replies to these requests: cookie, kind, offset, length.
fn reader(is_structured: bool, requests: &[(u64, u16, u64, u32)]) -> Transmission {
    let mut reader = Transmission::new(is_structured, Vec::new());
    requests.iter().for_each(|(cookie, kind, offset, len)| reader.expect(0, *kind, *cookie, *offset, *len));
    reader
}

/// Parses a stream that arrives byte by byte.
fn all(mut reader: Transmission, stream: &[u8]) -> Result<Vec<Reply>, StreamError> {
    let mut replies = Vec::new();
    for byte in stream {
        reader.push_bytes(&[*byte]);
        replies.extend(reader.next()?);
    }
    Ok(replies)
}

fn reply(cookie: u64, data: &[u8]) -> Reply {
    Reply { cookie, error: None, data: data.to_vec(), runs: Vec::new() }
}

#[test]
fn simple_reply_data_matches_request_length() {
    let stream = [simple(2, 0), simple(1, 0), b"abcd".to_vec(), simple(3, 28)].concat();
    let reader = reader(false, &[(1, READ, 512, 4), (2, FLUSH, 0, 0), (3, WRITE, 0, 512)]);
    let failed = Reply { error: Some(28), ..reply(3, b"") };
    assert_eq!(all(reader, &stream), Ok(vec![reply(2, b""), reply(1, b"abcd"), failed]));
}

#[test]
fn chunks_in_any_order_cover_the_request() {
    let asked = [(1, READ, 512, 8)];
    let hole = chunk(false, 2, 1, &[&516u64.to_be_bytes()[..], &2u32.to_be_bytes()].concat());
    let stream = [data(false, 1, 518, b"gh"), hole.clone(), data(true, 1, 512, b"abcd")].concat();
    assert_eq!(all(reader(true, &asked), &stream), Ok(vec![reply(1, b"abcd\0\0gh")]));
    for wrong in [
        [hole.clone(), data(true, 1, 512, b"abcd")].concat(),
        [hole.clone(), hole].concat(),
        data(false, 1, 511, b"abc"),
        data(false, 1, 518, b"abc"),
        data(false, 2, 512, b"abc"),
        chunk(true, 7, 1, b""),
        simple(1, 0),
    ] {
        assert!(all(reader(true, &asked), &wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn interleaved_reply_data_is_detected() {
    let asked = [(1, READ, 0, 8), (2, FLUSH, 0, 0)];
    let stream = [simple(1, 0), b"abcd".to_vec(), simple(2, 0), b"efgh".to_vec()].concat();
    assert!(all(reader(false, &asked), &stream).is_err());
}

#[test]
fn block_status_uses_selected_context() {
    let asked = [(1, BLOCK_STATUS, 0, 8192)];
    let body = |context: u32| [context, 4096, 3, 4096, 0].map(u32::to_be_bytes).concat();
    let expected = Reply { runs: vec![(4096, 3), (4096, 0)], ..reply(1, b"") };
    assert_eq!(all(reader(true, &asked), &chunk(true, 5, 1, &body(1))), Ok(vec![expected]));
    assert!(all(reader(true, &asked), &chunk(true, 5, 1, &body(2))).is_err());
    assert!(all(reader(true, &asked), &chunk(true, 0, 1, b"")).is_err());
}

#[test]
fn errors_complete_their_request() {
    let asked = [(1, READ, 0, 8)];
    let body = [&5u32.to_be_bytes()[..], &2u16.to_be_bytes(), b"no", &4u64.to_be_bytes()].concat();
    let stream = [data(false, 1, 0, b"abcd"), chunk(true, 0x8002, 1, &body)].concat();
    let replies = all(reader(true, &asked), &stream).expect("a stream that can be followed");
    assert_eq!(replies.iter().map(|reply| reply.error).collect::<Vec<_>>(), [Some(5)]);
    assert!(all(reader(true, &asked), &chunk(true, 0x8001, 1, &body)).is_err());
}
