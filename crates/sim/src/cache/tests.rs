//! Tests on small traces with counts computed by hand, and of every setup against a naive implementation.

use super::*;
use crate::testing::record;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_model::{Bytes, Nanos, Op};
use weir_policy::eviction::Block;
use weir_trace::{Disk, Record};

fn load(records: &[Record]) -> BlockTrace {
    let mut loader = Loader::default();
    records.iter().for_each(|record| loader.take(record));
    loader.finish().expect("a trace")
}

fn setup(eviction: &str, admission: &str, capacity: u32, mode: WriteMode) -> Setup {
    let eviction = EvictionPolicy::by_name(eviction).expect("an eviction policy");
    let admission = AdmissionPolicy::by_name(admission).expect("an admission policy");
    Setup { eviction, admission, settings: AdmissionSettings::default(), capacity, mode }
}

#[test]
fn requests_touch_every_block_they_overlap() {
    let trace = load(&[
        record(Op::Read, 512, 4096),
        record(Op::Write, 0, 4096),
        record(Op::Read, 8191, 1),
        Record { disk: Disk(1), ..record(Op::Read, 0, 8192) },
    ]);
    let numbers: Vec<_> = trace.accesses().iter().map(|block| block.0).collect();
    assert_eq!(numbers, [0, 1, 0, 1, 2, 3], "blocks are numbered as they appear, each disk's for itself");
    assert_eq!((trace.blocks(), trace.requests()), (4, 4));
    let all = play(&trace, &setup("lru", "all", 4, WriteMode::Through));
    // The first request misses two blocks, both partly covered; the last misses a whole one.
    let reads = Counts {
        accesses: 5,
        misses: 4,
        requests: 3,
        missed: 2,
        bytes: 4096 + 1 + 8192,
        missed_bytes: 4096 + 8192,
    };
    let writes = Counts { accesses: 1, misses: 0, requests: 1, missed: 0, bytes: 4096, missed_bytes: 0 };
    assert_eq!((all.reads, all.writes), (reads, writes));
    assert_eq!((all.cache_writes(), all.clwa(), all.back_end_writes()), (5, Some(5.0), 1));
}

#[test]
fn duration_is_from_the_first_request_to_the_last() {
    let at = |seconds| Record { at: Nanos::secs(seconds), ..record(Op::Read, 0, 4096) };
    assert_eq!(load(&[at(5), at(6), at(9)]).duration(), Nanos::secs(4));
    assert_eq!(load(&[at(5)]).duration(), Nanos(0));
    assert_eq!(load(&[at(5), at(4)]).duration(), Nanos(0), "the last one is earlier");
}

#[test]
fn block_size_is_respected() {
    let records = [record(Op::Read, 512, 4096), record(Op::Write, 70_000, 1), record(Op::Trim, 0, 1 << 17)];
    let load = |bytes| {
        let mut loader = Loader::new(BlockSize::new(Bytes(bytes)).expect("a size"));
        records.iter().for_each(|record| loader.take(record));
        loader.finish().expect("a trace")
    };
    for (bytes, accesses, blocks) in [(512, 8 + 1, 9), (4096, 3, 3), (65_536, 2, 2), (1 << 30, 2, 1)] {
        let trace = load(bytes);
        assert_eq!((trace.accesses().len(), trace.blocks()), (accesses, blocks), "{bytes}");
        let outcome = play(&trace, &setup("lru", "all", 9, WriteMode::Back { dirty: 1.0 }));
        assert_eq!((outcome.all().bytes, outcome.size()), (4097, Bytes(9 * bytes)), "{bytes}");
        let missed = 4096 + u64::from(bytes < 1 << 30);
        assert_eq!(outcome.all().missed_bytes, missed, "{bytes}");
        assert_eq!(outcome.dirty, u64::from(bytes == 1 << 30), "trimmed whole or not: {bytes}");
    }
    assert!([0, 256, 4097, 1 << 31].map(|bytes| BlockSize::new(Bytes(bytes))).iter().all(Option::is_none));
}

#[test]
fn only_sizes_of_plain_lru_share_a_pass() {
    let back = WriteMode::Back { dirty: 0.5 };
    let mut setups = vec![
        setup("lru", "all", 1, WriteMode::Through),
        setup("lru", "tinylfu", 1, WriteMode::Through),
        setup("lru", "all", 2, back),
        setup("lru", "all", 3, WriteMode::Through),
        setup("arc", "all", 3, WriteMode::Through),
        setup("lru", "all", 4, back),
        setup("lru", "all", 3, WriteMode::Around),
        setup("lru", "all", 5, WriteMode::Through),
        setup("lru", "all", 6, WriteMode::Through),
    ];
    // Four setups are too few for a common pass.
    let apart: [&[usize]; 9] = [&[0], &[3], &[7], &[8], &[1], &[2], &[4], &[5], &[6]];
    assert_eq!(passes(&setups), apart);
    setups.push(setup("lru", "all", 7, WriteMode::Through));
    let joined: [&[usize]; 6] = [&[0, 3, 7, 8, 9], &[1], &[2], &[4], &[5], &[6]];
    assert_eq!(passes(&setups), joined);
}

