//! Writes what was settled: first inodes and lists, and tables in which nothing is free that may be needed;
//! at the end tables that are exact.

use super::survey::{Directory, Survey};
use super::{Outcome, file, files};
use crate::check::examine;
use crate::error::{Error, Result};
use crate::layout::chunk::{BIT_WORDS, Entry, Purpose, Use};
use crate::layout::dirent::{self, KIND_AT};
use crate::layout::inode::{Form, Inode};
use crate::layout::{BITMAP_SLOTS, Chunk, Ino, Page, Time};
use crate::namespace::FileSystem;
use crate::nvm::Memory;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Stages inodes, lists, edits of directories, and tables whose free space is free beyond doubt.
pub(super) fn reserve<M: Memory>(
    fs: &mut FileSystem<M>,
    survey: &Survey,
    outcome: &mut Outcome,
) -> Result<()> {
    let free = bitmaps(fs, survey, outcome)?;
    lists(fs, survey, outcome);
    for ino in &survey.erased {
        let at = fs.inode_at(*ino)?;
        let (old, _) = Inode::decode_lenient(&fs.store().bytes(at));
        let free = Inode { links: 0, ..Inode::new(0, 0, 0, Time::default(), old.generation) };
        fs.set_inode(*ino, &free);
        fs.commit_if_large()?;
    }
    let mut previous = None;
    for (at, ino) in survey.orphans.iter().enumerate() {
        let Some(found) = survey.found.get(ino) else { continue };
        let next = survey.orphans.get(at + 1).copied();
        fs.set_inode(*ino, &Inode { previous, next, ..found.inode });
        previous = Some(*ino);
        fs.commit_if_large()?;
    }
    let orphans: FxHashSet<_> = survey.orphans.iter().collect();
    for (ino, found) in survey.found.iter().filter(|(ino, _)| !orphans.contains(ino)) {
        fs.set_inode(*ino, &found.inode);
        fs.commit_if_large()?;
    }
    for directory in survey.directories.values().filter(|directory| !directory.rewrite) {
        edit(fs, survey, directory, outcome)?;
    }
    entries(fs, survey, &free, outcome)
}

/// Stages the bitmaps of inodes; returns how many are free in each chunk of inodes.
fn bitmaps<M: Memory>(
    fs: &mut FileSystem<M>,
    survey: &Survey,
    outcome: &mut Outcome,
) -> Result<FxHashMap<Chunk, (u64, u32)>> {
    let geometry = fs.superblock().geometry;
    let chunks: Vec<_> = fs.inode_chunks().collect();
    let mut counts = FxHashMap::default();
    for (index, chunk) in (0..).zip(chunks) {
        let mut bitmap = fs.inode_bitmap(chunk);
        bitmap.fill(0xff);
        let mut free = 0;
        for slot in BITMAP_SLOTS..geometry.chunk_inodes() {
            if !survey.found.contains_key(&geometry.ino_of(index, slot)) {
                bitmap[slot as usize / 8] &= !(1 << (slot % 8));
                free += 1;
            }
        }
        if bitmap != fs.inode_bitmap(chunk) {
            outcome.repaired(format!("chunk {}: which of its inodes are free", chunk.0));
            fs.parts().0.stage(geometry.chunk_at(chunk), &bitmap);
        }
        counts.insert(chunk, (index, free));
        fs.commit_if_large()?;
    }
    Ok(counts)
}

fn lists<M: Memory>(fs: &mut FileSystem<M>, survey: &Survey, outcome: &mut Outcome) {
    let mut roots = fs.roots();
    roots.orphans = survey.orphans.first().copied();
    if survey.null_files.is_empty() {
        (roots.null_files, roots.null_count, roots.null_pages) = (None, 0, 0);
    }
    if roots != fs.roots() {
        outcome.repaired("the lists of removed files and of null files".to_owned());
        fs.set_roots(&roots);
    }
}

/// Removes names that are not kept, and corrects types, where the names are.
fn edit<M: Memory>(
    fs: &mut FileSystem<M>,
    survey: &Survey,
    directory: &Directory,
    outcome: &mut Outcome,
) -> Result<()> {
    for name in &directory.names {
        let kind = survey.found.get(&name.ino).and_then(|found| found.inode.kind());
        if !name.is_kept {
            let mut page = fs.store().bytes(name.page.address());
            dirent::remove(&mut page, name.at);
            fs.parts().0.stage(name.page.address(), &page);
        } else if let Some(kind) = kind.filter(|kind| name.kind != Some(*kind)) {
            let at = name.page.address() + (name.at + KIND_AT) as u64;
            let text = String::from_utf8_lossy(&name.name);
            outcome.repaired(format!("{}: the type that its name {text:?} has", file(name.ino)));
            fs.parts().0.stage(at, &[kind.code()]);
        }
        fs.commit_if_large()?;
    }
    Ok(())
}

