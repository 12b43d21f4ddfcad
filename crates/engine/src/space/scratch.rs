//! Buffers the engine keeps for itself, so that clients can never leave it without.

use crate::Base;
use crate::ids::PieceId;
use std::collections::VecDeque;
use weir_model::{BLOCK, BlockRange, Buffer, Bytes, Memory, Mutant};

/// Blocks for read-modify-write and probes.
const BLOCKS: usize = 64;
/// A journal frame, or pages of a checkpoint.
const LARGE: Bytes = Bytes(weir_map::journal::FRAME_MAX as u64);

/// Zeros to write.
const ZEROS: Bytes = Bytes::kib(64);
/// What the mover reads and writes at once.
const RUN: Bytes = Bytes::kib(64);
/// So many moves can be under way, besides those of single blocks that clients' reads bring.
const RUNS: usize = 3;

/// The engine's own buffers.
#[derive(Debug)]
pub(crate) struct Scratch {
    blocks: Vec<Buffer>,
    /// Blocks that are out.
    out: usize,
    /// Blocks kept back for a device that does not answer.
    missing: usize,
    /// For journal frames and for checkpoint pages, per metadata member.
    large: Vec<[Buffer; 2]>,
    /// Zeros; only ever read.
    zeros: Buffer,
    /// For the mover.
    runs: Vec<Buffer>,
    /// Of those, kept back for a device that does not answer.
    missing_runs: usize,
    /// Pieces that wait for a block.
    waiting: VecDeque<PieceId>,
}

impl Scratch {
    /// Takes them for so many metadata members; `None`, taking nothing, if there is too little memory.
    pub(crate) fn take<M: Memory>(members: usize, memory: &mut M) -> Option<Self> {
        let mut taken = Vec::new();
        let large = (0..2 * members).map(|_| LARGE);
        let sizes = large.chain([ZEROS]).chain([RUN; RUNS]).chain([Bytes(BLOCK); BLOCKS]);
        for len in sizes {
            match memory.take(len) {
                Some(buffer) => taken.push(buffer),
                None => {
                    taken.into_iter().for_each(|b| memory.give(b));
                    return None;
                }
            }
        }
        let blocks = taken.split_off(2 * members + 1 + RUNS);
        let runs = taken.split_off(2 * members + 1);
        let zeros = taken.pop()?;
        memory.bytes_mut(zeros).fill(0);
        let (large, _) = taken.as_chunks::<2>();
        let large = large.to_vec();
        let (out, missing, missing_runs, waiting) = (0, 0, 0, VecDeque::new());
        Some(Self { blocks, out, missing, large, zeros, runs, missing_runs, waiting })
    }

    /// Gives everything back.
    pub(crate) fn give<M: Memory>(self, memory: &mut M) {
        let large = self.large.into_iter().flatten();
        let all = large.chain([self.zeros]).chain(self.runs).chain(self.blocks);
        all.for_each(|b| memory.give(b));
    }

    /// The buffers for frames and for checkpoint pages of the `n`-th metadata member.
    pub(crate) fn large(&self, n: usize) -> [Buffer; 2] {
        self.large[n]
    }

    /// `count` blocks, all or none.
    pub(crate) fn blocks(&mut self, count: usize) -> Option<[Option<Buffer>; 2]> {
        debug_assert!(count <= 2);
        if self.blocks.len() < count {
            return None;
        }
        self.out += count;
        let mut next = |i| if i < count { self.blocks.pop() } else { None };
        Some([next(0), next(1)])
    }

    /// Whether there is a buffer for a move of these blocks. One of a single block that a client's read
    /// brings, and that keeps its buffer as long as that takes, has one of the blocks, as long as most of
    /// them are left.
    pub(crate) fn has_for_move(&self, blocks: BlockRange, piggybacked: bool) -> bool {
        !self.runs.is_empty() || self.spares_block(blocks, piggybacked)
    }

    /// Takes a buffer for a move of these blocks, if there is one.
    pub(crate) fn for_move(&mut self, blocks: BlockRange, piggybacked: bool) -> Option<Buffer> {
        if self.spares_block(blocks, piggybacked) { self.blocks(1)?[0] } else { self.runs.pop() }
    }

    fn spares_block(&self, blocks: BlockRange, piggybacked: bool) -> bool {
        piggybacked && blocks.count == 1 && self.blocks.len() > BLOCKS / 2
    }

    /// Zeros to be written: only ever read.
    pub(crate) fn zeros(&self) -> Buffer {
        self.zeros
    }

    /// Whether there is a buffer of the mover's.
    pub(crate) fn has_run(&self) -> bool {
        !self.runs.is_empty()
    }

    /// A buffer of the mover's, as long as another one is left.
    pub(crate) fn take_spare_run(&mut self) -> Option<Buffer> {
        if self.runs.len() > 1 { self.runs.pop() } else { None }
    }

    /// A buffer of the mover's comes back.
    pub(crate) fn put_back_run(&mut self, run: Buffer) {
        self.runs.push(run);
    }

    /// The piece waits for a block.
    pub(crate) fn wait(&mut self, id: PieceId) {
        self.waiting.push_back(id);
    }

    /// The piece that has waited longest, which goes on.
    pub(crate) fn next_waiting(&mut self) -> Option<PieceId> {
        self.waiting.pop_front()
    }

    /// Whether there is a block.
    pub(crate) fn has_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Blocks that are to be replaced.
    pub(crate) fn missing(&self) -> usize {
        self.missing
    }

    /// A block that was out does not come back.
    pub(crate) fn miss(&mut self) {
        self.out -= 1;
        self.missing += 1;
    }

    /// A new block for one that is missing.
    pub(crate) fn add(&mut self, block: Buffer) {
        self.missing -= 1;
        self.blocks.push(block);
    }

    /// A buffer of the mover's does not come back.
    pub(crate) fn miss_run(&mut self) {
        self.missing_runs += 1;
    }

    /// Takes buffers for the mover's that are missing, as far as there is memory.
    pub(crate) fn replace_runs<M: Memory>(&mut self, memory: &mut M) {
        while self.missing_runs > 0
            && let Some(buffer) = memory.take(RUN)
        {
            self.missing_runs -= 1;
            self.runs.push(buffer);
        }
    }

    /// A block comes back.
    pub(crate) fn put_back(&mut self, block: Buffer) {
        self.out -= 1;
        self.blocks.push(block);
    }
}

impl Base {
    /// A buffer of the mover's is no longer needed; it is kept back if an abandoned command may still use it.
    pub(crate) fn put_back_run(&mut self, run: Buffer) {
        if self.core.abandoned.uses(run) && !self.core.is_planted(Mutant::AbandonedBufferReused) {
            self.core.abandoned.keep(run);
            self.space.scratch.miss_run();
        } else {
            self.space.scratch.put_back_run(run);
        }
    }

    /// There is a scratch block again: a piece that waits for one goes on.
    pub(crate) fn go_on_with_scratch(&mut self) {
        if let Some(id) = self.space.scratch.next_waiting() {
            self.requests.go_on(id);
        }
    }

    /// A scratch block is no longer needed; it is kept back if an abandoned command may still use it.
    pub(crate) fn put_back_block(&mut self, block: Buffer) {
        if self.core.abandoned.uses(block) && !self.core.is_planted(Mutant::AbandonedBufferReused) {
            self.core.abandoned.keep(block);
            self.space.scratch.miss();
        } else {
            self.space.scratch.put_back(block);
            self.go_on_with_scratch();
        }
    }
}
