//! Tests of the oracle on short histories.

use super::*;

const WHOLE: Place = Place { volume: 0, offset: VolumeOffset(0), len: Bytes(BLOCK) };

fn oracle() -> Oracle {
    Oracle::new(&[Bytes(4 * BLOCK)])
}

fn write(oracle: &mut Oracle) -> Ticket {
    let ticket = oracle.change(WHOLE, Change::Write, false);
    oracle.changed(ticket);
    ticket
}

fn flush(oracle: &mut Oracle) {
    let ticket = oracle.flush(0);
    oracle.flushed(ticket);
}

/// Reports whether a read now may return what `by` wrote.
fn sees(oracle: &mut Oracle, by: Ticket) -> bool {
    let read = oracle.read(WHOLE);
    sees_at(oracle, read, by)
}

fn sees_at(oracle: &mut Oracle, read: Ticket, by: Ticket) -> bool {
    let mut bytes = vec![0; BLOCK as usize];
    oracle.fill(by, WHOLE, &mut bytes);
    oracle.read_done(read, Answer::Bytes(&bytes)).is_ok()
}

fn sees_zeros(oracle: &mut Oracle) -> bool {
    let read = oracle.read(WHOLE);
    oracle.read_done(read, Answer::Zeros).is_ok()
}

#[test]
fn trim_of_partial_last_block_clears_nothing() {
    let tail = Place { offset: VolumeOffset(BLOCK + SECTOR), len: Bytes(SECTOR), ..WHOLE };
    let mut oracle = Oracle::new(&[Bytes(BLOCK + 2 * SECTOR)]);
    let ticket = oracle.change(tail, Change::Write, true);
    oracle.changed(ticket);
    let trim = oracle.change(tail, Change::Trim, true);
    oracle.changed(trim);
    let read = oracle.read(tail);
    let mut bytes = vec![0; SECTOR as usize];
    oracle.fill(ticket, tail, &mut bytes);
    assert_eq!(oracle.read_done(read, Answer::Bytes(&bytes)), Ok(()));
}

#[test]
fn overwritten_data_is_not_read_again() {
    let mut oracle = oracle();
    let old = write(&mut oracle);
    let new = write(&mut oracle);
    assert!(!sees_zeros(&mut oracle));
    assert!(!sees(&mut oracle, old));
    assert!(sees(&mut oracle, new));
}

#[test]
fn concurrent_writes_are_ordered_by_first_read() {
    let mut oracle = oracle();
    let (a, b) = (oracle.change(WHOLE, Change::Write, false), oracle.change(WHOLE, Change::Write, false));
    oracle.changed(b);
    oracle.changed(a);
    let early = oracle.read(WHOLE);
    assert!(sees(&mut oracle, a));
    assert!(!sees(&mut oracle, b));
    assert!(sees_at(&mut oracle, early, b), "that read began before the other one had its answer");
}

#[test]
fn change_that_a_read_has_returned_has_overwritten_earlier_ones() {
    let mut oracle = oracle();
    let old = write(&mut oracle);
    let early = oracle.read(WHOLE);
    let trim = oracle.change(WHOLE, Change::Trim, false);
    oracle.changed(trim);
    let new = oracle.change(WHOLE, Change::Write, false);
    assert!(sees_zeros(&mut oracle), "the trim is in effect, the write may be");
    assert!(sees_at(&mut oracle, early, new), "the read ends after the write has begun");
    assert!(!sees_zeros(&mut oracle) && !sees(&mut oracle, old), "now it is in effect for all");
    oracle.changed(new);
    assert!(sees(&mut oracle, new));
}

#[test]
fn concurrent_read_sees_old_or_new() {
    let mut oracle = oracle();
    let old = write(&mut oracle);
    let new = oracle.change(WHOLE, Change::Write, false);
    let (first, second) = (oracle.read(WHOLE), oracle.read(WHOLE));
    oracle.changed(new);
    assert!(sees_at(&mut oracle, first, old));
    assert!(sees_at(&mut oracle, second, new));
}

#[test]
fn crash_outcome_of_unflushed_write_is_stable() {
    let mut oracle = oracle();
    let old = write(&mut oracle);
    flush(&mut oracle);
    let new = write(&mut oracle);
    assert!(sees(&mut oracle, new));
    oracle.crash(StopKind::PowerLoss);
    assert!(!sees_zeros(&mut oracle), "the flush promised this write");
    assert!(sees(&mut oracle, old));
    assert!(!sees(&mut oracle, new), "once read it does not change without a write");
    oracle.crash(StopKind::PowerLoss);
    assert!(!sees(&mut oracle, new), "another crash changes nothing");
}

#[test]
fn a_flush_covers_only_what_was_acknowledged_before_it() {
    let mut oracle = oracle();
    let late = oracle.change(WHOLE, Change::Write, false);
    let ticket = oracle.flush(0);
    oracle.changed(late);
    oracle.flushed(ticket);
    oracle.crash(StopKind::PowerLoss);
    assert!(sees_zeros(&mut oracle));
}

