//! Devices that fail, hang or are lost.

use super::harness::Harness;
use crate::{DeviceSettings, DeviceState, LossReason, Notice};
use weir_model::{Bytes, DeviceId, Errno, IoError, IoKind, Memory, Nanos, Op, ReadShape, RequestError};

const EIO: IoError = IoError::Os(Errno::EIO);
const ENOSPC: IoError = IoError::Os(Errno::ENOSPC);
const DATA: DeviceId = DeviceId(0);
const WRITE: IoKind = IoKind::Write { fua: false };
const EXTENT: u64 = 128 << 10;

fn in_doubt(h: &mut Harness, offset: u64) -> bool {
    h.request(Op::Read, offset, &[0; 4096], false) == Err(RequestError::InDoubt { device: DATA })
}

#[test]
fn failed_flush_fails_once_and_puts_its_blocks_in_doubt() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; 4096]);
    h.flush().expect("a flush");
    h.write(4096, &[2; 4096]);
    h.write(EXTENT, &[3; 8192]);
    h.fail_next(IoKind::Flush, EIO);
    assert_eq!(h.flush(), Err(RequestError::FlushFailed(DATA)));
    assert!(in_doubt(&mut h, 4096) && in_doubt(&mut h, EXTENT) && in_doubt(&mut h, EXTENT + 4096));
    assert_eq!(h.read(0, 4096).1, [1; 4096], "durable before");
    assert_eq!(h.read(8192, 4096).0, ReadShape::Zeros, "never written");
    assert_eq!(h.engine.status().devices[0].doubtful, 3);
    h.flush().expect("nothing is pretended any more");
    h.write(4096, &[4; 4096]);
    assert_eq!(h.read(4096, 4096).1, [4; 4096]);
    h.request(Op::Trim, EXTENT, &[0; EXTENT as usize], false).expect("a trim");
    assert_eq!(h.read(EXTENT, 8192).0, ReadShape::Zeros);
    assert_eq!(h.engine.status().devices[0].doubtful, 0);
    h.flush().expect("a flush");
    h.reopen();
    assert_eq!((h.read(0, 4096).1, h.read(4096, 4096).1), (vec![1; 4096], vec![4; 4096]));
}

#[test]
fn doubt_lasts_until_the_pool_is_reopened() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    h.write(4096, &[2; 8192]);
    h.fail_next(IoKind::Flush, EIO);
    h.flush().expect_err("lost");
    assert!(!h.engine.map().has_pending(h.key(0)), "it is durable at once");
    let intent = |h: &Harness| h.record(h.key(0)).and_then(|record| record.intent);
    let blocks: Vec<_> = intent(&h).expect("an intent").iter().collect();
    assert_eq!(blocks, [1, 2], "exactly these");
    h.reopen();
    assert_eq!((intent(&h), h.read(0, 12288).1), (None, [[1; 4096], [2; 4096], [2; 4096]].concat()));
}

#[test]
fn every_run_of_blocks_in_doubt_has_an_intent() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    for block in [1, 5, 9] {
        h.write(block * 4096, &[2; 8192]);
    }
    h.fail_next(IoKind::Flush, EIO);
    h.flush().expect_err("lost");
    let intent = h.record(h.key(0)).and_then(|record| record.intent).expect("an intent");
    assert_eq!(intent.iter().collect::<Vec<_>>(), [1, 2, 5, 6, 9, 10]);
}

#[test]
fn write_failing_after_flush_failure_is_not_retried() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    h.devices.delay_next = Some(WRITE);
    h.begin(Op::Write, 4096, 4096);
    h.write(8192, &[2; 4096]);
    h.fail_next(IoKind::Flush, EIO);
    assert_eq!(h.flush(), Err(RequestError::FlushFailed(DATA)));
    let writes = h.commands(WRITE);
    h.release(Some(EIO));
    assert!(h.answer().is_some_and(|(id, result)| id == 78 && result.is_err()));
    assert_eq!(h.commands(WRITE), writes, "where it was to go may be another extent's by now");
}

