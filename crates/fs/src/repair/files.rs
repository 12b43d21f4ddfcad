//! Settles which space each file has.

use super::survey::{Found, Survey, read_tree};
use super::{Outcome, Refusal, file};
use crate::layout::chunk::{Entry, Use};
use crate::layout::inode::{ATTRIBUTE_BYTES_MAX, Form, Kind};
use crate::layout::quota;
use crate::layout::{Chunk, Geometry, Ino, PAGE_BYTES, Page};
use crate::namespace::tree::Mapped;
use crate::namespace::{FileSystem, decode_attributes};
use crate::nvm::Memory;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Space that is claimed, page by page.
#[derive(Debug, Default)]
pub(super) struct Claims {
    pages: FxHashMap<Page, u32>,
}

impl Claims {
    pub(super) fn add(&mut self, first: Page, pages: u32) {
        for page in first.0..first.0 + u64::from(pages) {
            *self.pages.entry(Page(page)).or_default() += 1;
        }
    }

    pub(super) fn is_claimed(&self, page: Page) -> bool {
        self.pages.contains_key(&page)
    }

    fn is_shared(&self, first: Page, pages: u32) -> bool {
        let mut pages = (first.0..first.0 + u64::from(pages)).map(Page);
        pages.any(|page| self.pages.get(&page).is_some_and(|&count| count > 1))
    }
}

/// What the chunk table says about the chunks of files.
struct Owners {
    /// For each file, its chunks by index.
    chunks: BTreeMap<Ino, BTreeMap<u64, Chunk>>,
    /// For each chunk of a file, the file and the index.
    owner: FxHashMap<Chunk, (Ino, u64)>,
    pages: FxHashSet<Chunk>,
}

impl Owners {
    fn read<M: Memory>(fs: &FileSystem<M>, inodes: &FxHashSet<Chunk>) -> Self {
        let geometry = fs.superblock().geometry;
        let mut owners =
            Self { chunks: BTreeMap::new(), owner: FxHashMap::default(), pages: FxHashSet::default() };
        for chunk in (geometry.system_chunks()..geometry.chunks()).map(Chunk) {
            match fs.space().entry(fs.store(), chunk) {
                _ if inodes.contains(&chunk) => {}
                Ok(Entry { usage: Use::Data, owner, index, .. }) => {
                    owners.owner.insert(chunk, (Ino(owner), index));
                    owners.chunks.entry(Ino(owner)).or_default().insert(index, chunk);
                }
                Ok(Entry { usage: Use::Pages, .. }) => {
                    owners.pages.insert(chunk);
                }
                _ => {}
            }
        }
        owners
    }
}

/// Settles runs, trees and attributes of all inodes.
///
/// # Errors
/// Refuses if two files claim a chunk and nothing tells whose it is.
pub(super) fn settle<M: Memory>(
    fs: &FileSystem<M>,
    survey: &mut Survey,
    outcome: &mut Outcome,
) -> Result<(), Refusal> {
    let geometry = fs.superblock().geometry;
    let mut taken: FxHashSet<Chunk> = fs.inode_chunks().collect();
    let owners = Owners::read(fs, &taken);
    let mut containers = FxHashSet::default();
    for (ino, found) in &mut survey.found {
        sound_form(&geometry, &owners, *ino, found, outcome);
        read_tree(fs, found);
        if let Form::Container(container) = found.inode.form
            && !containers.insert(container)
        {
            loses_contents(*ino, found, "another file has its container", outcome);
        }
    }
    settle_chunks(&geometry, survey, &owners, &taken, outcome)?;
    for found in survey.found.values() {
        taken.extend(found.chunks.values().map(|mapped| mapped.chunk));
    }
    for (ino, found) in &mut survey.found {
        in_free_chunks(fs, *ino, found, &taken, outcome);
    }
    let mut claims = Claims::default();
    survey.found.values().for_each(|found| claim(found, &mut claims));
    longer_runs(fs, survey, &mut claims, outcome);
    moved_runs(fs, survey, &mut claims, &taken, outcome);
    for (ino, found) in &mut survey.found {
        shared(*ino, found, &claims, outcome);
    }
    Ok(())
}

fn claim(found: &Found, claims: &mut Claims) {
    if let Form::Run { first, pages } = found.inode.form {
        claims.add(first, pages);
    }
    if let Some((first, pages)) = found.inode.attributes {
        claims.add(first, pages);
    }
    found.tree.iter().for_each(|page| claims.add(*page, 1));
}