#[test]
fn fua_survives_and_failed_write_may_survive() {
    let mut oracle = oracle();
    let ticket = oracle.change(WHOLE, Change::Write, true);
    oracle.changed(ticket);
    let failed = oracle.change(WHOLE, Change::Write, true);
    oracle.change_failed(failed);
    oracle.crash(StopKind::PowerLoss);
    assert!(!sees_zeros(&mut oracle));
    assert!(sees(&mut oracle, failed));
    assert!(!sees(&mut oracle, ticket));
}

#[test]
fn data_read_after_kill_is_durable() {
    for settled in [false, true] {
        let mut oracle = oracle();
        let old = write(&mut oracle);
        flush(&mut oracle);
        let new = write(&mut oracle);
        oracle.crash(StopKind::Kill);
        if settled {
            oracle.make_all_durable();
        }
        assert!(sees(&mut oracle, new));
        oracle.crash(StopKind::PowerLoss);
        assert_eq!(sees(&mut oracle, old), !settled);
    }
}

#[test]
fn first_write_is_durable_if_guaranteed() {
    for promised in [false, true] {
        let mut oracle = oracle();
        if promised {
            oracle.first_writes_are_durable(0);
        }
        let first = write(&mut oracle);
        oracle.crash(StopKind::PowerLoss);
        assert_eq!(sees_zeros(&mut oracle), !promised);
        // An overwrite has no special guarantee.
        write(&mut oracle);
        oracle.crash(StopKind::PowerLoss);
        assert_eq!(sees(&mut oracle, first), promised);
    }
}

#[test]
fn a_trim_takes_effect_by_the_next_flush() {
    let mut oracle = oracle();
    let data = write(&mut oracle);
    let trim = oracle.change(WHOLE, Change::Trim, false);
    oracle.changed(trim);
    assert!(sees(&mut oracle, data));
    assert!(sees(&mut oracle, data));
    assert!(sees_zeros(&mut oracle));
    flush(&mut oracle);
    assert!(!sees(&mut oracle, data));
    oracle.crash(StopKind::PowerLoss);
    assert!(!sees(&mut oracle, data));
    assert!(sees_zeros(&mut oracle));
}

#[test]
fn misplaced_and_torn_sectors_are_recognised() {
    let mut oracle = oracle();
    let ticket = write(&mut oracle);
    let mut bytes = vec![0; BLOCK as usize];
    oracle.fill(ticket, Place { offset: VolumeOffset(BLOCK), ..WHOLE }, &mut bytes);
    let read = oracle.read(WHOLE);
    let found = oracle.read_done(read, Answer::Bytes(&bytes)).unwrap_err().found;
    assert_eq!(found, Found::Misplaced { by: ticket, volume: 0, sector: 8 });
    oracle.fill(ticket, WHOLE, &mut bytes);
    bytes[300] ^= 1;
    let read = oracle.read(WHOLE);
    assert_eq!(oracle.read_done(read, Answer::Bytes(&bytes)).unwrap_err().found, Found::Torn);
}

/// Makes a durable change.
fn change_durably(oracle: &mut Oracle, place: Place, change: Change) {
    let ticket = oracle.change(place, change, true);
    oracle.changed(ticket);
}

const PART: Place = Place { len: Bytes(2 * SECTOR), ..WHOLE };

#[test]
fn partial_zeroes_take_space_until_block_cleared() {
    let mut oracle = oracle();
    let takes_space = |oracle: &mut Oracle| {
        let now = oracle.read(WHOLE);
        oracle.may_hold_data(WHOLE, now)
    };
    assert!(!takes_space(&mut oracle));
    change_durably(&mut oracle, PART, Change::Write);
    change_durably(&mut oracle, PART, Change::Zero);
    assert!(sees_zeros(&mut oracle) && takes_space(&mut oracle));
    oracle.crash(StopKind::PowerLoss);
    assert!(sees_zeros(&mut oracle) && takes_space(&mut oracle));
    change_durably(&mut oracle, WHOLE, Change::Zero);
    assert!(!takes_space(&mut oracle));
}

#[test]
fn block_in_doubt_until_wholly_durable() {
    for fails in [false, true] {
        let mut oracle = oracle();
        let lost = oracle.change(PART, Change::Write, false);
        oracle.changed(lost);
        // A device loses the whole block, whatever else was written to it.
        change_durably(&mut oracle, PART, Change::Write);
        if fails {
            let ticket = oracle.flush(0);
            oracle.flush_failed(ticket);
        }
        let early = oracle.read(WHOLE);
        assert!(oracle.may_be_in_doubt(WHOLE, early));
        change_durably(&mut oracle, WHOLE, Change::Write);
        assert!(oracle.may_be_in_doubt(WHOLE, early), "it was when that read was submitted");
        let late = oracle.read(WHOLE);
        assert!(!oracle.may_be_in_doubt(WHOLE, late));
    }
}