#[test]
fn a_flush_in_flight_when_a_durable_write_fails_makes_nothing_durable() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    h.write(4096, &[2; 4096]);
    let before = h.engine.data.base.core.devices[0].epochs.flushed();
    h.devices.hanging.push(DATA);
    h.submit_fua(1, 8192, 4096, 3);
    h.run();
    h.begin(Op::Flush, 0, 0);
    let flush = h.devices.delayed.pop().filter(|io| io.kind == IoKind::Flush).expect("a flush");
    h.release(Some(EIO));
    let later = std::mem::replace(&mut h.devices.delayed, vec![flush]);
    h.release(None);
    assert_eq!(h.engine.data.base.core.devices[0].epochs.flushed(), before);
    h.devices.hanging.clear();
    h.devices.delayed.extend(later);
    h.release(None);
    let answers: Vec<_> = std::iter::from_fn(|| h.answer()).collect();
    assert!(answers.len() == 2 && answers.iter().all(|(_, result)| result.is_err()), "{answers:?}");
    assert!(in_doubt(&mut h, 4096) && in_doubt(&mut h, 8192));
}

#[test]
fn a_read_in_flight_when_its_device_loses_writes_is_in_doubt() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    h.write(4096, &[2; 4096]);
    h.devices.delay_next = Some(IoKind::Read);
    h.begin(Op::Read, 4096, 4096);
    h.fail_next(IoKind::Flush, EIO);
    assert_eq!(h.flush(), Err(RequestError::FlushFailed(DATA)));
    h.release(None);
    assert_eq!(
        h.answer(),
        Some((78, Err(RequestError::InDoubt { device: DATA }))),
        "it may have read the old"
    );
}

#[test]
fn unrequested_flush_failure_fails_the_next_flush() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; 4096]);
    h.fail_next(IoKind::Flush, EIO);
    h.wait(Nanos::secs(6));
    assert_eq!(h.flush(), Err(RequestError::FlushFailed(DATA)));
    h.flush().expect("told once");
    assert!(in_doubt(&mut h, 0));
}

#[test]
fn overwrites_in_doubt_are_readable_after_reopen() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    h.write(4096, &[2; 4096]);
    h.fail_next(IoKind::Flush, EIO);
    h.flush().expect_err("a failed flush");
    assert!(in_doubt(&mut h, 4096));
    assert_eq!(h.read(0, 4096).1, [1; 4096]);
    h.reopen();
    let (_, found) = h.read(4096, 4096);
    assert!(found == [1; 4096] || found == [2; 4096], "old or new");
}

#[test]
fn partial_write_to_block_in_doubt_fails() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; 4096]);
    h.fail_next(IoKind::Flush, EIO);
    h.flush().expect_err("a failed flush");
    let part = h.request(Op::Write, 512, &[2; 512], false);
    assert_eq!(part, Err(RequestError::InDoubt { device: DATA }));
    h.write(0, &[3; 4096]);
    h.write(512, &[2; 512]);
    assert_eq!(h.read(0, 1024).1, [[3; 512], [2; 512]].concat());
}

#[test]
fn blocks_in_doubt_are_not_holes() {
    let mut h = Harness::new(2, "sequential");
    h.write(4096, &[1; 4096]);
    h.fail_next(IoKind::Flush, EIO);
    h.flush().expect_err("a failed flush");
    let mut runs = Vec::new();
    let (volume, start) = (h.volume, weir_model::VolumeOffset(0));
    h.engine.block_status(volume, start, Bytes(EXTENT), 9, &mut runs);
    let runs: Vec<_> = runs.iter().map(|run| (run.len.0 / 4096, run.kind == crate::RunKind::Data)).collect();
    assert_eq!(runs, [(1, false), (1, true), (30, false)]);
}

#[test]
fn rolled_back_writes_free_their_space() {
    let mut h = Harness::new(2, "sequential");
    let free = h.free();
    h.write(0, &[1; 4096]);
    h.write(EXTENT, &[1; EXTENT as usize]);
    h.fail_next(IoKind::Flush, EIO);
    h.flush().expect_err("a failed flush");
    h.flush().expect("a flush");
    assert_eq!(h.free(), free);
    assert!(in_doubt(&mut h, 0) && in_doubt(&mut h, EXTENT));
    h.reopen();
    assert_eq!((h.read(0, 4096).0, h.free()), (ReadShape::Zeros, free));
}

#[test]
fn failed_durable_write_puts_unflushed_writes_in_doubt() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    h.write(8192, &[2; 4096]);
    h.fail_next(IoKind::Write { fua: true }, EIO);
    assert_eq!(h.request(Op::Write, 0, &[3; 4096], true), Err(RequestError::FlushFailed(DATA)));
    assert!(in_doubt(&mut h, 8192));
    assert!(in_doubt(&mut h, 0), "the failed write may have left anything");
    assert_eq!(h.flush(), Err(RequestError::FlushFailed(DATA)));
    h.flush().expect("told once");
}

