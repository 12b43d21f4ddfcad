//! Writes again what cannot stay where it is: trees, runs that two files have, directories; and gives files
//! without a name one in `lost+found`.

use super::files::are_damaged_limits;
use super::survey::{Directory, Found, Survey};
use super::{Outcome, Refusal, file};
use crate::error::{Error, Result};
use crate::layout::chunk::Purpose;
use crate::layout::dirent::Entry;
use crate::layout::inode::{Form, Inode, Kind};
use crate::layout::{Ino, PAGE_BYTES, Time};
use crate::namespace::{FileSystem, New, decode_attributes, encode_attributes};
use crate::nvm::Memory;

/// Chunks or names that one operation writes.
const BATCH: usize = 64;

/// Writes again what has to be, in space that nobody has.
///
/// # Errors
/// Refuses if there is no space for it.
pub(super) fn run<M: Memory>(
    fs: &mut FileSystem<M>,
    survey: &Survey,
    now: Time,
    outcome: &mut Outcome,
) -> Result<(), Refusal> {
    for (ino, found) in &survey.found {
        let directory = survey.directories.get(ino);
        let done = contents(fs, *ino, found, directory, survey);
        done.and_then(|()| if found.copy_attributes { attributes(fs, *ino) } else { Ok(()) })
            .map_err(|error| refusal(error, &file(*ino)))?;
        if directory.is_some_and(|directory| directory.rewrite) {
            outcome.repaired(format!("{}: its table of names, written again", file(*ino)));
        }
    }
    if survey.nameless.is_empty() {
        return Ok(());
    }
    lost_and_found(fs, &survey.nameless, now).map_err(|error| refusal(error, "names in lost+found"))
}

fn refusal(error: Error, what: &str) -> Refusal {
    match error {
        Error::NoSpace => Refusal::NoSpace(what.to_owned()),
        error => Refusal::Unusable(error),
    }
}

fn contents<M: Memory>(
    fs: &mut FileSystem<M>,
    ino: Ino,
    found: &Found,
    directory: Option<&Directory>,
    survey: &Survey,
) -> Result<()> {
    match directory {
        Some(directory) if directory.rewrite || found.copy_run || found.rewrite_tree => {
            table(fs, ino, directory, survey)
        }
        None if found.rewrite_tree => tree(fs, ino, found),
        None if found.copy_run => copy_run(fs, ino),
        _ => Ok(()),
    }
}

/// Returns an inode without the space that is about to be replaced. Its number of pages is counted at the
/// end.
fn stored<M: Memory>(fs: &FileSystem<M>, ino: Ino) -> Result<Inode> {
    let (inode, _) = Inode::decode_lenient(&fs.store().bytes(fs.inode_at(ino)?));
    Ok(Inode { pages: 0, ..inode })
}

/// Changes an inode by operations, each of which gets what the one before left.
fn change<M: Memory>(
    fs: &mut FileSystem<M>,
    inode: &mut Inode,
    mut operation: impl FnMut(&mut FileSystem<M>, &mut Inode) -> Result<()>,
) -> Result<()> {
    *inode = fs.transact(|fs| {
        let mut next = *inode;
        operation(fs, &mut next)?;
        Ok(next)
    })?;
    Ok(())
}

fn tree<M: Memory>(fs: &mut FileSystem<M>, ino: Ino, found: &Found) -> Result<()> {
    let mut inode = Inode { form: Form::Empty, ..stored(fs, ino)? };
    let chunks: Vec<_> = found.chunks.iter().collect();
    for batch in chunks.chunks(BATCH) {
        change(fs, &mut inode, |fs, inode| {
            batch.iter().try_for_each(|(index, mapped)| fs.set_chunk(inode, **index, **mapped))
        })?;
    }
    fs.transact(|fs| {
        fs.set_inode(ino, &inode);
        Ok(())
    })
}

fn copy_run<M: Memory>(fs: &mut FileSystem<M>, ino: Ino) -> Result<()> {
    let inode = stored(fs, ino)?;
    let Form::Run { first, pages } = inode.form else { return Ok(()) };
    let needed = inode.size.div_ceil(PAGE_BYTES).min(pages.into()) as u32;
    fs.transact(|fs| {
        let mut inode = Inode { form: Form::Empty, ..inode };
        if needed > 0 {
            let (store, space) = fs.parts();
            let to = space.take_pages(store, needed, Purpose::Data)?;
            fs.copy_data(first.address(), to.address(), u64::from(needed) * PAGE_BYTES)?;
            inode.form = Form::Run { first: to, pages: needed };
        }
        fs.set_inode(ino, &inode);
        Ok(())
    })
}

