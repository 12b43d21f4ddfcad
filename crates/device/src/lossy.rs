//! A fault layer that loses unflushed writes when the process dies.
//!
//! The writes of a killed process survive in the page cache, so killing a server does not test its flushes.
//! With this layer it does: writes stay in this process's memory until a flush writes them to the file. The
//! layer uses the freedom that the device contract leaves: optionally some unflushed sectors reach the file
//! early, in no particular order, and an interrupted flush leaves any subset of them written.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use weir_model::{BLOCK, Bytes, DeviceOffset, IoError, SECTOR};

use crate::store::io_error;

/// Options of the layer.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossyOptions {
    /// How many of every thousand unflushed sectors reach the file before they are flushed.
    pub early_permille: u16,
    /// Random seed that selects these sectors and the order in which a flush writes.
    pub seed: u64,
}

/// Maximum number of blocks in memory; beyond it every write reaches the file at once, as with a full cache.
const BLOCKS_MAX: usize = (256 << 20) / BLOCK as usize;
const SECTORS: u64 = BLOCK / SECTOR;

/// Writes that have not been flushed.
#[derive(Debug)]
pub(crate) struct LossyLayer {
    /// Blocks by number.
    unflushed: BTreeMap<u64, UnflushedBlock>,
    random: SmallRng,
    early_permille: u16,
}

/// A block with unflushed sectors.
#[derive(Debug)]
struct UnflushedBlock {
    /// Bit `i` is set if sector `i` is unflushed.
    sectors: u8,
    bytes: Box<[u8; BLOCK as usize]>,
}

impl LossyLayer {
    pub(crate) fn new(path: &Path, options: &LossyOptions) -> Self {
        tracing::warn!(
            device = %path.display(), seed = options.seed, early_permille = options.early_permille,
            "this device forgets whatever was not flushed when the process dies"
        );
        Self {
            unflushed: BTreeMap::new(),
            random: SmallRng::seed_from_u64(options.seed),
            early_permille: options.early_permille,
        }
    }

    /// Overlays the unflushed sectors on bytes read from the file.
    pub(crate) fn overlay(&self, at: DeviceOffset, bytes: &mut [u8]) {
        for (sector, piece) in sectors(at).zip(bytes.chunks_mut(SECTOR as usize)) {
            if let Some(held) = self.unflushed.get(&(sector / SECTORS))
                && held.has(sector)
            {
                piece.copy_from_slice(held.sector(sector));
            }
        }
    }

    /// Keeps a write in memory.
    pub(crate) fn buffer_write(
        &mut self,
        file: &File,
        at: DeviceOffset,
        bytes: &[u8],
    ) -> Result<(), IoError> {
        if self.unflushed.len() >= BLOCKS_MAX {
            self.drop_range(at, Bytes(bytes.len() as u64));
            return file.write_all_at(bytes, at.0).map_err(io_error);
        }
        for (sector, piece) in sectors(at).zip(bytes.chunks(SECTOR as usize)) {
            let held = self.unflushed.entry(sector / SECTORS).or_insert_with(UnflushedBlock::empty);
            held.put(sector, piece);
            if self.random.random_range(0..1000) < self.early_permille {
                file.write_all_at(held.sector(sector), sector * SECTOR).map_err(io_error)?;
            }
        }
        Ok(())
    }

    /// Drops the unflushed sectors of a range that is being written through.
    pub(crate) fn drop_range(&mut self, at: DeviceOffset, len: Bytes) {
        for sector in sectors(at).take((len.0 / SECTOR) as usize) {
            if let Some(held) = self.unflushed.get_mut(&(sector / SECTORS)) {
                held.sectors &= !bit(sector);
            }
        }
    }

    /// Writes all unflushed sectors to the file, block by block in random order.
    pub(crate) fn write_out(&mut self, file: &File) -> Result<(), IoError> {
        let mut blocks: Vec<u64> = self.unflushed.keys().copied().collect();
        blocks.shuffle(&mut self.random);
        for block in blocks {
            let held = &self.unflushed[&block];
            if held.sectors == u8::MAX {
                file.write_all_at(&held.bytes[..], block * BLOCK).map_err(io_error)?;
            } else {
                for sector in (block * SECTORS..(block + 1) * SECTORS).filter(|&s| held.has(s)) {
                    file.write_all_at(held.sector(sector), sector * SECTOR).map_err(io_error)?;
                }
            }
        }
        self.unflushed.clear();
        Ok(())
    }
}

impl UnflushedBlock {
    fn empty() -> Self {
        Self { sectors: 0, bytes: Box::new([0; BLOCK as usize]) }
    }
    fn has(&self, sector: u64) -> bool {
        self.sectors & bit(sector) != 0
    }
    fn sector(&self, sector: u64) -> &[u8] {
        &self.bytes[byte_range(sector)]
    }
    fn put(&mut self, sector: u64, bytes: &[u8]) {
        self.sectors |= bit(sector);
        self.bytes[byte_range(sector)].copy_from_slice(bytes);
    }
}

/// Returns a sector's range in its block's bytes.
fn byte_range(sector: u64) -> std::ops::Range<usize> {
    let start = (sector % SECTORS * SECTOR) as usize;
    start..start + SECTOR as usize
}

/// Returns a sector's bit in its block's mask.
fn bit(sector: u64) -> u8 {
    1 << (sector % SECTORS)
}

/// Returns the sector numbers from an address on.
fn sectors(at: DeviceOffset) -> impl Iterator<Item = u64> {
    at.0 / SECTOR..
}
