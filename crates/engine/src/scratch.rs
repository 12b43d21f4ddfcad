//! Buffers the engine keeps for itself, so that clients can never leave it without.

use weir_model::{BLOCK, Buffer, Bytes, Memory};

/// Blocks for read-modify-write and probes.
const BLOCKS: usize = 64;
/// A journal frame, or pages of a checkpoint.
const LARGE: Bytes = Bytes(weir_map::journal::FRAME_MAX as u64);

/// Zeros to write.
const ZEROS: Bytes = Bytes::kib(64);

/// The engine's own buffers.
#[derive(Debug)]
pub(crate) struct Scratch {
    blocks: Vec<Buffer>,
    /// Blocks that are out.
    out: usize,
    /// For the journal frame under way.
    pub(crate) frame: Buffer,
    /// For the checkpoint pages under way.
    pub(crate) pages: Buffer,
    /// Zeros; only ever read.
    pub(crate) zeros: Buffer,
}

impl Scratch {
    /// Takes them; `None`, taking nothing, if there is too little memory.
    pub(crate) fn take<M: Memory>(memory: &mut M) -> Option<Self> {
        let mut taken = Vec::new();
        let sizes = [LARGE, LARGE, ZEROS].into_iter().chain((0..BLOCKS).map(|_| Bytes(BLOCK)));
        for len in sizes {
            match memory.take(len) {
                Some(buffer) => taken.push(buffer),
                None => {
                    taken.into_iter().for_each(|b| memory.give(b));
                    return None;
                }
            }
        }
        let [frame, pages, zeros] = [taken[0], taken[1], taken[2]];
        memory.bytes_mut(zeros).fill(0);
        Some(Self { blocks: taken.split_off(3), out: 0, frame, pages, zeros })
    }

    /// Gives everything back.
    pub(crate) fn give<M: Memory>(self, memory: &mut M) {
        [self.frame, self.pages, self.zeros].into_iter().chain(self.blocks).for_each(|b| memory.give(b));
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

    /// A block comes back.
    pub(crate) fn put_back(&mut self, block: Buffer) {
        self.out -= 1;
        self.blocks.push(block);
    }
}