fn attributes<M: Memory>(fs: &mut FileSystem<M>, ino: Ino) -> Result<()> {
    let inode = stored(fs, ino)?;
    let Some((first, pages)) = inode.attributes else { return Ok(()) };
    let mut bytes = vec![0; (u64::from(pages) * PAGE_BYTES) as usize];
    fs.store().load_data(first.address(), &mut bytes);
    let mut attributes = decode_attributes(&bytes).unwrap_or_default();
    attributes.retain(|attribute| !are_damaged_limits(attribute));
    let attributes = encode_attributes(&attributes);
    fs.transact(|fs| {
        let mut inode = Inode { attributes: None, ..inode };
        fs.store_attributes(&mut inode, &attributes)?;
        fs.set_inode(ino, &inode);
        Ok(())
    })
}

/// Writes a directory with the names that it keeps.
fn table<M: Memory>(fs: &mut FileSystem<M>, ino: Ino, directory: &Directory, survey: &Survey) -> Result<()> {
    let empty = Inode { form: Form::Empty, buckets: 0, size: 0, entries: 0, ..stored(fs, ino)? };
    let mut inode = empty;
    change(fs, &mut inode, |fs, inode| fs.add_bucket(ino, inode).map(|_| ()))?;
    let kept: Vec<_> = directory.names.iter().filter(|name| name.is_kept).collect();
    for batch in kept.chunks(BATCH) {
        change(fs, &mut inode, |fs, inode| {
            batch.iter().try_for_each(|name| {
                let kind = survey.found.get(&name.ino).and_then(|found| found.inode.kind());
                let kind = kind.ok_or(Error::NotFound)?;
                fs.add_entry(ino, inode, Entry { hash: 0, ino: name.ino, kind, name: name.name.clone() })
            })
        })?;
    }
    fs.transact(|fs| {
        fs.set_inode(ino, &inode);
        Ok(())
    })
}

/// Gives files without a name one in `lost+found`, which is made if it does not exist.
fn lost_and_found<M: Memory>(fs: &mut FileSystem<M>, nameless: &[Ino], now: Time) -> Result<()> {
    let place = directory(fs, now)?;
    for ino in nameless {
        fs.transact(|fs| {
            let mut inode = fs.inode(*ino)?;
            let mut directory = fs.inode(place)?;
            let kind = inode.kind().ok_or(Error::NotFound)?;
            let name = (0..)
                .map(|number| name(*ino, number))
                .find(|name| matches!(fs.lookup(place, name), Err(Error::NotFound)));
            let entry = Entry { hash: 0, ino: *ino, kind, name: name.ok_or(Error::Exists)? };
            fs.add_entry(place, &mut directory, entry)?;
            if kind == Kind::Directory {
                directory.links += 1;
                inode.parent = place;
            }
            (directory.modified, directory.changed, inode.changed) = (now, now, now);
            fs.set_inode(place, &directory);
            fs.set_inode(*ino, &inode);
            Ok(())
        })?;
    }
    Ok(())
}

/// Returns the name of a file in `lost+found`: its inode, and a number if that exists.
fn name(ino: Ino, number: u32) -> Vec<u8> {
    let name = format!("#{}", ino.0);
    if number == 0 { name.into_bytes() } else { format!("{name}.{number}").into_bytes() }
}

fn directory<M: Memory>(fs: &mut FileSystem<M>, now: Time) -> Result<Ino> {
    for number in 0..1000 {
        let name = if number == 0 { "lost+found".to_owned() } else { format!("lost+found.{number}") };
        match fs.lookup(Ino::ROOT, name.as_bytes()) {
            Ok((ino, inode)) if inode.is_directory() => return Ok(ino),
            Ok(_) => {}
            Err(Error::NotFound) => {
                let Inode { uid, gid, .. } = fs.inode(Ino::ROOT)?;
                let new = New {
                    kind: Kind::Directory,
                    permissions: 0o700,
                    uid,
                    gid,
                    device: 0,
                    target: &[],
                    attributes: &[],
                };
                return Ok(fs.create_file(Ino::ROOT, name.as_bytes(), &new, now)?.0);
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::Exists)
}
