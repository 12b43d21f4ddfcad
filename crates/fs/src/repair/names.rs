//! Settles which names there are, and what each inode is.

use super::files::claims;
use super::survey::{Directory, Found, Survey, read_directory};
use super::{Outcome, file};
use crate::layout::inode::{Form, Inode, Kind, MODE_BITS, NANOS, TARGET_BYTES_MAX};
use crate::layout::{Ino, PAGE_BYTES, Page, Time};
use crate::namespace::FileSystem;
use crate::nvm::Memory;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Settles names, types, links and lists.
pub(super) fn settle<M: Memory>(fs: &FileSystem<M>, survey: &mut Survey, outcome: &mut Outcome) {
    survey.found.entry(Ino::ROOT).or_insert_with(|| {
        let root = Inode::new(Kind::Directory.mode_bits() | 0o700, 0, 0, Time::default(), 0);
        Found::new(false, root, true)
    });
    read_directories(fs, survey);
    own_overflow_pages(survey);
    null_files(fs, survey);
    kinds(survey, outcome);
    drop_names(survey, outcome);
    let parents = parents(survey, outcome);
    without_names(survey, &parents, outcome);
    links(survey, outcome);
    let geometry = fs.superblock().geometry;
    for (ino, found) in &mut survey.found {
        fields(*ino, found, geometry.file_bytes_max(), geometry.chunk_bytes, outcome);
    }
}

fn may_be_directory(inode: &Inode) -> bool {
    inode.is_directory() || inode.buckets > 0
}