/// Returns the claims of all inodes as settled.
pub(super) fn claims(survey: &Survey) -> Claims {
    let mut claims = Claims::default();
    survey.found.values().for_each(|found| claim(found, &mut claims));
    claims
}

fn loses_contents(ino: Ino, found: &mut Found, why: &str, outcome: &mut Outcome) {
    found.inode.form = Form::Empty;
    found.chunks.clear();
    found.tree.clear();
    if !found.inode.is_directory() && found.inode.mode != 0 {
        found.inode.size = 0;
    }
    outcome.lost(format!("{}: its contents, as {why}", file(ino)));
}

/// Gives an inode a form that can be: its own, chunks that name it, or none.
fn sound_form(geometry: &Geometry, owners: &Owners, ino: Ino, found: &mut Found, outcome: &mut Outcome) {
    let inode = &mut found.inode;
    let attributes = inode.attributes;
    inode.attributes = attributes.filter(|(first, pages)| {
        u64::from(*pages) * PAGE_BYTES <= ATTRIBUTE_BYTES_MAX.min(geometry.run_bytes_max())
            && geometry.is_run(*first, *pages)
    });
    if inode.attributes != attributes {
        outcome.lost(format!("{}: its attributes, as they are outside of the region's files", file(ino)));
    }
    let owned = owners.chunks.get(&ino).map_or(0, |chunks| chunks.len() as u64);
    let has_chunks = owned > 0 && inode.pages >= owned * geometry.chunk_pages();
    let problem = crate::layout::inode::Inode { attributes: None, ..*inode }.space_problem(geometry);
    let is_sound = found.has_form && problem.is_none();
    // A file in a container has no chunks.
    if is_sound && (!matches!(inode.form, Form::Empty | Form::Container(_)) || !has_chunks) {
        return;
    }
    if has_chunks {
        // The chunks themselves follow from the table.
        inode.form = Form::Tree { root: Page(0), height: 1 };
        outcome.repaired(format!("{}: its chunks found again by the chunk table", file(ino)));
        return;
    }
    let needed = inode.size.div_ceil(PAGE_BYTES);
    if let Form::Run { first, .. } = inode.form
        && (1..=geometry.run_bytes_max() / PAGE_BYTES).contains(&needed)
        && geometry.is_run(first, needed as u32)
    {
        inode.form = Form::Run { first, pages: needed as u32 };
        outcome.repaired(format!("{}: number of its pages, by its size", file(ino)));
        return;
    }
    let why =
        problem.map_or("nothing tells where they are".to_owned(), |problem| format!("it has {problem}"));
    loses_contents(ino, found, &why, outcome);
}

/// Settles which file has which chunk.
fn settle_chunks(
    geometry: &Geometry,
    survey: &mut Survey,
    owners: &Owners,
    inodes: &FxHashSet<Chunk>,
    outcome: &mut Outcome,
) -> Result<(), Refusal> {
    let mut claims: BTreeMap<Chunk, Vec<(Ino, u64)>> = BTreeMap::new();
    let mut with_runs = FxHashSet::default();
    for (ino, found) in &survey.found {
        for (index, mapped) in &found.chunks {
            claims.entry(mapped.chunk).or_default().push((*ino, *index));
        }
        if let Form::Run { first, .. } = found.inode.form {
            with_runs.insert(geometry.chunk_of(first).0);
        }
    }
    let mut wrong = Vec::new();
    for (chunk, claims) in claims {
        let owner = owners.owner.get(&chunk);
        let is_impossible = !geometry.is_for_files(chunk) || inodes.contains(&chunk);
        let is_of_pages = owners.pages.contains(&chunk) && with_runs.contains(&chunk);
        match claims.as_slice() {
            _ if is_impossible || is_of_pages => wrong.extend(claims),
            claims if owner.is_some_and(|owner| claims.contains(owner)) => {
                wrong.extend(claims.iter().filter(|claim| Some(*claim) != owner));
            }
            [_] if !with_runs.contains(&chunk) => {}
            claims => {
                let files: Vec<_> = claims.iter().map(|(ino, _)| file(*ino)).collect();
                let text = format!("chunk {} is claimed by {}", chunk.0, files.join(" and "));
                return Err(Refusal::Ambiguous(format!("{text} and others, and nothing tells whose it is")));
            }
        }
    }
    let mut unmapped: BTreeMap<(Ino, u64), bool> = BTreeMap::new();
    for (ino, index) in wrong {
        let found = survey.found.get_mut(&ino).and_then(|found| {
            found.rewrite_tree = true;
            found.chunks.remove(&index)
        });
        unmapped.insert((ino, index), found.is_some_and(|mapped| mapped.is_unwritten));
    }
    restore_chunks(survey, owners, &mut unmapped, outcome);
    for (ino, index) in unmapped.into_keys() {
        let from = index * geometry.chunk_bytes;
        let to = from + geometry.chunk_bytes - 1;
        outcome.lost(format!("{}: bytes {from} to {to}, which now read as zeros", file(ino)));
    }
    Ok(())
}

