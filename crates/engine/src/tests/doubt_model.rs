//! Failing flushes under random histories, compared with a naive model with one cell per block.

use super::harness::Harness;
use proptest::prelude::*;
use weir_model::{DeviceId, Errno, IoError, IoKind, Op, ReadShape, RequestError};

const BLOCK: usize = 4096;
const EXTENT_BLOCKS: u64 = 32;
/// The number of blocks: three extents.
const BLOCKS: u64 = 3 * EXTENT_BLOCKS;
const FAILED: RequestError = RequestError::FlushFailed(DeviceId(0));

#[derive(Clone, Debug)]
enum Step {
    Write { first: u64, count: u64, fua: bool },
    Clear { first: u64, count: u64, op: Op },
    Flush { fails: bool },
    Reopen,
}

/// The known state of a block; zero is a hole.
#[derive(Clone, Debug)]
struct Cell {
    now: u8,
    /// The values it may have when the pool is opened again.
    later: Vec<u8>,
    /// Whether it was written and the device not flushed since.
    unflushed: bool,
    /// Whether it was written by a request during which a commit flushed the device, before or after the
    /// write.
    unsure: bool,
    doubtful: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let run = || (0..BLOCKS, prop_oneof![1u64..4, Just(EXTENT_BLOCKS), 1..BLOCKS]);
    let run = move || run().prop_map(|(first, count)| (first, count.min(BLOCKS - first)));
    let clears = prop_oneof![
        Just(Op::Trim),
        Just(Op::WriteZeroes { no_hole: false }),
        Just(Op::WriteZeroes { no_hole: true })
    ];
    let step = prop_oneof![
        6 => (run(), prop::bool::weighted(0.1)).prop_map(|((first, count), fua)| Step::Write { first, count, fua }),
        2 => (run(), clears).prop_map(|((first, count), op)| Step::Clear { first, count, op }),
        2 => any::<bool>().prop_map(|fails| Step::Flush { fails }),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..40)
}

struct Model {
    h: Harness,
    cells: Vec<Cell>,
    value: u8,
}

impl Model {
    fn range(&mut self, first: u64, count: u64) -> impl Iterator<Item = &mut Cell> {
        self.cells[first as usize..(first + count) as usize].iter_mut()
    }

    fn change(&mut self, first: u64, count: u64, value: u8) {
        for cell in self.range(first, count) {
            cell.now = value;
            cell.later.push(value);
            cell.unflushed = value != 0;
            cell.unsure = false;
            cell.doubtful = false;
        }
    }

    fn write(&mut self, first: u64, count: u64, fua: bool) {
        self.value = self.value % 250 + 1;
        let bytes = vec![self.value; count as usize * BLOCK];
        let before = self.h.commands(IoKind::Flush);
        self.h.request(Op::Write, first * BLOCK as u64, &bytes, fua).expect("a write");
        // A commit may have begun that no party waits for.
        self.h.run();
        self.change(first, count, self.value);
        if self.h.commands(IoKind::Flush) > before {
            // The write needed a commit, which flushes everything written before; the parts of this write may
            // have come before or after.
            self.cells.iter_mut().for_each(|cell| (cell.unflushed, cell.unsure) = (false, false));
            self.range(first, count).for_each(|cell| cell.unsure = true);
        }
        if fua {
            for cell in self.range(first, count) {
                cell.later = vec![cell.now];
                (cell.unflushed, cell.unsure) = (false, false);
            }
        }
    }

    fn flush(&mut self, fails: bool) {
        let before = self.h.commands(IoKind::Flush);
        if fails {
            self.h.fail_next(IoKind::Flush, IoError::Os(Errno::EIO));
        }
        let answer = self.h.flush();
        let flushed = self.h.commands(IoKind::Flush) > before;
        self.h.forget_failures();
        let mut lost = false;
        for b in 0..BLOCKS {
            let cell = &self.cells[b as usize];
            let unsure = fails && flushed && cell.unsure;
            let doubtful = unsure && self.h.try_read(b * BLOCK as u64, BLOCK).is_err();
            let cell = &mut self.cells[b as usize];
            if doubtful || (fails && flushed && cell.unflushed) {
                cell.doubtful = true;
                lost = true;
            }
            (cell.unflushed, cell.unsure) = (false, false);
        }
        assert_eq!(answer.err(), lost.then_some(FAILED));
        if !lost {
            self.cells.iter_mut().filter(|c| !c.doubtful).for_each(|c| c.later = vec![c.now]);
        }
    }

    /// Checks every block against the model.
    fn check(&mut self) {
        for b in 0..BLOCKS {
            let (shape, found) = match self.h.try_read(b * BLOCK as u64, BLOCK) {
                Ok(found) => found,
                Err(error) => {
                    assert_eq!(error, RequestError::InDoubt { device: DeviceId(0) });
                    assert!(self.cells[b as usize].doubtful, "block {b} is not in doubt");
                    continue;
                }
            };
            let cell = &self.cells[b as usize];
            assert!(!cell.doubtful, "block {b} is in doubt");
            let found = if shape == ReadShape::Zeros { 0 } else { found[0] };
            assert_eq!(found, cell.now, "block {b}");
        }
    }

    /// Reopens the pool and checks that no flushed data is lost, and that no block has data never written to
    /// it.
    fn reopen(&mut self) {
        self.h.reopen();
        for b in 0..BLOCKS {
            let (shape, found) = self.h.read(b * BLOCK as u64, BLOCK);
            let found = if shape == ReadShape::Zeros { 0 } else { found[0] };
            let cell = &mut self.cells[b as usize];
            assert!(cell.later.contains(&found), "block {b} is {found}, not one of {:?}", cell.later);
            *cell = Cell { now: found, later: vec![found], unflushed: false, unsure: false, doubtful: false };
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exactly_the_lost_blocks_are_in_doubt(steps in steps()) {
        let h = Harness::new(2, "sequential");
        let cell = Cell { now: 0, later: vec![0], unflushed: false, unsure: false, doubtful: false };
        let mut model = Model { h, cells: vec![cell; BLOCKS as usize], value: 0 };
        for step in steps {
            match step {
                Step::Write { first, count, fua } => model.write(first, count, fua),
                Step::Clear { first, count, op } => {
                    let bytes = vec![0; count as usize * BLOCK];
                    let before = model.h.commands(IoKind::Flush);
                    model.h.request(op, first * BLOCK as u64, &bytes, false).expect("a clearing");
                    model.h.run();
                    model.change(first, count, 0);
                    if model.h.commands(IoKind::Flush) > before {
                        model.cells.iter_mut().for_each(|cell| (cell.unflushed, cell.unsure) = (false, false));
                    }
                }
                Step::Flush { fails } => model.flush(fails),
                Step::Reopen => model.reopen(),
            }
            model.check();
        }
        model.reopen();
    }
}