#[test]
fn missed_bytes_exclude_unrequested_parts() {
    // The block in the middle is hit, both ends are missed.
    let trace = load(&[record(Op::Read, 4096, 4096), record(Op::Read, 4000, 4096 + 196)]);
    let outcome = play(&trace, &setup("lru", "all", 4, WriteMode::Through));
    assert_eq!((outcome.reads.bytes, outcome.reads.missed_bytes), (4096 + 4292, 4096 + 96 + 100));
}

#[test]
fn write_around_removes_the_block() {
    let trace = load(&[
        record(Op::Read, 0, 4096),
        record(Op::Write, 0, 4096),
        record(Op::Read, 0, 4096),
        record(Op::Read, 0, 4096),
    ]);
    let outcome = play(&trace, &setup("lru", "all", 4, WriteMode::Around));
    assert_eq!((outcome.reads.misses, outcome.writes.misses), (2, 1));
    assert_eq!((outcome.filled, outcome.written, outcome.back_end_writes()), (2, 0, 1));
}

#[test]
fn dirty_blocks_are_written_back_when_they_leave_or_are_too_many() {
    let writes: Vec<_> = [0, 0, 1, 2, 3, 0, 4].map(|block| record(Op::Write, block * 4096, 4096)).into();
    let trace = load(&writes);
    let whole = play(&trace, &setup("fifo", "all", 4, WriteMode::Back { dirty: 1.0 }));
    // Block 4 evicts block 0, which is dirty.
    assert_eq!((whole.back_end_evicted, whole.back_end_flushed, whole.dirty), (1, 0, 4));
    let half = play(&trace, &setup("fifo", "all", 4, WriteMode::Back { dirty: 0.5 }));
    // Blocks 2, 3, 0 and 4 each cause the oldest dirty block to be written back: 0, 1, 2, 3; block 0 is
    // evicted dirty before 4 is inserted.
    assert_eq!((half.back_end_evicted, half.back_end_flushed, half.dirty), (1, 3, 2));
    assert_eq!((half.back_end_direct, half.cache_writes(), half.clwa()), (0, 7, Some(1.0)));
}

#[test]
fn trimmed_blocks_are_not_written_back() {
    let trace = load(&[
        record(Op::Write, 0, 8192),
        // The trim covers block 0 entirely and block 1 in part; block 7 is unknown.
        record(Op::Trim, 0, 8000),
        record(Op::Trim, 7 * 4096, 4096),
        record(Op::Read, 0, 8192),
        record(Op::Trim, 0, 1 << 40),
    ]);
    let outcome = play(&trace, &setup("lru", "all", 4, WriteMode::Back { dirty: 1.0 }));
    assert_eq!((outcome.reads.misses, outcome.back_end_writes(), outcome.dirty), (1, 0, 0));
    assert_eq!(outcome.all().requests, 3 - 1, "trims are no requests for blocks");
}

#[test]
fn admission_skips_long_runs_and_admits_reused_segments() {
    let scan: Vec<_> = (0..64).map(|i| record(Op::Read, i << 18, 1 << 18)).collect();
    let trace = load(&scan);
    let filled = |admission| play(&trace, &setup("lru", admission, 4096, WriteMode::Through)).filled;
    // 16 MiB, of which 4 MiB are not part of long runs; of each 4 MiB all but the first request's blocks.
    assert_eq!((filled("all"), filled("sequential")), (4096, 1024));
    assert_eq!((filled("touch_count"), filled("sequential+touch_count")), (4096 - 256, 1024 - 64));
    assert_eq!(filled("tinylfu"), 4096, "while there is room all comes in");
}

#[test]
fn stop_flag_ends_the_run() {
    // Enough requests for many pieces.
    let records: Vec<_> = (0..200_000).map(|n| record(Op::Read, n % 7 * 4096, 4096)).collect();
    let (mut trace, stop) = (load(&records), Arc::new(AtomicBool::new(false)));
    trace.stop_when(stop.clone());
    let sizes = [2, 4].map(|capacity| setup("lru", "all", capacity, WriteMode::Through));
    let played = |setups: &[Setup]| -> Vec<_> {
        play_pass(&trace, setups).iter().map(|outcome| outcome.all().accesses).collect()
    };
    for is_stopped in [false, true] {
        stop.store(is_stopped, Ordering::Relaxed);
        let accesses = if is_stopped { 0 } else { 200_000 };
        assert_eq!(played(&sizes), [accesses; 2]);
        for eviction in EvictionPolicy::ALL {
            assert_eq!(played(&[Setup { eviction, ..sizes[0] }]), [accesses], "{}", eviction.name);
        }
    }
}

