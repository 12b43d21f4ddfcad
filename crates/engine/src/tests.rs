//! Short histories of one engine over devices in memory: the commands that devices receive, and their order.
//! Random histories, power losses and an oracle are in weir-world.

mod admin;
mod advice;
mod cache;
mod coalesce;
mod copies;
mod copies_read;
mod doubt_model;
mod duplex;
mod durable_writes;
mod explain;
mod failing;
mod failover;
mod flush_order;
mod flushes;
mod fs_metadata;
mod gap_read;
mod hardening;
mod harm;
mod harness;
mod kept;
mod members;
mod moves;
mod outdated;
mod partial_reads;
mod piggyback;
mod reads;
mod reclaim;
mod redirect;
mod replaced;
mod space;
mod spread;
mod unaligned;
mod unreachable;
mod usage;
mod verify;

use super::*;
use harness::{Harness, VOLUME_SIZE};
use weir_model::{DeviceId, Errno, IoError, IoKind, Op, ReadShape, RequestError};

#[test]
fn written_data_is_read_and_holes_are_zeros() {
    let mut h = Harness::new(2, "stripe");
    assert_eq!(h.read(0, 4096), (ReadShape::Zeros, vec![0; 4096]));
    h.write(1002 * 512, &[7; 1536]);
    let (shape, bytes) = h.read(1000 * 512, 4096);
    assert_eq!(shape, ReadShape::Data);
    assert!(bytes[..1024].iter().all(|b| *b == 0) && bytes[1024..2560].iter().all(|b| *b == 7));
    // A read over written and unwritten blocks, and across an extent boundary.
    h.write(128 << 10, &[9; 8192]);
    let (shape, bytes) = h.read((128 << 10) - 4096, 12288);
    assert_eq!(shape, ReadShape::Mixed);
    assert!(bytes[..4096].iter().all(|b| *b == 0) && bytes[4096..].iter().all(|b| *b == 9));
    // A read of two extents, one of which has no data.
    let (shape, bytes) = h.read(128 << 10, 256 << 10);
    assert_eq!(shape, ReadShape::Mixed);
    assert!(bytes[8192..].iter().all(|b| *b == 0));
}

#[test]
fn partial_block_write_is_read_modify_write_on_4k_devices() {
    for (sector, reads) in [(512, 0), (4096, 1)] {
        let mut h =
            Harness::with_settings(1, "sequential", DeviceSettings { sector, ..DeviceSettings::default() });
        h.write(0, &[1; 4096]);
        let before = h.commands(IoKind::Read);
        h.write(512, &[2; 512]);
        assert_eq!(h.commands(IoKind::Read) - before, reads, "sector {sector}");
        let (_, bytes) = h.read(0, 4096);
        assert!(bytes[..512].iter().all(|b| *b == 1));
        assert!(bytes[512..1024].iter().all(|b| *b == 2));
        assert!(bytes[1024..].iter().all(|b| *b == 1));
    }
}

#[test]
fn flush_persists_data_then_map_then_replies() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; 4096]);
    h.devices.log.clear();
    h.flush().expect("a flush");
    let metadata = h.engine.map().members()[0];
    let order: Vec<_> = h.devices.log.iter().map(|io| (io.device, io.kind)).collect();
    assert_eq!(order, [(DeviceId(0), IoKind::Flush), (metadata, IoKind::Write { fua: true })]);
    h.devices.log.clear();
    h.flush().expect("a flush");
    assert!(h.devices.log.is_empty(), "nothing changed, nothing to flush: {:?}", h.devices.log);
}

#[test]
fn an_overwrite_with_fua_is_one_durable_write() {
    let mut h = Harness::new(1, "sequential");
    h.write(0, &[1; 128 << 10]);
    h.flush().expect("a flush");
    h.devices.log.clear();
    h.request(Op::Write, 4096, &[2; 4096], true).expect("a write");
    let kinds: Vec<_> = h.devices.log.iter().map(|io| io.kind).collect();
    assert_eq!(kinds, [IoKind::Write { fua: true }]);
}

#[test]
fn trim_frees_space_after_commit_and_write_zeroes_can_keep_it() {
    let mut h = Harness::new(1, "sequential");
    let free = h.free();
    h.write(0, &[1; 256 << 10]);
    h.flush().expect("a flush");
    assert_eq!(free - h.free(), 2);
    h.request(Op::Trim, 0, &[0; 256 << 10], false).expect("a trim");
    assert_eq!(h.read(0, 4096).0, ReadShape::Zeros);
    assert_eq!(free - h.free(), 2, "not before its release is durable");
    h.flush().expect("a flush");
    assert_eq!(h.free(), free);
    h.request(Op::WriteZeroes { no_hole: true }, 0, &[0; 128 << 10], true).expect("zeroes");
    assert_eq!((free - h.free(), h.read(0, 4096).0), (1, ReadShape::Zeros));
    h.reopen();
    assert_eq!((free - h.free(), h.read(0, 4096).0), (1, ReadShape::Zeros), "kept over a restart");
}