#[test]
fn writes_in_flight_at_flush_failure_are_in_doubt() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    h.write(8192, &[2; 4096]);
    h.devices.hanging.push(DATA);
    h.submit(1, Op::Write, 4096, 4096, 3);
    h.submit(2, Op::Flush, 0, 0, 0);
    h.run();
    // The flush fails first: the later success of the write proves nothing.
    h.devices.delayed.reverse();
    h.fail_next(IoKind::Flush, EIO);
    h.wake(DATA);
    for _ in 0..2 {
        assert!(h.answer().expect("a reply").1.is_err());
    }
    assert!(in_doubt(&mut h, 4096), "it would read as it was written, until a power cut");
    assert!(in_doubt(&mut h, 8192));
    assert_eq!(h.read(0, 4096).1, [1; 4096]);
    h.write(4096, &[4; 4096]);
    h.flush().expect("told already");
    assert_eq!(h.read(4096, 4096).1, [4; 4096]);
}

#[test]
fn reads_in_flight_at_flush_failure_see_doubt() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    h.write(4096, &[2; 4096]);
    h.devices.hanging.push(DATA);
    h.submit(1, Op::Read, 4096, 4096, 0);
    h.submit(2, Op::Read, 8192, 4096, 0);
    h.submit(3, Op::Flush, 0, 0, 0);
    h.run();
    // The flush fails first: a later read may return the old data.
    h.devices.delayed.reverse();
    h.fail_next(IoKind::Flush, EIO);
    h.wake(DATA);
    let mut answers: Vec<_> = std::iter::from_fn(|| h.answer()).collect();
    answers.sort_by_key(|(id, _)| *id);
    let doubt = Err(RequestError::InDoubt { device: DATA });
    let failed = Err(RequestError::FlushFailed(DATA));
    assert_eq!(answers, [(1, doubt), (2, Ok(ReadShape::Data)), (3, failed)]);
    h.write(4096, &[4; 4096]);
    assert_eq!(h.read(4096, 4096).1, [4; 4096]);
}

#[test]
fn write_partly_lost_by_failed_flush_fails() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; 2 * EXTENT as usize]);
    h.flush().expect("a flush");
    h.write(8192, &[2; 4096]);
    h.devices.hanging.push(DATA);
    h.submit(1, Op::Write, EXTENT, 4096, 3);
    // Its second part waits for the first write.
    h.submit(2, Op::Write, EXTENT - 4096, 8192, 4);
    h.submit(3, Op::Flush, 0, 0, 0);
    h.run();
    assert_eq!(h.devices.delayed.len(), 3);
    h.devices.delayed.rotate_left(1);
    h.fail_next(IoKind::Flush, EIO);
    h.wake(DATA);
    let mut answers: Vec<_> = std::iter::from_fn(|| h.answer()).collect();
    answers.sort_by_key(|(id, _)| *id);
    assert!(answers.len() == 3 && answers.iter().all(|(_, result)| result.is_err()), "{answers:?}");
    h.flush().expect("told already");
    assert!(in_doubt(&mut h, EXTENT - 4096), "written before the flush failed");
    assert_eq!(h.read(EXTENT, 4096).1, [4; 4096], "written after it");
}

#[test]
fn failed_write_is_flushed_or_in_doubt() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    for flush_fails in [false, true] {
        for _ in 0..3 {
            h.fail_next(WRITE, EIO);
        }
        h.request(Op::Write, 4096, &[2; 4096], false).expect_err("a failed write");
        h.devices.log.clear();
        if flush_fails {
            h.fail_next(IoKind::Flush, EIO);
        }
        assert_eq!(h.flush().is_err(), flush_fails);
        assert_eq!(h.commands(IoKind::Flush), 1, "a part of it may be in the device's cache");
        assert_eq!(in_doubt(&mut h, 4096), flush_fails);
        assert_eq!(h.read(0, 4096).1, [1; 4096]);
    }
}

