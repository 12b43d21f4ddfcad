//! Admissions step by step; the sketch compared with exact counts.

use super::sketch::Sketch;
use super::*;
use crate::cache::CacheSize;
use proptest::prelude::*;
use std::collections::BTreeSet;

const MIB: u64 = 1 << 20;

fn request(offset: u64, len: u64) -> BlockRequest {
    BlockRequest { at: Nanos(0), disk: 0, offset: VolumeOffset(offset), len: Bytes(len) }
}

#[test]
fn runs_are_admitted_up_to_4_mib() {
    let mut policy = Sequential::default();
    let admitted: Vec<_> = (0..6).map(|i| policy.request(request(i * MIB, MIB))).collect();
    assert_eq!(admitted, [true, true, true, true, false, false]);
    // The request starts at the end of none.
    assert!(policy.request(request(100 * MIB, MIB)));
    // Four sectors after the end of the run, which is still in the window, and five.
    assert!(!policy.request(request(6 * MIB + 4 * 512, 512)));
    assert!(policy.request(request(6 * MIB + 4 * 512 + 512 + 5 * 512, 512)));
    // On another disk it continues nothing.
    assert!(policy.request(BlockRequest { disk: 1, ..request(6 * MIB + 4 * 512, MIB) }));
}

#[test]
fn eight_streams_are_distinguished() {
    for (streams, told) in [(8, true), (9, false)] {
        let mut policy = Sequential::default();
        let mut last = Vec::new();
        for round in 0..6 {
            last = (0..streams).map(|s| policy.request(request(s * 1000 * MIB + round * MIB, MIB))).collect();
        }
        assert!(last.iter().all(|admitted| *admitted != told), "{streams} streams: {last:?}");
    }
}

#[test]
fn single_large_request_is_admitted() {
    assert!(Sequential::default().request(request(0, 64 * MIB)));
}

#[test]
fn window_gap_and_length_of_runs_are_settings() {
    let settings = SequenceSettings { window: 1, gap: Bytes(0), run_max: Bytes::mib(2) };
    let mut policy = Sequential::new(settings);
    let admitted: Vec<_> = (0..3).map(|i| policy.request(request(i * MIB, MIB))).collect();
    assert_eq!(admitted, [true, true, false]);
    assert!(policy.request(request(3 * MIB + 512, MIB)), "a gap ends the run");
    let mut two = Sequential::new(SequenceSettings { run_max: Bytes::mib(1), ..settings });
    assert!(two.request(request(0, MIB)) && two.request(request(9 * MIB, MIB)));
    assert!(two.request(request(MIB, MIB)), "the window holds one request only");
}

#[test]
fn counts_of_touches_stop_at_their_bits() {
    let touches = |bits, maps| TouchSettings { threshold: 3, bits, maps, ..TouchSettings::default() };
    assert_eq!([(1, 1), (2, 1), (1, 3), (8, 2)].map(|(b, m)| touches(b, m).touches_max()), [1, 3, 3, 510]);
    let admitted = |bits| {
        let mut policy = TouchCount::new(touches(bits, 1));
        (0..9).filter(|_| policy.request(request(0, 4096))).count()
    };
    assert_eq!((admitted(1), admitted(2)), (0, 6), "one bit never counts to three");
}

#[test]
fn touched_segment_admits_whole_request() {
    let mut policy = TouchCount::new(TouchSettings::default());
    assert!(!policy.request(request(0, 4096)));
    // The same segment of 4 MiB, not the same block.
    assert!(policy.request(request(3 * MIB, 4096)));
    assert!(!policy.request(request(4 * MIB, 4096)));
    assert!(!policy.request(BlockRequest { disk: 1, ..request(0, 4096) }));
    // The request crosses into an untouched segment: one touched segment suffices.
    assert!(policy.request(request(8 * MIB - 4096, 8192)));
    assert!(policy.request(request(8 * MIB, 4096)), "that touched both");
}

#[test]
fn touches_expire_by_map() {
    let touches = TouchSettings {
        segment: Bytes::mib(1),
        threshold: 2,
        bits: 2,
        rotate_after: Some(Bytes(3 * 4096)),
        rotate_every: None,
        maps: 2,
    };
    let mut policy = TouchCount::new(touches);
    let here = request(0, 4096);
    let admitted: Vec<_> = (0..3).map(|_| policy.request(here)).collect();
    assert_eq!(admitted, [false, false, true]);
    // The second map begins, and the touches in the first one still count.
    assert!(!policy.request(request(10 * MIB, 4096)) && policy.request(here));
    assert!(!policy.request(request(11 * MIB, 4096)));
    // The third bitmap replaces the first: only one touch, in the second, is left.
    assert!(!policy.request(here));
    assert!(policy.request(here));
}

