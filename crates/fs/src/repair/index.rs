//! Finds the chunks of inodes, which the inode map names and the chunk table knows.

use super::{Outcome, Refusal};
use crate::error::Result;
use crate::layout::chunk::{Entry, Use};
use crate::layout::{BITMAP_SLOTS, Chunk, Geometry};
use crate::namespace::FileSystem;
use crate::nvm::Memory;
use std::collections::BTreeMap;

/// Makes the inode map and the number of chunks of inodes right.
///
/// # Errors
/// Refuses if a chunk cannot be found, or if several could be meant.
pub(super) fn repair<M: Memory>(fs: &mut FileSystem<M>, outcome: &mut Outcome) -> Result<(), Refusal> {
    let geometry = fs.superblock().geometry;
    let found = find(fs, &geometry)?;
    for (index, chunk) in (0..).zip(&found) {
        if fs.inode_map(index) != *chunk {
            let at = geometry.inode_map_at() + u64::from(index) * 4;
            fs.parts().0.stage(at, &chunk.0.to_le_bytes());
            outcome.repaired(format!("inode map: chunk {} found again by the chunk table", chunk.0));
        }
    }
    let mut roots = fs.roots();
    if roots.inode_chunks != found.len() as u32 {
        let before = roots.inode_chunks;
        outcome.repaired(format!("number of chunks of inodes: {} instead of {before}", found.len()));
        roots.inode_chunks = found.len() as u32;
        fs.set_roots(&roots);
    }
    Ok(fs.reload_tables()?)
}

fn find<M: Memory>(fs: &FileSystem<M>, geometry: &Geometry) -> Result<Vec<Chunk>, Refusal> {
    let mut by_table: BTreeMap<u64, Vec<Chunk>> = BTreeMap::new();
    for chunk in (geometry.system_chunks()..geometry.chunks()).map(Chunk) {
        if let Ok(Entry { usage: Use::Inodes, owner, .. }) = fs.space().entry(fs.store(), chunk)
            && owner < u64::from(geometry.chunks())
        {
            by_table.entry(owner).or_default().push(chunk);
        }
    }
    let by_map = |index: u64| {
        let chunk = fs.inode_map(index as u32);
        geometry.is_for_files(chunk).then_some(chunk)
    };
    let table = |index: u64| by_table.get(&index).map_or(&[][..], Vec::as_slice);
    let is_agreed = |index: &u64| by_map(*index).is_some_and(|chunk| table(*index).contains(&chunk));
    let agreed = by_table.keys().copied().filter(is_agreed).max().map_or(0, |index| index + 1);
    let told = u64::from(fs.roots().inode_chunks.min(geometry.chunks()));
    // The number is believed as far as the map or the table has anything for it.
    let is_known = |index: &u64| by_map(*index).is_some() || !table(*index).is_empty();
    let count = agreed.max((0..told).filter(is_known).max().map_or(0, |index| index + 1));
    let found: Vec<_> = (0..count).map(|index| one(index, by_map(index), table(index), fs)).collect();
    let found = found.into_iter().collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() {
        return Err(Refusal::Ambiguous("all inodes are lost: nothing names their chunks".to_owned()));
    }
    Ok(found)
}

/// Returns the chunk of inodes with this index, if it is certain.
fn one<M: Memory>(
    index: u64,
    by_map: Option<Chunk>,
    by_table: &[Chunk],
    fs: &FileSystem<M>,
) -> Result<Chunk, Refusal> {
    let slots = fs.superblock().geometry.chunk_inodes() - BITMAP_SLOTS;
    let inodes = format!("inodes {} to {}", index * slots + 1, (index + 1) * slots);
    match (by_map, by_table) {
        (Some(chunk), table) if table.is_empty() || table.contains(&chunk) => Ok(chunk),
        // Bits of slots that do not exist are set, so a chunk of other contents would show.
        (None, [chunk]) => Ok(*chunk),
        (Some(other), [chunk]) if has_bitmap(fs, *chunk) && !has_bitmap(fs, other) => Ok(*chunk),
        (None, []) => Err(Refusal::Ambiguous(format!("{inodes} are lost: nothing names their chunk"))),
        _ => Err(Refusal::Ambiguous(format!("{inodes} may be in several chunks, and nothing tells which"))),
    }
}

fn has_bitmap<M: Memory>(fs: &FileSystem<M>, chunk: Chunk) -> bool {
    fs.wrong_bitmap_bits(chunk).next().is_none()
}
