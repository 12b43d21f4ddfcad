//! The effect of `write` hardening on writes.

use super::harness::Harness;
use weir_map::Hardening;
use weir_model::{BLOCK, IoKind, Op, ReadShape};

const EXTENT: u64 = 128 << 10;

fn hardened(devices: usize) -> Harness {
    let mut h = Harness::new(devices, "sequential");
    h.set_hardening(Hardening::Write).expect("a command");
    h.devices.log.clear();
    h
}

#[test]
fn a_first_write_is_durable_when_acknowledged() {
    let mut h = hardened(2);
    h.write(0, &[1; 4096]);
    let kinds: Vec<_> = h.devices.log.iter().map(|io| io.kind).collect();
    let (data, frame) = (IoKind::Write { fua: false }, IoKind::Write { fua: true });
    assert_eq!(kinds, [data, IoKind::Flush, frame], "data, made durable, then the map");
    h.reopen();
    assert_eq!(h.read(0, 4096).1, [1; 4096]);
}

#[test]
fn overwrite_needs_no_extra_commit() {
    let mut h = hardened(1);
    h.write(0, &[1; 4096]);
    h.devices.log.clear();
    h.write(0, &[2; 4096]);
    let kinds: Vec<_> = h.devices.log.iter().map(|io| io.kind).collect();
    assert_eq!(kinds, [IoKind::Write { fua: false }]);
}

#[test]
fn concurrent_writes_share_a_commit() {
    let mut h = hardened(2);
    let writes: Vec<_> = (0..20).map(|i| i * EXTENT).collect();
    h.write_at_once(&writes, 4096, 1);
    assert_eq!(h.commands(IoKind::Flush), 1);
    assert_eq!(h.commands(IoKind::Write { fua: true }), 1, "one frame for all");
    h.reopen();
    assert!(writes.iter().all(|at| h.read(*at, 4096).1 == [1; 4096]));
}

#[test]
fn overwrite_of_undurable_place_waits_for_commit() {
    for (hardening, kept) in [(Hardening::Write, true), (Hardening::Flush, false)] {
        let mut h = Harness::new(1, "sequential");
        h.set_hardening(hardening).expect("a command");
        h.write_at_once(&[0, 0, 0], 4096, 7);
        h.reopen();
        let expected = if kept { ReadShape::Data } else { ReadShape::Zeros };
        assert_eq!(h.read(0, 4096).0, expected, "{hardening:?}");
    }
}

#[test]
fn cleared_blocks_stay_cleared() {
    for op in [Op::Trim, Op::WriteZeroes { no_hole: false }] {
        let mut h = hardened(1);
        h.write(0, &[1; 16384]);
        h.request(op, BLOCK, &[0; 4096], false).expect("cleared");
        h.reopen();
        assert_eq!(h.read(BLOCK, 4096).0, ReadShape::Zeros, "{op:?}");
        assert_eq!(h.read(0, 4096).1, [1; 4096]);
    }
}

#[test]
fn a_volume_keeps_its_hardening_and_its_extents() {
    let mut h = Harness::new(1, "sequential");
    h.write(0, &[1; 4096]);
    h.flush().expect("a flush");
    for hardening in [Hardening::Write, Hardening::Flush, Hardening::Write] {
        h.set_hardening(hardening).expect("a command");
        h.reopen();
        let volume = h.engine.volumes().next().expect("a volume");
        assert_eq!((volume.hardening, volume.size.0), (hardening, super::VOLUME_SIZE));
        assert_eq!(h.read(0, 4096).1, [1; 4096]);
    }
}

#[test]
fn zeros_with_fua_are_durable_when_acknowledged() {
    let zeroes = Op::WriteZeroes { no_hole: false };
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    h.devices.log.clear();
    h.request(zeroes, 512, &[0; 512], true).expect("part of a block");
    assert_eq!(h.commands(IoKind::Write { fua: true }) + h.commands(IoKind::Flush), 1, "{:?}", h.devices.log);
    // The blocks are zeros already, but not durably.
    h.request(Op::Trim, 4096, &[0; 8192], false).expect("a trim");
    assert!(h.engine.map().has_pending(h.key(0)));
    h.request(zeroes, 4096 + 512, &[0; 512], true).expect("part of a block of zeros");
    assert!(!h.engine.map().has_pending(h.key(0)), "the trim is durable");
}