#[test]
fn flush_clears_doubt_except_earlier_loss() {
    for fails in [false, true] {
        let mut oracle = oracle();
        let part = oracle.change(PART, Change::Write, false);
        oracle.changed(part);
        change_durably(&mut oracle, PART, Change::Write);
        if fails {
            let ticket = oracle.flush(0);
            oracle.flush_failed(ticket);
        }
        flush(&mut oracle);
        let read = oracle.read(WHOLE);
        assert_eq!(oracle.may_be_in_doubt(WHOLE, read), fails);
    }
}

#[test]
fn abandoned_write_never_follows_later_write() {
    let mut oracle = oracle();
    let lost = oracle.change(WHOLE, Change::Write, false);
    // Its client has not reconnected: the change may take effect after another client's write, even after
    // that was read.
    let other = write(&mut oracle);
    assert!(sees(&mut oracle, other));
    oracle.abandon_change(lost);
    assert!(sees(&mut oracle, other), "it need not have come yet");
    let early = oracle.read(WHOLE);
    let new = write(&mut oracle);
    assert!(sees(&mut oracle, new));
    assert!(!sees(&mut oracle, lost), "too late");
    assert!(sees_at(&mut oracle, early, lost), "that read began before the later write");
    oracle.crash(StopKind::PowerLoss);
    assert!(sees(&mut oracle, lost), "nothing was flushed");
}

#[test]
fn durable_write_supersedes_abandoned_write() {
    let mut oracle = oracle();
    let lost = oracle.change(WHOLE, Change::Write, false);
    oracle.abandon_change(lost);
    let new = write(&mut oracle);
    flush(&mut oracle);
    oracle.crash(StopKind::PowerLoss);
    assert!(!sees(&mut oracle, lost));
    assert!(sees(&mut oracle, new));
}

#[test]
fn reported_zeros_are_checked_in_place() {
    let mut oracle = oracle();
    let half = Place { len: Bytes(BLOCK / 2), ..WHOLE };
    let ticket = oracle.change(half, Change::Write, false);
    oracle.changed(ticket);
    let status = |oracle: &mut Oracle, sectors: std::ops::Range<u64>| {
        let read = oracle.read(WHOLE);
        oracle.zeros_reported(read, &[sectors]).is_ok()
    };
    assert!(status(&mut oracle, 4..8));
    assert!(!status(&mut oracle, 3..8));
}

#[test]
fn reduced_guarantee_applies_to_in_flight_writes() {
    let mut oracle = oracle();
    oracle.first_writes_are_durable(0);
    let kept = write(&mut oracle);
    let next = Place { offset: VolumeOffset(BLOCK), ..WHOLE };
    let under_way = oracle.change(next, Change::Write, false);
    oracle.first_writes_need_a_flush(0);
    oracle.changed(under_way);
    oracle.crash(StopKind::PowerLoss);
    assert!(sees(&mut oracle, kept) && !sees_zeros(&mut oracle));
    let read = oracle.read(next);
    assert!(oracle.read_done(read, Answer::Zeros).is_ok());
}

/// A flush guarantees nothing while a loss may be reported to a client that reads no replies.
#[test]
fn unread_flushes_may_hear_of_a_loss() {
    let mut oracle = oracle();
    let alone = oracle.flush(0);
    assert!(!oracle.has_concurrent_flush(alone));
    oracle.note_unread_flushes();
    assert!(oracle.has_concurrent_flush(alone));
    oracle.crash(StopKind::PowerLoss);
    let later = oracle.flush(0);
    assert!(!oracle.has_concurrent_flush(later));
}

/// Of writes in flight together, either may be a block's first one; only that is guaranteed.
#[test]
fn concurrent_write_may_be_first() {
    let parts = [0, SECTOR].map(|offset| Place { offset: VolumeOffset(offset), len: Bytes(SECTOR), ..WHOLE });
    for is_concurrent in [false, true] {
        let mut oracle = oracle();
        oracle.first_writes_are_durable(0);
        let first = oracle.change(parts[0], Change::Write, false);
        if !is_concurrent {
            oracle.changed(first);
        }
        let other = oracle.change(parts[1], Change::Write, false);
        oracle.changed(other);
        oracle.changed(first);
        oracle.crash(StopKind::PowerLoss);
        assert_eq!(sees_zeros(&mut oracle), is_concurrent);
    }
}

/// A client may receive the data of a failed write after another one has heard that it is lost.
#[test]
fn late_answer_does_not_cover_an_earlier_loss() {
    for is_late in [false, true] {
        let mut oracle = oracle();
        let failed = oracle.change(WHOLE, Change::Write, false);
        oracle.change_failed(failed);
        let early = oracle.read(WHOLE);
        let lost = oracle.flush(0);
        oracle.flush_failed_concurrently(lost, &[]);
        let read = if is_late { early } else { oracle.read(WHOLE) };
        assert!(sees_at(&mut oracle, read, failed));
        flush(&mut oracle);
        oracle.crash(StopKind::PowerLoss);
        assert_eq!(sees_zeros(&mut oracle), is_late);
    }
}
