use super::*;
use weir_model::{DeviceId, DeviceOffset, Errno, VolumeId};

const AGREED: NegotiatedExport =
    NegotiatedExport { volume: VolumeId(3), size: Bytes::mib(64), structured: true, allocation: true };

fn request(kind: u16, flags: u16, offset: u64, len: u32) -> Result<Command, Fault> {
    let header = Header { flags, kind, cookie: 7, offset: VolumeOffset(offset), len };
    header.command(&AGREED)
}

const fn engine(op: Op, fua: bool, whole: bool) -> Result<Command, Fault> {
    Ok(Command::Engine { op, fua, single_chunk: whole })
}

#[test]
fn a_header_is_28_bytes_with_a_magic_number() {
    let mut bytes =
        *b"\x25\x60\x95\x13\x00\x01\x00\x06cookie!!\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x02\x00";
    let header = Header::parse(&bytes).unwrap();
    let expected = Header {
        flags: 1,
        kind: 6,
        cookie: u64::from_be_bytes(*b"cookie!!"),
        offset: VolumeOffset(65536),
        len: 512,
    };
    assert_eq!(header, expected);
    assert_eq!(header.command(&AGREED), engine(Op::WriteZeroes { no_hole: false }, true, false));
    bytes[3] ^= 1;
    assert_eq!(Header::parse(&bytes), None);
}

#[test]
fn commands_accept_only_their_flags() {
    assert_eq!(request(command::READ, flag::FUA, 0, 4096), engine(Op::Read, false, false));
    assert_eq!(request(command::READ, flag::DF, 0, 4096), engine(Op::Read, false, true));
    assert_eq!(request(command::WRITE, flag::FUA, 512, 512), engine(Op::Write, true, false));
    assert_eq!(request(command::FLUSH, 0, 999, 77), engine(Op::Flush, false, false));
    assert_eq!(request(command::TRIM, 0, 0, 64 << 20), engine(Op::Trim, false, false));
    let zeroes = engine(Op::WriteZeroes { no_hole: true }, false, false);
    assert_eq!(request(command::WRITE_ZEROES, flag::NO_HOLE | flag::FAST_ZERO, 0, 512), zeroes);
    assert_eq!(
        request(command::BLOCK_STATUS, flag::REQ_ONE, 0, 512),
        Ok(Command::BlockStatus { single_descriptor: true })
    );
    assert_eq!(request(command::DISC, 0, 0, 0), Ok(Command::Disconnect));
    assert_eq!(request(command::WRITE, flag::FUA, 513, 3), engine(Op::Write, true, false));
    for kind in [command::READ, command::WRITE, command::TRIM, command::WRITE_ZEROES] {
        for at in [0, 3, 64 << 20] {
            assert_eq!(request(kind, 0, at, 0), Ok(Command::NoOp), "as qemu-nbd does");
        }
    }
    for (kind, flags) in [
        (command::READ, flag::NO_HOLE),
        (command::WRITE, flag::DF),
        (command::TRIM, flag::REQ_ONE),
        (command::FLUSH, 1 << 15),
        (5, 0),
        (77, 0),
    ] {
        assert_eq!(request(kind, flags, 0, 512), Err(Fault::Unsupported { kind, flags }));
    }
}

#[test]
fn faults_map_to_nbd_errors() {
    let number = |kind, offset, len| match request(kind, 0, offset, len) {
        Ok(ok) => panic!("{ok:?}"),
        Err(fault) => fault.error_code(kind),
    };
    let end = 64 << 20;
    assert_eq!(number(command::BLOCK_STATUS, 0, 0), 22);
    assert_eq!(number(command::READ, end + 1, 0), 22);
    assert_eq!(number(command::READ, end, 512), 22);
    assert_eq!(number(command::WRITE, end - 512, 1024), 28);
    assert_eq!(number(command::WRITE_ZEROES, u64::MAX - 511, 512), 28);
    assert_eq!(number(command::TRIM, u64::MAX - 511, 1024), 22);
    assert_eq!(number(command::READ, 0, (32 << 20) + 512), 22);
    let too_long = request(command::READ, flag::DF, 0, SINGLE_CHUNK_MAX + 512);
    assert_eq!(too_long.map_err(|fault| fault.error_code(command::READ)), Err(75));
    assert_eq!(Fault::from(RequestError::ReadOnly).error_code(command::FLUSH), 108);
    let failed = |kind, error| {
        let (device, at, len) = (DeviceId(0), DeviceOffset(0), Bytes(4096));
        Fault::from(RequestError::Io { device, kind, at, len, error })
    };
    let full = failed(IoKind::Write { fua: false }, IoError::Os(Errno::ENOSPC));
    assert_eq!(full.error_code(command::WRITE), 28);
    assert_eq!(full.error_code(command::WRITE_ZEROES), 28);
    assert_eq!(full.error_code(command::FLUSH), 5);
    let lost = failed(IoKind::Write { fua: true }, IoError::Os(Errno::ENOSPC));
    assert_eq!(lost.error_code(command::WRITE), 5, "it may be an earlier write that was lost");
    assert_eq!(failed(IoKind::Read, IoError::Os(Errno::ENOSPC)).error_code(command::WRITE), 5);
    assert_eq!(failed(IoKind::Write { fua: false }, IoError::Os(Errno::EIO)).error_code(command::WRITE), 5);
}

#[test]
fn replies_match_protocol_layout() {
    let cookie = u64::from_be_bytes(*b"cookie!!");
    assert_eq!(&simple_reply(cookie, 5), b"\x67\x44\x66\x98\x00\x00\x00\x05cookie!!");
    assert_eq!(
        &data_chunk(cookie, true, VolumeOffset(512), 1024),
        b"\x66\x8e\x33\xef\x00\x01\x00\x01cookie!!\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x02\x00"
    );
    assert_eq!(
        &hole_chunk(cookie, false, VolumeOffset(512), 1024),
        b"\x66\x8e\x33\xef\x00\x00\x00\x02cookie!!\x00\x00\x00\x0c\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x04\x00"
    );
    let fault = Fault::from(RequestError::NoVolume);
    assert_eq!(
        error_chunk(cookie, true, command::READ, &fault, None),
        b"\x66\x8e\x33\xef\x00\x01\x80\x01cookie!!\x00\x00\x00\x14\x00\x00\x00\x6c\x00\x0eno such volume"
    );
    assert_eq!(
        error_chunk(cookie, false, command::READ, &fault, Some(VolumeOffset(1)))[4..20],
        *b"\x00\x00\x80\x02cookie!!\x00\x00\x00\x1c"
    );
    assert_eq!(&status_chunk(cookie, 2)[16..], b"\x00\x00\x00\x14\x00\x00\x00\x01");
    assert_eq!(descriptor(4096, RunKind::Hole), [0, 0, 16, 0, 0, 0, 0, 3]);
    assert_eq!(descriptor(4096, RunKind::Zeros), [0, 0, 16, 0, 0, 0, 0, 2]);
    assert_eq!(descriptor(4096, RunKind::Data), [0, 0, 16, 0, 0, 0, 0, 0]);
    assert_eq!(&empty_chunk(cookie), b"\x66\x8e\x33\xef\x00\x01\x00\x00cookie!!\x00\x00\x00\x00");
}