#[test]
fn warm_up_requests_are_not_counted() {
    let request = |op, block: u64| record(op, block * 4096, 4096);
    let trace = load(&[
        request(Op::Read, 0),
        request(Op::Write, 1),
        request(Op::Trim, 1),
        request(Op::Read, 0),
        request(Op::Read, 1),
    ]);
    let counts = |admission, warm_up| {
        let outcome = play_warmed(&trace, &setup("lrw", admission, 2, WriteMode::Through), warm_up);
        (outcome.all().accesses, outcome.all().misses, outcome.cache_writes())
    };
    assert_eq!(counts("all", 0), (4, 3, 3));
    assert_eq!(counts("all", 2), (2, 1, 1), "block 0 is there, block 1 is not any more");
    assert_eq!(counts("all", 3), (1, 1, 1));
    assert_eq!(counts("all", 9), (0, 0, 0), "nothing is left to count");
    // All blocks are in one segment, whose first touch is not admitted, with and without a warm-up.
    assert_eq!((counts("touch_count", 0), counts("touch_count", 2)), ((4, 4, 3), (2, 2, 1)));
}

#[test]
fn invalid_traces_are_rejected() {
    let finish = |record: Option<Record>| {
        let mut loader = Loader::default();
        record.iter().for_each(|record| loader.take(record));
        loader.finish().map(|trace| trace.blocks())
    };
    assert_eq!(finish(None), Err(BlockTraceError::Empty));
    assert_eq!(finish(Some(record(Op::Trim, 0, 4096))), Err(BlockTraceError::Empty));
    let too_far = Err(BlockTraceError::OffsetOutOfReach { disk: 0, offset: 1 << 62, reach: Bytes(1 << 62) });
    assert_eq!(finish(Some(record(Op::Read, 1 << 62, 1))), too_far);
    let too_large = Err(BlockTraceError::RequestTooLong { disk: 0, offset: 512, len: 1 << 40 });
    assert_eq!(finish(Some(record(Op::Write, 512, 1 << 40))), too_large);
    assert_eq!(finish(Some(record(Op::Read, (1 << 62) - 4096, 4096))), Ok(1), "the last block in reach");
}

/// A naive cache: the dirty and clean blocks in order of use.
#[derive(Default)]
struct NaiveCache {
    /// Most recently used last; the number is the time since when the block is dirty.
    blocks: Vec<(u64, Option<u64>)>,
    accesses: u64,
    misses: u64,
    cache_writes: u64,
    back_end_writes: u64,
}

impl NaiveCache {
    fn play(records: &[Record], capacity: usize, mode: WriteMode) -> Self {
        let mut twin = Self::default();
        for record in records {
            let first = record.offset.0 / 4096;
            if record.op == Op::Trim {
                let whole = record.offset.0.div_ceil(4096)..(record.offset.0 + record.len.0) / 4096;
                twin.blocks.retain(|(block, _)| !whole.contains(block));
                continue;
            }
            for block in first..=(record.offset.0 + record.len.0 - 1) / 4096 {
                twin.access(block, record.op == Op::Write, capacity, mode);
            }
        }
        twin
    }

    fn access(&mut self, block: u64, write: bool, capacity: usize, mode: WriteMode) {
        self.accesses += 1;
        let at = self.blocks.iter().position(|(other, _)| *other == block);
        let old = at.map(|at| self.blocks.remove(at));
        if write && mode == WriteMode::Around {
            self.misses += 1;
            self.back_end_writes += 1;
            return;
        }
        self.misses += u64::from(old.is_none());
        self.cache_writes += u64::from(write || old.is_none());
        if old.is_none() && self.blocks.len() == capacity {
            self.back_end_writes += u64::from(self.blocks.remove(0).1.is_some());
        }
        let mut dirty = old.and_then(|(_, dirty)| dirty);
        match mode {
            WriteMode::Back { .. } if write => dirty = dirty.or(Some(self.accesses)),
            _ => self.back_end_writes += u64::from(write),
        }
        self.blocks.push((block, dirty));
        if let WriteMode::Back { dirty } = mode {
            let most = ((capacity as f64 * dirty) as usize).max(1);
            if self.blocks.iter().filter(|(_, since)| since.is_some()).count() > most {
                let of = |(_, since): &&mut (u64, Option<u64>)| since.unwrap_or(u64::MAX);
                self.blocks.iter_mut().min_by_key(of).expect("a dirty one").1 = None;
                self.back_end_writes += 1;
            }
        }
    }
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let op = prop_oneof![4 => Just(Op::Read), 4 => Just(Op::Write), 1 => Just(Op::Trim)];
    let one = (op, 0u64..60_000, 1u64..12_000).prop_map(|(op, offset, len)| record(op, offset, len));
    prop::collection::vec(one, 1..80)
}

