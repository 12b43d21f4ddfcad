//! Coalescing of adjacent commands.

use super::harness::{EXTENT, Harness};
use weir_model::{Errno, IoError, IoKind, Op};

const WRITE: IoKind = IoKind::Write { fua: false };

fn lens(h: &Harness, kind: IoKind) -> Vec<u32> {
    h.devices.log.iter().filter(|io| io.kind == kind).map(|io| io.buffer.len).collect()
}

/// Sets up three adjacent extents on one device, each filled with its number, from 1.
fn pool() -> Harness {
    let mut h = Harness::new(2, "sequential");
    (0..3).for_each(|i| h.write(i * EXTENT as u64, &[i as u8 + 1; EXTENT]));
    h.flush().expect("a flush");
    h.devices.log.clear();
    h
}

#[test]
fn adjacent_extents_are_read_in_one_command() {
    let mut h = pool();
    let (_, bytes) = h.read(EXTENT as u64 / 2, 2 * EXTENT);
    assert_eq!(lens(&h, IoKind::Read), [2 * EXTENT as u32]);
    assert!(bytes[..EXTENT / 2] == [1; EXTENT / 2] && bytes[EXTENT / 2..3 * EXTENT / 2] == [2; EXTENT]);
    h.write(0, &[[7; EXTENT], [8; EXTENT], [9; EXTENT]].concat());
    assert_eq!(lens(&h, WRITE), [3 * EXTENT as u32]);
    assert_eq!(h.read(0, 3 * EXTENT).1, [[7; EXTENT], [8; EXTENT], [9; EXTENT]].concat());
    h.reopen();
    assert_eq!(h.read(2 * EXTENT as u64, 4096).1, [9; 4096]);
}

#[test]
fn interleaved_commands_of_requests_are_joined() {
    let mut h = pool();
    h.submit(1, Op::Read, 0, 2 * EXTENT as u64, 0);
    h.submit(2, Op::Read, EXTENT as u64 / 2, 2 * EXTENT as u64, 0);
    h.run();
    assert_eq!(lens(&h, IoKind::Read), [2 * EXTENT as u32; 2], "their memory is not side by side");
}

#[test]
fn parts_of_failed_joined_command_are_retried_alone() {
    let mut h = pool();
    h.fail_next(IoKind::Read, IoError::Os(Errno::EIO));
    // Two more attempts of the first part alone; the other part succeeds between them.
    h.fail_next(IoKind::Read, IoError::Os(Errno::EIO));
    h.pass_next(IoKind::Read);
    h.fail_next(IoKind::Read, IoError::Os(Errno::EIO));
    h.request(Op::Read, 0, &vec![0; 2 * EXTENT], false).expect_err("the first extent cannot be read");
    let one = EXTENT as u32;
    assert_eq!(lens(&h, IoKind::Read), [2 * one, one, one, one]);
    h.devices.log.clear();
    h.fail_next(WRITE, IoError::Os(Errno::ENOSPC));
    h.request(Op::Write, 0, &vec![7; 2 * EXTENT], false).expect("each alone has space");
    assert_eq!(lens(&h, WRITE), [2 * one, one, one]);
    assert_eq!(h.read(0, 2 * EXTENT).1, vec![7; 2 * EXTENT]);
    assert!(
        h.engine.status().devices.iter().all(|d| d.errors.writes == 0),
        "a full file system is no failure"
    );
}