/// Reads all directories. If the two numbers of buckets differ, the one that fits its names counts, or else
/// the smaller one.
fn read_directories<M: Memory>(fs: &FileSystem<M>, survey: &mut Survey) {
    let limit = fs.superblock().geometry.size / PAGE_BYTES;
    for (ino, found) in &mut survey.found {
        if !may_be_directory(&found.inode) {
            continue;
        }
        let inode = &mut found.inode;
        let numbers = [u64::from(inode.buckets), inode.size / PAGE_BYTES];
        let mut numbers: Vec<_> = numbers.into_iter().filter(|number| (1..=limit).contains(number)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let is_one = numbers.len() == 1 && inode.size == u64::from(inode.buckets) * PAGE_BYTES;
        let entries = inode.entries;
        let read = |number: &u64| (*number as u32, read_directory(fs, found, *number as u32));
        let mut read: Vec<_> = numbers.iter().map(read).collect();
        if let Some(fitting) = read.iter().position(|(_, directory)| {
            !directory.rewrite
                && directory.names.iter().all(|name| name.is_kept)
                && directory.names.len() as u64 == entries
        }) {
            read.swap(0, fitting);
        }
        let (buckets, mut directory) =
            read.into_iter().next().unwrap_or((0, Directory { is_torn: true, ..Directory::default() }));
        directory.rewrite |= !is_one || directory.is_torn;
        directory.stored = (found.inode.buckets, found.inode.size);
        found.inode.buckets = buckets;
        found.inode.size = u64::from(buckets) * PAGE_BYTES;
        survey.directories.insert(*ino, directory);
    }
}

/// Takes pages of chains from directories that share them with others.
fn own_overflow_pages(survey: &mut Survey) {
    let claims = claims(survey);
    let mut counts: FxHashMap<Page, u32> = FxHashMap::default();
    for page in survey.directories.values().flat_map(|directory| &directory.overflow) {
        *counts.entry(*page).or_default() += 1;
    }
    for directory in survey.directories.values_mut() {
        let is_shared = |page: &Page| claims.is_claimed(*page) || counts[page] > 1;
        let shared: FxHashSet<_> = directory.overflow.iter().copied().filter(is_shared).collect();
        if shared.is_empty() {
            continue;
        }
        directory.rewrite = true;
        directory.is_torn = true;
        directory.names.retain(|name| !shared.contains(&name.page));
        directory.overflow.retain(|page| !shared.contains(page));
    }
}

/// Keeps the list of null files if it is sound; else there are none. They have nothing that anybody needs.
fn null_files<M: Memory>(fs: &FileSystem<M>, survey: &mut Survey) {
    let roots = fs.roots();
    let (mut list, mut pages, mut next) = (Vec::new(), 0, roots.null_files);
    let mut seen = FxHashSet::default();
    let names: FxHashSet<Ino> = all_names(survey).map(|(_, ino, _)| ino).collect();
    let is_sound = loop {
        let Some(ino) = next else {
            break (list.len() as u64, pages) == (u64::from(roots.null_count), roots.null_pages);
        };
        let Some(found) = survey.found.get(&ino) else { break false };
        let inode = &found.inode;
        let is_null = inode.mode == 0 && inode.size == 0 && matches!(inode.form, Form::Run { .. });
        if !is_null || !found.is_marked || found.copy_run || names.contains(&ino) || !seen.insert(ino) {
            break false;
        }
        pages += inode.pages;
        list.push(ino);
        next = inode.next;
    };
    if is_sound {
        survey.null_files = list;
    }
}

fn all_names(survey: &Survey) -> impl Iterator<Item = (Ino, Ino, Option<Kind>)> {
    survey.directories.iter().flat_map(|(parent, directory)| {
        let kept = directory.names.iter().filter(|name| name.is_kept);
        kept.map(|name| (*parent, name.ino, name.kind))
    })
}

/// Settles the type of each inode: its own, unless its names and its fields agree on another one.
fn kinds(survey: &mut Survey, outcome: &mut Outcome) {
    let mut named: FxHashMap<Ino, Vec<Option<Kind>>> = FxHashMap::default();
    for (_, ino, kind) in all_names(survey) {
        named.entry(ino).or_default().push(kind);
    }
    let nulls: FxHashSet<_> = survey.null_files.iter().copied().collect();
    for (ino, found) in survey.found.iter_mut().filter(|(ino, _)| !nulls.contains(ino)) {
        let inode = &mut found.inode;
        let by_names = named.get(ino).and_then(|kinds| {
            let first = *kinds.first()?;
            first.filter(|_| kinds.iter().all(|kind| *kind == first))
        });
        // A null file has neither.
        let has_something = inode.size > 0 || inode.links > 0;
        let (buckets, size) =
            survey.directories.get(ino).map_or((inode.buckets, inode.size), |directory| directory.stored);
        let kind = match (inode.kind(), by_names) {
            _ if *ino == Ino::ROOT => Some(Kind::Directory),
            (Some(Kind::Directory), Some(kind)) if buckets == 0 => Some(kind),
            (Some(kind), Some(Kind::Directory)) if kind != Kind::Directory && buckets > 0 => {
                Some(Kind::Directory)
            }
            (Some(kind), _) => Some(kind),
            (None, Some(kind)) if found.is_marked || inode.mode != 0 => Some(kind),
            (None, _) if buckets > 0 => Some(Kind::Directory),
            (None, _) if has_something && found.is_marked => Some(Kind::File),
            (None, _) => None,
        };
        let Some(kind) = kind else {
            survey.erased.push(*ino);
            continue;
        };
        if inode.mode == 0 {
            inode.mode = if kind == Kind::Directory { 0o700 } else { 0o600 };
            outcome.lost(format!("{}: its permissions; only its owner has some now", file(*ino)));
        }
        if inode.kind() != Some(kind) {
            inode.mode = inode.mode & 0o7777 | kind.mode_bits();
            outcome.repaired(format!("{}: its type, by its names", file(*ino)));
        }
        if kind == Kind::Directory {
            if !survey.directories.contains_key(ino) {
                let torn = Directory { rewrite: true, is_torn: true, ..Directory::default() };
                survey.directories.insert(*ino, torn);
            }
        } else {
            survey.directories.remove(ino);
            (inode.buckets, inode.size) = (0, size);
        }
    }
    survey.erased.iter().for_each(|ino| {
        survey.found.remove(ino);
        survey.directories.remove(ino);
    });
}

/// Drops names of inodes that do not exist, and names whose hash is not theirs.
fn drop_names(survey: &mut Survey, outcome: &mut Outcome) {
    let nulls: FxHashSet<_> = survey.null_files.iter().copied().collect();
    let Survey { found, directories, .. } = survey;
    for (parent, directory) in directories {
        let of = file(*parent);
        if directory.is_torn {
            outcome.lost(format!("{of}: names in it, as pages of it are damaged"));
        }
        let mut seen: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for at in 0..directory.names.len() {
            let name = &directory.names[at];
            let text = format!("{of}: the name {:?}", String::from_utf8_lossy(&name.name));
            if !name.is_kept {
                outcome.lost(format!("{text} of inode {}, which is damaged", name.ino.0));
            } else if !found.contains_key(&name.ino) || nulls.contains(&name.ino) {
                outcome.lost(format!("{text}, as its inode {} does not exist", name.ino.0));
                directory.names[at].is_kept = false;
            } else if let Some(&other) = seen.get(&name.name) {
                outcome.lost(format!("{text}, which is there twice"));
                let is_same = directory.names[other].ino == name.ino;
                directory.names[at].is_kept = false;
                directory.names[other].is_kept &= is_same;
            } else {
                seen.insert(name.name.clone(), at);
            }
        }
    }
}

/// Settles in which directory each directory is; takes all other names from it.
fn parents(survey: &mut Survey, outcome: &mut Outcome) -> BTreeMap<Ino, Ino> {
    let mut places: BTreeMap<Ino, Vec<Ino>> = BTreeMap::new();
    for (parent, ino, _) in all_names(survey) {
        if survey.directories.contains_key(&ino) {
            places.entry(ino).or_default().push(parent);
        }
    }
    let mut parents = BTreeMap::new();
    for (ino, places) in places {
        let told = survey.found[&ino].inode.parent;
        let parent = match places.as_slice() {
            _ if ino == Ino::ROOT => None,
            [one] => Some(*one).filter(|one| *one != ino),
            several => Some(told).filter(|told| several.iter().filter(|it| *it == told).count() == 1),
        };
        if let Some(parent) = parent {
            parents.insert(ino, parent);
        }
        if parent.is_none() || places.len() > 1 {
            outcome.repaired(format!("{}: it had names where it cannot be", file(ino)));
        }
    }
    cut_circles(survey, &mut parents);
    for (parent, directory) in &mut survey.directories {
        for name in directory.names.iter_mut().filter(|name| name.is_kept) {
            let is_directory = survey.found[&name.ino].inode.is_directory();
            name.is_kept = !is_directory || parents.get(&name.ino) == Some(parent);
        }
    }
    parents
}

/// Takes the name from one directory of each circle.
fn cut_circles(survey: &Survey, parents: &mut BTreeMap<Ino, Ino>) {
    let mut is_done: FxHashSet<Ino> = FxHashSet::default();
    for start in survey.directories.keys() {
        let (mut at, mut path) = (*start, FxHashSet::default());
        while !is_done.contains(&at) && path.insert(at) {
            match parents.get(&at) {
                Some(parent) => at = *parent,
                None => break,
            }
        }
        if !is_done.contains(&at) && parents.contains_key(&at) {
            parents.remove(&at);
        }
        is_done.extend(path);
    }
}

/// Settles what becomes of inodes without a name.
fn without_names(survey: &mut Survey, parents: &BTreeMap<Ino, Ino>, outcome: &mut Outcome) {
    let names: Vec<_> = all_names(survey).map(|(_, ino, _)| ino).collect();
    for ino in names {
        if let Some(found) = survey.found.get_mut(&ino) {
            found.names += 1;
        }
    }
    let nulls: FxHashSet<_> = survey.null_files.iter().copied().collect();
    for (ino, found) in &survey.found {
        let inode = &found.inode;
        let directory = survey.directories.get(ino);
        let has_name = if directory.is_some() { parents.contains_key(ino) } else { found.names > 0 };
        if has_name || *ino == Ino::ROOT || nulls.contains(ino) {
            continue;
        }
        let is_removed = inode.links == 0 && directory.is_none_or(|it| it.names.iter().all(|it| !it.is_kept));
        let has_space = inode.form != Form::Empty || inode.attributes.is_some();
        match is_removed {
            true if !found.is_marked && !has_space => survey.erased.push(*ino),
            true => survey.orphans.push(*ino),
            false => {
                outcome.repaired(format!("{}: it has no name, and gets one in lost+found", file(*ino)));
                survey.nameless.push(*ino);
            }
        }
    }
    for ino in &survey.erased {
        survey.found.remove(ino);
        survey.directories.remove(ino);
    }
}

/// Settles numbers of links and of entries, and parents.
fn links(survey: &mut Survey, outcome: &mut Outcome) {
    let mut changes = Vec::new();
    let orphans: FxHashSet<_> = survey.orphans.iter().copied().collect();
    let nameless: FxHashSet<_> = survey.nameless.iter().copied().collect();
    for (ino, found) in &survey.found {
        let Some(directory) = survey.directories.get(ino) else {
            let names = found.names + u32::from(nameless.contains(ino));
            changes.push((*ino, if found.inode.mode == 0 { found.inode.links } else { names }));
            continue;
        };
        let kept = directory.names.iter().filter(|name| name.is_kept);
        let below = kept.filter(|name| survey.directories.contains_key(&name.ino)).count() as u32;
        changes.push((*ino, if orphans.contains(ino) { 0 } else { 2 + below }));
    }
    for (ino, links) in changes {
        let Some(found) = survey.found.get_mut(&ino) else { continue };
        if found.inode.links != links {
            outcome.repaired(format!("{}: {links} links instead of {}", file(ino), found.inode.links));
            found.inode.links = links;
        }
    }
    let Survey { found, directories, .. } = survey;
    for (parent, directory) in &*directories {
        for name in directory.names.iter().filter(|name| name.is_kept) {
            let below = found.get_mut(&name.ino).filter(|found| found.inode.is_directory());
            if let Some(below) = below.filter(|below| below.inode.parent != *parent) {
                below.inode.parent = *parent;
                outcome.repaired(format!("{}: the directory that it is in", file(name.ino)));
            }
        }
        let entries = directory.names.iter().filter(|name| name.is_kept).count() as u64;
        if let Some(found) = found.get_mut(parent).filter(|found| found.inode.entries != entries) {
            outcome.repaired(format!(
                "{}: {entries} names instead of {}",
                file(*parent),
                found.inode.entries
            ));
            found.inode.entries = entries;
        }
    }
    if let Some(root) = found.get_mut(&Ino::ROOT) {
        root.inode.parent = Ino::ROOT;
    }
}

/// Makes the remaining fields possible ones.
fn fields(ino: Ino, found: &mut Found, size_max: u64, chunk_bytes: u64, outcome: &mut Outcome) {
    let of = file(ino);
    let inode = &mut found.inode;
    if inode.mode & !MODE_BITS != 0 {
        inode.mode &= MODE_BITS;
        outcome.repaired(format!("{of}: bits of its mode that no mode has"));
    }
    if let Form::Container(_) = inode.form
        && inode.kind() != Some(Kind::File)
    {
        inode.form = Form::Empty;
        outcome.lost(format!("{of}: its container, which only files have"));
    }
    let mapped = match inode.form {
        Form::Empty | Form::Container(_) => 0,
        Form::Run { pages, .. } => u64::from(pages) * PAGE_BYTES,
        Form::Tree { .. } => found.chunks.keys().last().map_or(0, |index| (index + 1) * chunk_bytes),
    };
    if inode.kind() == Some(Kind::Symlink) && !(1..=TARGET_BYTES_MAX).contains(&inode.size) {
        inode.mode = inode.mode & 0o7777 | Kind::File.mode_bits();
        inode.size = mapped;
        outcome
            .lost(format!("{of}: the length of a symbolic link's target; it is now a file with what it had"));
    }
    if inode.size > size_max {
        inode.size = mapped;
        outcome.lost(format!("{of}: its size; it now ends where its space ends, {mapped} bytes"));
    }
    for time in [&mut inode.modified, &mut inode.changed, &mut inode.accessed, &mut inode.created] {
        if time.nanos >= NANOS {
            time.nanos = 0;
            outcome.lost(format!("{of}: the nanoseconds of a time"));
        }
    }
}