/// Maps chunks that name a file and that no file's tree has.
fn restore_chunks(
    survey: &mut Survey,
    owners: &Owners,
    unmapped: &mut BTreeMap<(Ino, u64), bool>,
    outcome: &mut Outcome,
) {
    let used: FxHashSet<_> =
        survey.found.values().flat_map(|found| found.chunks.values()).map(|mapped| mapped.chunk).collect();
    for (ino, chunks) in &owners.chunks {
        let Some(found) = survey.found.get_mut(ino) else { continue };
        if !matches!(found.inode.form, Form::Tree { .. }) {
            continue;
        }
        for (index, chunk) in chunks.iter().filter(|(_, chunk)| !used.contains(chunk)) {
            if *index >= 1 << 30 || found.chunks.contains_key(index) {
                continue;
            }
            let is_unwritten = unmapped.remove(&(*ino, *index)).unwrap_or(false);
            found.chunks.insert(*index, Mapped { chunk: *chunk, is_unwritten });
            found.rewrite_tree = true;
            outcome.repaired(format!("{}: chunk {} found again by the chunk table", file(*ino), chunk.0));
        }
    }
}

/// Returns whether an attribute is the limits of users and groups, and cannot be read.
pub(super) fn are_damaged_limits((name, value): &(Vec<u8>, Vec<u8>)) -> bool {
    name == quota::ATTRIBUTE && quota::decode(value).is_none()
}

/// Drops what is in chunks that belong to something else.
fn in_free_chunks<M: Memory>(
    fs: &FileSystem<M>,
    ino: Ino,
    found: &mut Found,
    taken: &FxHashSet<Chunk>,
    outcome: &mut Outcome,
) {
    let geometry = fs.superblock().geometry;
    let is_taken = |page: Page| taken.contains(&geometry.chunk_of(page).0);
    if let Form::Run { first, .. } = found.inode.form
        && is_taken(first)
    {
        loses_contents(ino, found, "another file has their place", outcome);
    }
    let before = found.tree.len();
    found.tree.retain(|page| !is_taken(*page));
    found.rewrite_tree |= found.tree.len() < before;
    let Some((first, pages)) = found.inode.attributes else { return };
    let mut bytes = vec![0; (u64::from(pages) * PAGE_BYTES) as usize];
    fs.store().load_data(first.address(), &mut bytes);
    let attributes = decode_attributes(&bytes).filter(|_| !is_taken(first));
    let Some(attributes) = attributes else {
        found.inode.attributes = None;
        outcome.lost(format!("{}: its attributes, which are damaged", file(ino)));
        return;
    };
    if attributes.iter().any(are_damaged_limits) {
        found.copy_attributes = true;
        outcome.lost(format!("{}: the limits of users and groups, which are damaged", file(ino)));
    }
}

/// Makes runs as long as their inodes say, where the pages that follow are allocated and nobody else's.
fn longer_runs<M: Memory>(
    fs: &FileSystem<M>,
    survey: &mut Survey,
    claims: &mut Claims,
    outcome: &mut Outcome,
) {
    let geometry = fs.superblock().geometry;
    for (ino, found) in &mut survey.found {
        let Form::Run { first, pages } = found.inode.form else { continue };
        let others = u64::from(found.inode.attributes.map_or(0, |(_, pages)| pages));
        let told = found.inode.pages.saturating_sub(others);
        let is_possible = !found.inode.is_directory()
            && told > u64::from(pages)
            && told <= geometry.run_bytes_max() / PAGE_BYTES
            && geometry.is_run(first, told as u32);
        // What is told may be anything: it is used only once it is possible.
        let is_free = |page| is_allocated(fs, page) && !claims.is_claimed(page);
        if is_possible && (u64::from(pages)..told).all(|at| is_free(Page(first.0 + at))) {
            claims.add(Page(first.0 + u64::from(pages)), told as u32 - pages);
            found.inode.form = Form::Run { first, pages: told as u32 };
            outcome.repaired(format!("{}: {told} pages instead of {pages}", file(*ino)));
        }
    }
}