#[test]
fn write_zeroes_clears_blocks_and_writes_edges() {
    let mut h = Harness::new(1, "sequential");
    h.write(0, &[1; 16384]);
    h.request(Op::WriteZeroes { no_hole: false }, 512, &[0; 12288], false).expect("zeroes");
    let (_, bytes) = h.read(0, 16384);
    let expected = |i: usize| u8::from(!(512..512 + 12288).contains(&i));
    assert!(bytes.iter().enumerate().all(|(i, b)| *b == expected(i)));
}

#[test]
fn fua_on_uncommitted_zeros_waits_for_commit() {
    for op in [Op::WriteZeroes { no_hole: false }, Op::Trim] {
        for len in [512, 4096] {
            let mut h = Harness::new(1, "sequential");
            h.write(0, &[1; 4096]);
            h.flush().expect("a flush");
            h.request(Op::Trim, 0, &[0; 4096], false).expect("a trim");
            if (op, len) == (Op::Trim, 512) {
                continue; // Trims nothing: less than a block.
            }
            h.request(op, 0, &vec![0; len], true).expect("durable zeros");
            h.reopen();
            assert_eq!(h.read(0, 4096).1, [0; 4096], "{op:?} of {len}");
        }
    }
}

#[test]
fn full_pool_returns_no_space_and_allows_overwrites() {
    let mut h = Harness::new(1, "sequential");
    let extents = h.free();
    for i in 0..u64::from(extents) {
        h.write(i * (128 << 10), &[1; 4096]);
    }
    let full = u64::from(extents) * (128 << 10);
    assert_eq!(h.request(Op::Write, full, &[1; 4096], false), Err(RequestError::NoSpace));
    h.write(0, &[2; 4096]);
    // The write waits for the space that is being freed.
    h.request(Op::Trim, 0, &[0; 128 << 10], false).expect("a trim");
    h.write(full, &[3; 4096]);
    assert_eq!(h.read(full, 4096).1, [3; 4096]);
}

#[test]
fn invalid_requests_are_refused_with_the_reason() {
    let mut h = Harness::new(1, "sequential");
    let refused =
        |h: &mut Harness, offset, len: usize| h.request(Op::Trim, offset, &vec![0; len], false).unwrap_err();
    assert!(matches!(refused(&mut h, 0, 0), RequestError::Misaligned { .. }));
    assert!(matches!(refused(&mut h, VOLUME_SIZE - 512, 1024), RequestError::OutOfRange { .. }));
    assert!(matches!(refused(&mut h, u64::MAX - 511, 512), RequestError::OutOfRange { .. }));
}

#[test]
fn flushed_data_survives_restart_and_clean_stop_flushes() {
    let mut h = Harness::new(3, "stripe");
    for i in 0..40u64 {
        h.write(i * 77 * 512, &[i as u8; 2048]);
    }
    h.stop();
    h.reopen();
    for i in 0..40u64 {
        assert_eq!(h.read(i * 77 * 512, 2048).1, [i as u8; 2048], "write {i}");
    }
}

#[test]
fn removed_volume_frees_its_space_and_name() {
    let mut h = Harness::new(2, "stripe");
    let free = h.free();
    for i in 0..20 {
        h.write(i * 100_000 / 512 * 512, &[1; 4096]);
    }
    h.remove_volume().expect("removed");
    assert_eq!(h.free(), free);
    assert!(h.engine.data.base.requests.removing.is_empty(), "nothing is known of it any more");
    assert_eq!(h.request(Op::Read, 0, &[0; 512], false), Err(RequestError::NoVolume));
    h.create_volume().expect("the name is free again");
    assert_eq!(h.read(0, 4096).0, ReadShape::Zeros);
}

#[test]
fn failed_journal_write_makes_pool_read_only() {
    let mut h = Harness::new(1, "sequential");
    h.write(0, &[1; 4096]);
    h.fail_next(IoKind::Write { fua: true }, IoError::Os(Errno::EIO));
    assert_eq!(h.flush(), Err(RequestError::ReadOnly));
    assert_eq!(h.request(Op::Write, 0, &[2; 4096], false), Err(RequestError::ReadOnly));
    assert_eq!(h.read(0, 4096).1, [1; 4096]);
    assert!(h.engine.status().read_only);
}

#[test]
fn block_status_distinguishes_data_and_holes() {
    let mut h = Harness::new(1, "sequential");
    h.write(4096, &[1; 4096]);
    h.write(128 << 10, &[1; 128 << 10]);
    let mut out = Vec::new();
    let volume = h.volume;
    let status = |h: &Harness, most, out: &mut Vec<BlockStatus>| {
        out.clear();
        h.engine.block_status(volume, weir_model::VolumeOffset(0), Bytes(VOLUME_SIZE), most, out);
        out.iter().map(|s| (s.len.0 >> 12, s.kind == RunKind::Data)).collect::<Vec<_>>()
    };
    let all = VOLUME_SIZE >> 12;
    let expected = vec![(1, false), (1, true), (30, false), (32, true), (all - 64, false)];
    assert_eq!(status(&h, 100, &mut out), expected);
    assert_eq!(status(&h, 2, &mut out), expected[..2]);
    h.flush().expect("a flush");
    assert_eq!(status(&h, 100, &mut out), expected);
}