fn compare_with_naive(records: &[Record], capacity: u32, mode: WriteMode) -> Result<(), TestCaseError> {
    let mut loader = Loader::default();
    records.iter().for_each(|record| loader.take(record));
    let Ok(trace) = loader.finish() else { return Ok(()) };
    let ours = play(&trace, &setup("lru", "all", capacity, mode));
    let twin = NaiveCache::play(records, capacity as usize, mode);
    prop_assert_eq!(ours.all().misses, twin.misses);
    prop_assert_eq!(ours.cache_writes(), twin.cache_writes);
    prop_assert_eq!(ours.back_end_writes(), twin.back_end_writes);
    let dirty = twin.blocks.iter().filter(|(_, since)| since.is_some()).count();
    prop_assert_eq!(ours.dirty, dirty as u64);
    Ok(())
}

proptest! {
    #[test]
    fn write_modes_match_the_naive_cache(records in records(), capacity in 1u32..16, dirty in 0.01..1.0f64) {
        for mode in [WriteMode::Through, WriteMode::Around, WriteMode::Back { dirty }] {
            compare_with_naive(&records, capacity, mode)?;
        }
    }

    /// Many sizes of LRU in one pass give the same counts as a pass each.
    #[test]
    fn one_pass_equals_separate_passes(
        records in records(),
        sizes in prop::collection::vec(1u32..20, 5..10),
    ) {
        let mut loader = Loader::default();
        records.iter().for_each(|record| loader.take(record));
        let Ok(trace) = loader.finish() else { return Ok(()) };
        for mode in [WriteMode::Through, WriteMode::Around] {
            let setups: Vec<_> = sizes.iter().map(|size| setup("lru", "all", *size, mode)).collect();
            prop_assert_eq!(passes(&setups).len(), 1);
            let apart: Vec<_> = setups.iter().map(|setup| play(&trace, setup)).collect();
            prop_assert_eq!(play_pass(&trace, &setups), apart);
        }
    }

    /// Insertions, evictions and write-backs balance under every policy.
    #[test]
    fn counts_are_consistent(records in records(), capacity in 1u32..16, dirty in 0.01..1.0f64) {
        let mut loader = Loader::default();
        records.iter().filter(|record| record.op != Op::Trim).for_each(|record| loader.take(record));
        let Ok(trace) = loader.finish() else { return Ok(()) };
        let bytes: u64 = records.iter().filter(|r| r.op != Op::Trim).map(|r| r.len.0).sum();
        for eviction in EvictionPolicy::ALL {
            for admission in AdmissionPolicy::ALL {
                let mode = WriteMode::Back { dirty };
                let settings = AdmissionSettings::default();
                let o = play(&trace, &Setup { eviction, admission, settings, capacity, mode });
                prop_assert_eq!(o.all().accesses, trace.accesses().len() as u64);
                prop_assert_eq!(o.all().bytes, bytes);
                prop_assert!(o.all().missed_bytes <= bytes && o.all().missed <= o.all().requests);
                prop_assert!(o.evicted <= o.all().misses);
                prop_assert_eq!(o.written + o.back_end_direct, o.writes.accesses, "{:?}", o);
                let least = (f64::from(capacity) * dirty) as u64;
                prop_assert!(o.dirty <= least.max(1) && o.dirty <= o.written, "{:?}", o);
            }
        }
    }

    #[test]
    fn block_numbers_identify_blocks(records in records()) {
        let mut loader = Loader::default();
        records.iter().for_each(|record| loader.take(record));
        let Ok(trace) = loader.finish() else { return Ok(()) };
        let mut known = Vec::new();
        let accessed = records.iter().filter(|record| record.op != Op::Trim).flat_map(|record| BlockSize::default().touched(record));
        let numbers: Vec<_> = accessed
            .map(|block| {
                let at = known.iter().position(|other| *other == block).unwrap_or_else(|| {
                    known.push(block);
                    known.len() - 1
                });
                Block(at as u32)
            })
            .collect();
        prop_assert_eq!(trace.accesses(), &numbers[..]);
        prop_assert_eq!(trace.blocks() as usize, known.len());
    }
}