fn is_allocated<M: Memory>(fs: &FileSystem<M>, page: Page) -> bool {
    let (chunk, at) = fs.superblock().geometry.chunk_of(page);
    let is_of_pages = fs.space().entry(fs.store(), chunk).is_ok_and(|entry| entry.usage == Use::Pages);
    is_of_pages && fs.space().bits(fs.store(), chunk)[at / 64] & 1 << (at % 64) != 0
}

/// Finds runs again whose place is not allocated, if exactly one allocated run that nobody has is as long.
fn moved_runs<M: Memory>(
    fs: &FileSystem<M>,
    survey: &mut Survey,
    claims: &mut Claims,
    taken: &FxHashSet<Chunk>,
    outcome: &mut Outcome,
) {
    let is_astray = |found: &Found| match found.inode.form {
        Form::Run { first, pages } => {
            (first.0..first.0 + u64::from(pages)).all(|page| !is_allocated(fs, Page(page)))
        }
        _ => false,
    };
    let astray: Vec<_> =
        survey.found.iter().filter(|(_, found)| is_astray(found)).map(|(ino, _)| *ino).collect();
    if astray.is_empty() {
        return;
    }
    let leaks = leaks(fs, claims, taken);
    for ino in astray {
        let Some(found) = survey.found.get_mut(&ino) else { continue };
        let Form::Run { pages, .. } = found.inode.form else { continue };
        let same: Vec<_> = leaks.iter().filter(|(_, len)| *len == pages).collect();
        match same.as_slice() {
            [] if leaks.is_empty() => {}
            [(leak, _)] if !claims.is_claimed(*leak) => {
                found.inode.form = Form::Run { first: *leak, pages };
                claims.add(*leak, pages);
                outcome.repaired(format!("{}: its pages found again by the chunk table", file(ino)));
            }
            _ => outcome.lost(format!(
                "{}: certainty about its contents, as its pages were marked free; compare it with a backup",
                file(ino)
            )),
        }
    }
}

/// Returns runs of pages that are allocated, but nobody's.
fn leaks<M: Memory>(fs: &FileSystem<M>, claims: &Claims, taken: &FxHashSet<Chunk>) -> Vec<(Page, u32)> {
    let geometry = fs.superblock().geometry;
    let mut leaks: Vec<(Page, u32)> = Vec::new();
    for chunk in (geometry.system_chunks()..geometry.chunks()).map(Chunk).filter(|it| !taken.contains(it)) {
        let first = geometry.first_page(chunk).0;
        let mut is_open = false;
        for page in (first..first + geometry.chunk_pages()).map(Page) {
            let is_leaked = !claims.is_claimed(page) && is_allocated(fs, page);
            match leaks.last_mut().filter(|_| is_open) {
                Some((_, len)) if is_leaked => *len += 1,
                _ if is_leaked => leaks.push((page, 1)),
                _ => {}
            }
            is_open = is_leaked;
        }
    }
    leaks
}

/// Notes what has to be copied, because several claim its pages.
fn shared(ino: Ino, found: &mut Found, claims: &Claims, outcome: &mut Outcome) {
    if let Form::Run { first, pages } = found.inode.form
        && claims.is_shared(first, pages)
    {
        found.copy_run = true;
        if found.inode.kind() == Some(Kind::File) {
            outcome.lost(format!(
                "{}: certainty about its contents, as another file has pages of it; each gets a copy",
                file(ino)
            ));
        }
    }
    if let Some((first, pages)) = found.inode.attributes
        && claims.is_shared(first, pages)
    {
        found.copy_attributes = true;
        outcome.lost(format!(
            "{}: certainty about its attributes, as another file has pages of them; each gets a copy",
            file(ino)
        ));
    }
    found.rewrite_tree |= found.tree.iter().any(|page| claims.is_shared(*page, 1));
}