#[test]
fn durable_write_settles_earlier_failed_write() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    h.write(0, &[2; 4096]);
    h.write(4096, &[2; 4096]);
    h.request(Op::Write, 0, &[3; 4096], true).expect("a durable write");
    h.fail_next(IoKind::Flush, EIO);
    h.flush().expect_err("a failed flush");
    assert_eq!(h.read(0, 4096).1, [3; 4096]);
    assert!(in_doubt(&mut h, 4096));
}

#[test]
fn durable_write_to_undurable_place_is_lost_with_it() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.fail_next(IoKind::Flush, EIO);
    assert_eq!(h.request(Op::Write, 4096, &[2; 4096], true), Err(RequestError::FlushFailed(DATA)));
    assert!(in_doubt(&mut h, 4096) && in_doubt(&mut h, 0));
}

#[test]
fn durable_first_write_fails_with_its_flush() {
    let mut h = Harness::new(2, "sequential");
    h.fail_next(IoKind::Flush, EIO);
    assert_eq!(h.request(Op::Write, 0, &[1; 4096], true), Err(RequestError::FlushFailed(DATA)));
    assert!(in_doubt(&mut h, 0));
}

#[test]
fn a_failed_flush_of_the_map_s_device_stops_changes() {
    let mut h = Harness::new(1, "sequential");
    h.write(0, &[1; 4096]);
    h.fail_next(IoKind::Flush, EIO);
    assert_eq!(h.flush(), Err(RequestError::FlushFailed(DATA)));
    assert_eq!(h.flush(), Err(RequestError::ReadOnly), "no root may be written over lost pages");
    let told: Vec<_> = std::iter::from_fn(|| h.engine.next_notice()).collect();
    assert!(told.contains(&Notice::ReadOnly { error: EIO }), "{told:?}");
    assert!(in_doubt(&mut h, 0));
    assert_eq!(h.read(4096, 4096).0, ReadShape::Zeros, "reads go on");
}

#[test]
fn failed_reads_and_writes_are_retried() {
    let mut h = Harness::new(2, "sequential");
    for _ in 0..2 {
        h.fail_next(WRITE, EIO);
    }
    h.write(0, &[1; 4096]);
    for _ in 0..2 {
        h.fail_next(IoKind::Read, EIO);
    }
    assert_eq!(h.read(0, 4096).1, [1; 4096]);
    let errors = h.engine.status().devices[0].errors;
    assert_eq!((errors.reads, errors.writes), (2, 2));
    let told: Vec<_> = std::iter::from_fn(|| h.engine.next_notice()).collect();
    assert!(told.iter().all(|n| matches!(n, Notice::Failed { is_retried: true, .. })) && told.len() == 4);
}

#[test]
fn failed_write_fails_request_and_frees_space() {
    let mut h = Harness::new(1, "sequential");
    let free = h.free();
    for _ in 0..3 {
        h.fail_next(WRITE, EIO);
    }
    let error = h.request(Op::Write, 0, &[1; 4096], false).unwrap_err();
    assert!(matches!(error, RequestError::Io { device: DATA, kind: WRITE, error: EIO, .. }));
    h.flush().expect("a flush");
    assert_eq!((h.free(), h.read(0, 4096).0), (free, ReadShape::Zeros));
}

#[test]
fn full_backing_file_system_does_not_lose_the_device() {
    let mut h = Harness::new(2, "sequential");
    h.fail_next(WRITE, ENOSPC);
    assert_eq!(h.request(Op::Write, 0, &[1; 4096], false), Err(RequestError::NoSpace));
    let errors = h.engine.status().devices[0].errors;
    assert_eq!((errors.total(), errors.no_space), (0, 1));
    let told: Vec<_> = std::iter::from_fn(|| h.engine.next_notice()).collect();
    let io = *h.devices.log.iter().find(|io| io.kind == WRITE).expect("the write");
    let (device, at, len) = (DeviceId(0), io.at, io.len());
    assert_eq!(told, [Notice::BackingStoreFull { device, at, len, error: ENOSPC }]);
    h.flush().expect("a flush");
    h.write(0, &[1; 4096]);
}