/// Stages the chunk table: what anybody has or had is taken.
fn entries<M: Memory>(
    fs: &mut FileSystem<M>,
    survey: &Survey,
    free: &FxHashMap<Chunk, (u64, u32)>,
    outcome: &mut Outcome,
) -> Result<()> {
    let geometry = fs.superblock().geometry;
    let mut claims = files::claims(survey);
    for page in survey.directories.values().flat_map(|directory| &directory.overflow) {
        claims.add(*page, 1);
    }
    let mut data = BTreeMap::new();
    for (ino, found) in &survey.found {
        data.extend(found.chunks.iter().map(|(index, mapped)| (mapped.chunk, (*ino, *index))));
    }
    for chunk in (0..geometry.chunks()).map(Chunk) {
        let old = fs.space().entry(fs.store(), chunk).ok();
        let wear = fs.store().load_u32(geometry.entry_at(chunk) + 4);
        let plain = Entry { usage: Use::System, wear, owner: 0, index: 0, free_inodes: 0 };
        let first = geometry.first_page(chunk).0;
        let claimed = (0..geometry.chunk_pages()).filter(|at| claims.is_claimed(Page(first + at)));
        let claimed: Vec<_> = claimed.collect();
        let entry = match (free.get(&chunk), data.get(&chunk)) {
            _ if chunk.0 < geometry.system_chunks() => plain,
            (Some((index, free)), _) => {
                Entry { usage: Use::Inodes, owner: *index, free_inodes: *free, ..plain }
            }
            (None, Some((ino, index))) => Entry { usage: Use::Data, owner: ino.0, index: *index, ..plain },
            (None, None) if !claimed.is_empty() => {
                let owner = old.and_then(|old| old.purpose()).map_or(0, Purpose::owner);
                Entry { usage: Use::Pages, owner, ..plain }
            }
            (None, None) => continue,
        };
        if entry.usage == Use::Pages {
            let mut bits = match old {
                Some(Entry { usage: Use::Pages, .. }) => fs.space().bits(fs.store(), chunk),
                _ => [0; BIT_WORDS],
            };
            let before = bits;
            claimed.iter().for_each(|at| bits[*at as usize / 64] |= 1 << (at % 64));
            if bits != before && old == Some(entry) {
                outcome.repaired(format!("chunk {}: which of its pages are free", chunk.0));
            }
            let (store, space) = fs.parts();
            space.set_bits(store, chunk, &bits);
        }
        if old != Some(entry) {
            outcome.repaired(format!("chunk {}: its entry of the chunk table", chunk.0));
        }
        let (store, space) = fs.parts();
        space.set_entry(store, chunk, &entry);
        fs.commit_if_large()?;
    }
    Ok(())
}

/// Makes numbers of pages and the chunk table exact, by what the files have now.
pub(super) fn settle<M: Memory>(fs: &mut FileSystem<M>, outcome: &mut Outcome) -> Result<()> {
    let examined = examine(fs);
    for (ino, pages) in &examined.wrong_pages {
        let at = fs.inode_at(*ino)?;
        let inode = Inode::decode(&fs.store().bytes(at)).ok_or(Error::NotFound)?;
        if inode.pages != 0 {
            outcome.repaired(format!("{}: {pages} pages instead of {}", file(*ino), inode.pages));
        }
        fs.set_inode(*ino, &Inode { pages: *pages, ..inode });
        fs.commit_if_large()?;
    }
    null_pages(fs)?;
    let geometry = fs.superblock().geometry;
    for chunk in (0..geometry.chunks()).map(Chunk) {
        let (store, space) = fs.parts();
        let wear = store.load_u32(geometry.entry_at(chunk) + 4);
        let old = space.entry(store, chunk).ok();
        let unknown = Entry { usage: Use::Free, wear, owner: 0, index: 0, free_inodes: 0 };
        let (entry, bits) = examined.claims.exact(chunk, &old.unwrap_or(unknown));
        if old != Some(entry) {
            outcome.repaired(format!("chunk {}: its entry of the chunk table", chunk.0));
        } else if entry.usage == Use::Pages && space.bits(store, chunk) != bits {
            outcome.repaired(format!("chunk {}: which of its pages are free", chunk.0));
        }
        space.set_entry(store, chunk, &entry);
        if entry.usage == Use::Pages {
            space.set_bits(store, chunk, &bits);
        }
        fs.commit_if_large()?;
    }
    Ok(())
}

/// Counts the pages of null files again.
fn null_pages<M: Memory>(fs: &mut FileSystem<M>) -> Result<()> {
    let mut roots = fs.roots();
    let (mut next, mut pages): (Option<Ino>, u64) = (roots.null_files, 0);
    while let Some(ino) = next {
        let inode = fs.raw_inode(ino)?;
        pages += match inode.form {
            Form::Run { pages, .. } => u64::from(pages),
            _ => 0,
        };
        next = inode.next;
    }
    roots.null_pages = pages;
    fs.set_roots(&roots);
    Ok(())
}
