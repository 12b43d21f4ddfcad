//! Buffers reserved for the engine, so that clients cannot exhaust them.

use crate::Base;
use crate::ids::PieceId;
use std::collections::VecDeque;
use weir_model::{BLOCK, BlockRange, Buffer, Bytes, Memory, Mutant};

/// The number of blocks for read-modify-write and probes.
const BLOCKS: usize = 64;
/// The size of a buffer for a journal frame or checkpoint pages.
const LARGE_SIZE: Bytes = Bytes(weir_map::journal::FRAME_MAX as u64);

/// The size of the buffer of zeros.
const ZEROS_SIZE: Bytes = Bytes::kib(64);
/// The size of the mover's reads and writes.
const RUN_SIZE: Bytes = Bytes::kib(64);
/// The number of moves that can be in flight, besides single-block moves piggybacked on clients' reads.
const RUNS: usize = 3;

/// The engine's own buffers.
#[derive(Debug)]
pub(crate) struct Scratch {
    blocks: Vec<Buffer>,
    /// The number of blocks in use.
    blocks_in_use: usize,
    /// The number of blocks kept for an unresponsive device.
    missing_blocks: usize,
    /// Buffers for journal frames and for checkpoint pages, per metadata member.
    large: Vec<[Buffer; 2]>,
    /// Zeros; never written.
    zeros: Buffer,
    /// Buffers of the mover.
    runs: Vec<Buffer>,
    /// The number of the mover's buffers kept for an unresponsive device.
    missing_runs: usize,
    /// Pieces that wait for a block.
    waiting: VecDeque<PieceId>,
}

impl Scratch {
    /// Takes the buffers for this many metadata members. Returns `None`, taking nothing, if memory is
    /// insufficient.
    pub(crate) fn take<M: Memory>(members: usize, memory: &mut M) -> Option<Self> {
        let mut taken = Vec::new();
        let large = (0..2 * members).map(|_| LARGE_SIZE);
        let sizes = large.chain([ZEROS_SIZE]).chain([RUN_SIZE; RUNS]).chain([Bytes(BLOCK); BLOCKS]);
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
        Some(Self {
            blocks,
            blocks_in_use: out,
            missing_blocks: missing,
            large,
            zeros,
            runs,
            missing_runs,
            waiting,
        })
    }

    /// Returns all buffers to the memory.
    pub(crate) fn give<M: Memory>(self, memory: &mut M) {
        let large = self.large.into_iter().flatten();
        let all = large.chain([self.zeros]).chain(self.runs).chain(self.blocks);
        all.for_each(|b| memory.give(b));
    }

    /// Returns the buffers for frames and for checkpoint pages of the `n`-th metadata member.
    pub(crate) fn large(&self, n: usize) -> [Buffer; 2] {
        self.large[n]
    }

    /// Takes `count` blocks, all or none.
    pub(crate) fn take_blocks(&mut self, count: usize) -> Option<[Option<Buffer>; 2]> {
        debug_assert!(count <= 2);
        if self.blocks.len() < count {
            return None;
        }
        self.blocks_in_use += count;
        let mut next = |i| if i < count { self.blocks.pop() } else { None };
        Some([next(0), next(1)])
    }

    /// Whether a buffer is available for a move of these blocks. A single-block move piggybacked on a
    /// client's read occupies its buffer as long as the read takes; it uses a block, while more than half of
    /// them are left.
    pub(crate) fn has_move_buffer(&self, blocks: BlockRange, piggybacked: bool) -> bool {
        !self.runs.is_empty() || self.uses_spare_block(blocks, piggybacked)
    }

    /// Takes a buffer for a move of these blocks, if one is available.
    pub(crate) fn take_move_buffer(&mut self, blocks: BlockRange, piggybacked: bool) -> Option<Buffer> {
        if self.uses_spare_block(blocks, piggybacked) { self.take_blocks(1)?[0] } else { self.runs.pop() }
    }

    fn uses_spare_block(&self, blocks: BlockRange, piggybacked: bool) -> bool {
        piggybacked && blocks.count == 1 && self.blocks.len() > BLOCKS / 2
    }

    /// Returns the buffer of zeros; it must not be written.
    pub(crate) fn zeros(&self) -> Buffer {
        self.zeros
    }

    /// Whether one of the mover's buffers is available.
    pub(crate) fn has_run(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Takes one of the mover's buffers, if another one is left.
    pub(crate) fn take_spare_run(&mut self) -> Option<Buffer> {
        if self.runs.len() > 1 { self.runs.pop() } else { None }
    }

    /// Returns one of the mover's buffers.
    pub(crate) fn put_back_run(&mut self, run: Buffer) {
        self.runs.push(run);
    }

    /// Makes the piece wait for a block.
    pub(crate) fn wait(&mut self, id: PieceId) {
        self.waiting.push_back(id);
    }

    /// Takes the piece that has waited longest.
    pub(crate) fn next_waiting(&mut self) -> Option<PieceId> {
        self.waiting.pop_front()
    }

    /// Whether a block is available.
    pub(crate) fn has_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Returns the number of blocks to replace.
    pub(crate) fn missing_blocks(&self) -> usize {
        self.missing_blocks
    }

    /// Notes that a block in use does not come back.
    pub(crate) fn note_missing_block(&mut self) {
        self.blocks_in_use -= 1;
        self.missing_blocks += 1;
    }

    /// Adds a new block in place of a missing one.
    pub(crate) fn add(&mut self, block: Buffer) {
        self.missing_blocks -= 1;
        self.blocks.push(block);
    }

    /// Notes that one of the mover's buffers does not come back.
    pub(crate) fn note_missing_run(&mut self) {
        self.missing_runs += 1;
    }

    /// Replaces missing buffers of the mover, as far as memory permits.
    pub(crate) fn replace_runs<M: Memory>(&mut self, memory: &mut M) {
        while self.missing_runs > 0
            && let Some(buffer) = memory.take(RUN_SIZE)
        {
            self.missing_runs -= 1;
            self.runs.push(buffer);
        }
    }

    /// Returns a block.
    pub(crate) fn put_back(&mut self, block: Buffer) {
        self.blocks_in_use -= 1;
        self.blocks.push(block);
    }
}

impl Base {
    /// Returns one of the mover's buffers, or keeps it if an abandoned command may still use it.
    pub(crate) fn put_back_run(&mut self, run: Buffer) {
        if self.core.abandoned.uses(run) && !self.core.is_planted(Mutant::AbandonedBufferReused) {
            self.core.abandoned.defer_release(run);
            self.space.scratch.note_missing_run();
        } else {
            self.space.scratch.put_back_run(run);
        }
    }

    /// Continues a piece that waits for a scratch block, now that one is available.
    pub(crate) fn resume_scratch_waiter(&mut self) {
        if let Some(id) = self.space.scratch.next_waiting() {
            self.requests.make_ready(id);
        }
    }

    /// Returns a scratch block, or keeps it if an abandoned command may still use it.
    pub(crate) fn put_back_block(&mut self, block: Buffer) {
        if self.core.abandoned.uses(block) && !self.core.is_planted(Mutant::AbandonedBufferReused) {
            self.core.abandoned.defer_release(block);
            self.space.scratch.note_missing_block();
        } else {
            self.space.scratch.put_back(block);
            self.resume_scratch_waiter();
        }
    }
}