#[test]
fn hung_device_is_lost_and_others_continue() {
    let mut h = Harness::new(3, "stripe");
    // Two extents on each of the three devices.
    for i in 0..6 {
        h.write(i * EXTENT, &[1; EXTENT as usize]);
    }
    h.flush().expect("a flush");
    let memory = h.free_memory();
    h.devices.hanging.push(DATA);
    let answers: Vec<_> = (0..6).map(|i| h.request(Op::Read, i * EXTENT, &[0; 4096], false)).collect();
    let failed = answers.iter().filter(|a| matches!(a, Err(RequestError::Io { error: IoError::Lost, .. })));
    assert_eq!(failed.count(), 2, "{answers:?}");
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 4);
    let status = h.engine.status();
    assert!(matches!(status.devices[0].state, DeviceState::Lost { reason: LossReason::Hung, .. }));
    assert_eq!(memory.0 - h.free_memory().0, 4096, "the buffer of the one command it got is kept back");
    // New data goes to other devices, and can be flushed.
    for i in 10..20 {
        h.write(i * EXTENT, &[2; 4096]);
        assert_eq!(h.read(i * EXTENT, 4096).1, [2; 4096]);
    }
    h.flush().expect("a flush");
    // The device answers after all: only the memory comes back.
    h.wake(DATA);
    assert_eq!(h.free_memory(), memory);
    assert_eq!(h.engine.status().devices[0].in_flight, 0);
    assert!(matches!(h.engine.status().devices[0].state, DeviceState::Lost { .. }));
    h.stop();
    h.reopen();
    assert_eq!(h.read(0, 4096).1, [1; 4096]);
}

#[test]
fn memory_kept_by_hung_device_is_replaced() {
    let mut h = Harness::new(2, "stripe");
    h.write(0, &[1; EXTENT as usize]);
    h.write(EXTENT, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    let memory = h.devices.memory.free();
    h.devices.hanging.push(DATA);
    let mut asked = 0;
    while h.devices.memory.free().0 >= EXTENT {
        h.submit(asked, Op::Read, 0, EXTENT, 0);
        asked += 1;
    }
    h.wait(DeviceSettings::DEADLINE + Nanos::secs(1));
    for _ in 0..asked {
        let (_, result) = h.answer().expect("a reply");
        assert!(matches!(result, Err(RequestError::Io { error: IoError::Lost, .. })), "{result:?}");
    }
    assert!(asked > 10 && h.devices.delayed.len() as u64 == asked, "all had reached the device");
    assert_eq!(h.devices.memory.free(), memory, "what it keeps is made up for");
    assert_eq!(h.read(EXTENT, EXTENT as usize).1, [1; EXTENT as usize]);
    h.wake(DATA);
    h.stop();
}

#[test]
fn space_of_hung_write_stays_quarantined_until_it_ends() {
    let mut h = Harness::new(2, "sequential");
    let free = h.free();
    h.devices.hanging.push(DATA);
    let error = h.request(Op::Write, 0, &[1; 4096], false).expect_err("no answer");
    assert!(matches!(error, RequestError::Io { error: IoError::Lost, .. }));
    assert_eq!(h.read(0, 4096).0, ReadShape::Zeros);
    h.flush().expect("nothing was promised");
    assert_eq!(free - h.free(), 1, "the write may still come");
    h.wake(DATA);
    assert_eq!((h.free(), h.read(0, 4096).0), (free, ReadShape::Zeros));
    h.stop();
}

#[test]
fn a_flush_that_hangs_fails_and_its_blocks_are_in_doubt() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; 4096]);
    h.devices.hanging.push(DATA);
    assert_eq!(h.flush(), Err(RequestError::FlushFailed(DATA)));
    assert!(in_doubt(&mut h, 0));
    h.flush().expect("told once");
    // Once rewritten, the block is on the remaining device.
    h.write(0, &[2; 4096]);
    h.flush().expect("a flush");
    assert_eq!(h.read(0, 4096).1, [2; 4096]);
    h.wake(DATA);
    h.reopen();
    assert_eq!(h.read(0, 4096).1, [2; 4096]);
}

#[test]
fn disconnected_device_is_lost_at_once() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; 4096]);
    h.fail_next(IoKind::Read, IoError::Lost);
    let error = h.request(Op::Read, 0, &[0; 4096], false).expect_err("gone");
    assert_eq!(error, RequestError::InDoubt { device: DATA }, "its last write was not flushed");
    assert_eq!(h.flush(), Err(RequestError::FlushFailed(DATA)));
    let told: Vec<_> = std::iter::from_fn(|| h.engine.next_notice()).collect();
    assert!(told.contains(&Notice::Lost { device: DATA, reason: LossReason::Disconnected }), "{told:?}");
    assert!(told.contains(&Notice::WritesInDoubt { device: DATA, blocks: 1 }), "{told:?}");
    h.flush().expect("told once");
}