#[test]
fn touches_expire_with_time() {
    let touches = TouchSettings { rotate_every: Some(Nanos::secs(10)), ..TouchSettings::default() };
    let mut policy = TouchCount::new(touches);
    let mut touch = |seconds| policy.request(BlockRequest { at: Nanos::secs(seconds), ..request(0, 4096) });
    assert_eq!([5, 14].map(&mut touch), [false, true]);
    assert_eq!([15, 16].map(&mut touch), [false, true], "the only map was emptied after ten seconds");
    assert_eq!([40, 41].map(&mut touch), [false, true]);
}

#[test]
fn both_policies_see_every_request() {
    let mut both = AdmitBoth(Sequential::default(), TouchCount::new(TouchSettings::default()));
    let rounds: Vec<Vec<bool>> =
        (0..2).map(|_| (0..6).map(|i| both.request(request(i * MIB, MIB))).collect()).collect();
    // A segment is 4 MiB: its first request is not admitted, the next ones are unless the run is long.
    assert_eq!(rounds[0], [false, true, true, true, false, false]);
    assert_eq!(rounds[1], [true, true, true, true, false, false]);
}

#[test]
fn more_frequent_block_stays() {
    let mut policy = TinyLfu::new(CacheSize { blocks: 100, capacity: 10 });
    let (often, once, never) = (Block(1), Block(2), Block(3));
    (0..5).for_each(|_| policy.block(often));
    policy.block(once);
    assert!(policy.may_replace(often, once) && policy.may_replace(once, never));
    assert!(!policy.may_replace(once, often) && !policy.may_replace(once, Block(2)), "a tie stays");
    // Much later, the formerly frequent block is not frequent any more.
    (0..1000).for_each(|i| policy.block(Block(10 + i % 4)));
    assert!(policy.may_replace(Block(10), often));
}

proptest! {
    /// Compares with exact counts: the sketch never counts less, up to the maximum, including halvings.
    /// Touches are counted in periods that end by bytes or by time, and the last periods are added up.
    #[test]
    fn touches_are_those_of_the_last_periods(
        (segment, threshold, bits, maps) in (1_u64..4, 0_u32..5, 1_u8..4, 1_usize..4),
        rotate_after in prop::option::of(0_u64..40),
        rotate_every in prop::option::of(1_u64..30),
        requests in prop::collection::vec((0_u64..6, 0_u32..2, 0_u64..12, 1_u64..6), 1..200),
    ) {
        let mut policy = TouchCount::new(TouchSettings {
            segment: Bytes(segment * 512),
            threshold,
            bits,
            rotate_after: rotate_after.map(|sectors| Bytes(sectors * 512)),
            rotate_every: rotate_every.map(Nanos),
            maps,
        });
        // Each touch: the number of its period, the disk and the segment.
        let mut touches: Vec<(usize, u32, u64)> = Vec::new();
        let (mut period, mut begun, mut bytes, mut now) = (0, None, 0, 0);
        for (gap, disk, sector, sectors) in requests {
            now += gap;
            bytes += sectors;
            let is_over = rotate_after.is_some_and(|most| bytes > most)
                || rotate_every.is_some_and(|every| now - begun.unwrap_or(now) >= every);
            if is_over {
                (period, bytes) = (period + 1, sectors);
            }
            if is_over || begun.is_none() {
                begun = Some(now);
            }
            let touched: BTreeSet<u64> = (sector..sector + sectors).map(|sector| sector / segment).collect();
            let count = |of: u64| {
                let in_period = |nth: usize| touches.iter().filter(|one| **one == (nth, disk, of)).count();
                let most = (1 << bits) - 1;
                (0..=period).rev().take(maps).map(|nth| in_period(nth).min(most)).sum::<usize>()
            };
            let expected = touched.iter().any(|of| count(*of) >= threshold as usize);
            touches.extend(touched.iter().map(|of| (period, disk, *of)));
            let asked = BlockRequest { at: Nanos(now), disk, ..request(sector * 512, sectors * 512) };
            prop_assert_eq!(policy.request(asked), expected);
        }
    }

    #[test]
    fn sketch_never_undercounts(blocks in prop::collection::vec((0u32..40, 0u8..50), 0..500)) {
        let mut sketch = Sketch::new(16);
        let mut twin = [0u32; 40];
        for (block, what) in blocks {
            if what == 0 {
                sketch.halve();
                twin.iter_mut().for_each(|count| *count /= 2);
            } else {
                sketch.increment(Block(block));
                twin[block as usize] = (twin[block as usize] + 1).min(15);
            }
            for (block, count) in twin.iter().enumerate() {
                let told = u32::from(sketch.count(Block(block as u32)));
                prop_assert!((*count..=15).contains(&told), "{} of {}", told, count);
            }
        }
    }
}