#[test]
fn rewriting_repairs_blocks_of_lost_device() {
    let mut h = Harness::new(3, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.write(EXTENT, &[1; 4096]);
    h.flush().expect("a flush");
    h.lose(DATA);
    let lost = |answer| matches!(answer, Err(RequestError::Io { device: DATA, error: IoError::Lost, .. }));
    assert!(lost(h.request(Op::Write, 512, &[2; 512], false)), "the rest of the block is not there");
    // Whole blocks of a full extent and of a partly filled one, and blocks without data.
    h.write(4096, &[2; 8192]);
    h.write(EXTENT, &[2; 4096]);
    h.write(EXTENT + 8192 + 512, &[3; 512]);
    h.flush().expect("a flush");
    assert_eq!((h.read(4096, 8192).1, h.read(EXTENT, 4096).1), (vec![2; 8192], vec![2; 4096]));
    h.write(4096, &[4; 512]);
    assert_eq!(h.read(4096, 1024).1, [[4; 512], [2; 512]].concat(), "it is written like any other now");
    assert!(lost(h.request(Op::Read, 0, &[0; 4096], false)), "what was not written again");
    assert!(lost(h.request(Op::Write, 8192 + 512, &[5; 4096], false)), "its second block is not there");
    // The whole extent is rewritten: the lost device has no place of it any more.
    h.write(0, &[6; EXTENT as usize]);
    h.flush().expect("a flush");
    assert_eq!(h.read(0, EXTENT as usize).1, [6; EXTENT as usize]);
    h.reopen();
    assert_eq!(h.read(0, EXTENT as usize).1, [6; EXTENT as usize]);
    assert_eq!(h.read(EXTENT, 4096).1, [2; 4096]);
    assert_eq!(h.read(EXTENT + 8192 + 512, 512).1, [3; 512]);
}

#[test]
fn blocks_not_rewritten_return_with_the_device() {
    let mut h = Harness::new(3, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    h.lose(DATA);
    h.write(4096, &[2; 4096]);
    h.flush().expect("a flush");
    h.reopen();
    assert_eq!(h.read(0, 12288).1, [[1; 4096], [2; 4096], [1; 4096]].concat());
}

#[test]
fn engine_pause_causes_no_timeout() {
    // The server was stopped, or the machine slept: just past the deadline, or for an hour.
    for pause in [Nanos::secs(30), Nanos::secs(31), Nanos::secs(3600)] {
        let mut h = Harness::new(2, "sequential");
        h.write(0, &[1; 4096]);
        h.devices.hanging.push(DATA);
        h.begin(Op::Read, 0, 4096);
        h.jump(pause);
        // The answer comes a while after the engine runs again.
        h.wait(Nanos::secs(20));
        h.wake(DATA);
        assert!(matches!(h.engine.status().devices[0].state, DeviceState::InUse));
        assert!(h.engine.next_reply().expect("a reply").result.is_ok());
    }
}

#[test]
fn deadline_is_configurable() {
    let settings = DeviceSettings { deadline: Nanos::secs(2), ..DeviceSettings::default() };
    let mut h = Harness::with_settings(2, "sequential", settings);
    h.write(0, &[1; 4096]);
    h.devices.hanging.push(DATA);
    h.begin(Op::Read, 0, 4096);
    h.wait(Nanos::millis(1900));
    assert!(h.engine.next_reply().is_none());
    h.wait(Nanos::millis(200));
    assert!(h.engine.next_reply().expect("a reply").result.is_err());
}

#[test]
fn blocks_in_doubt_are_not_copied() {
    let mut h = Harness::new(3, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    h.write(0, &[2; 4096]);
    h.devices.broken = vec![(DeviceId(0), IoKind::Flush, EIO)];
    h.flush().expect_err("it is lost");
    h.devices.broken.clear();
    let to = weir_model::PlaceId { device: DeviceId(1), kind: weir_model::PlaceKind::Fine };
    let blocks = weir_model::BlockRange { first: 0, count: 2 };
    h.act(weir_policy::placement::Action::Copy { key: h.key(0), blocks, to });
    let record = h.record(h.key(0)).expect("it has a place");
    assert!(record.place(to).is_none_or(|place| !place.valid.contains(0)), "{record:?}");
}
