//! Changes of the tier table: tiers that are added, found at another path, emptied and removed.
//!
//! What keeps table and directories in agreement across a power loss:
//!
//! - A directory has its marker, durably, before the commit after which the table names it.
//! - From the commit on which says that a tier is leaving, no file goes there.
//! - The table forgets a tier by a commit after the one that moved its last file. The marker goes after that.
//!
//! So the table never names a directory without a marker. A marker that no table names is left over.

use super::{FileSystem, Scan, lock};
use crate::error::{Error, Result};
use crate::layout::Ino;
use crate::layout::inode::Form;
use crate::layout::tier::{self, Class, Container, Role, Tier, TierNumber};
use crate::nvm::Memory;
use std::path::PathBuf;

/// Bytes of moved files after which there is a commit.
pub(crate) const COMMIT_BYTES: u64 = 64 << 20;

/// Why files stay in a tier that is leaving; the reason that needs most attention first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockReason {
    /// Their containers cannot be read.
    Unreadable,
    /// There is no space elsewhere.
    NoSpace,
    /// Programs access their containers through the kernel, or have them mapped.
    InUse,
    /// Programs change them all the time.
    Changing,
}

/// What keeps files in a tier that is leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Why.
    pub reason: BlockReason,
    /// Files that stay for this reason.
    pub files: u64,
    /// One of them.
    pub ino: Ino,
}

impl<M: Memory> FileSystem<M> {
    /// Adds a tier, whose directory is no other tier's. It takes files at once. Durable when it returns.
    ///
    /// # Errors
    /// `NotSupported` if the region has no tier table, `Invalid` if the paths of all tiers do not fit into
    /// it; `Container` if the directory refuses. If the commit fails, the directory has a marker that is left
    /// over.
    pub fn add_tier(&mut self, class: Class, path: PathBuf, uuid: [u8; 16]) -> Result<TierNumber> {
        if !self.superblock.has_tiers {
            return Err(Error::NotSupported);
        }
        let mut table = self.load_tiers()?;
        let place = table.iter().position(Tier::is_removed).unwrap_or(table.len());
        let next = table.get(place).map_or(1, |removed| removed.next);
        let (number, tier) = (TierNumber(place as u32), Tier { next, ..Tier::new(class, path, uuid) });
        let put = |tiers: &mut Vec<Tier>| match tiers.get_mut(place) {
            Some(removed) => removed.clone_from(&tier),
            None => tiers.push(tier.clone()),
        };
        put(&mut table);
        tier::encode(&table).ok_or(Error::Invalid)?;
        self.tiers.port.adopt(number, &tier).map_err(Error::Container)?;
        self.change_tiers(put)?;
        Ok(number)
    }

    /// Sets the paths of tiers, all of them at once. Durable when it returns; the tiers are at their new
    /// paths when the file system is opened again.
    ///
    /// # Errors
    /// `NoTier` if there is none of a number; `Invalid` if the paths of all tiers do not fit into the table.
    pub fn set_tier_paths(&mut self, paths: &[(TierNumber, PathBuf)]) -> Result<()> {
        let table = self.load_tiers()?;
        let has = |number: &TierNumber| table.get(number.0 as usize).is_some_and(|tier| !tier.is_removed());
        if !paths.iter().all(|(number, _)| has(number)) {
            return Err(Error::NoTier);
        }
        self.change_tiers(|tiers| {
            paths.iter().for_each(|(number, path)| tiers[number.0 as usize].path.clone_from(path));
        })
    }

    /// Sets whether a tier is leaving, so that it takes no files. Moves in progress are given up. Durable
    /// when it returns.
    ///
    /// # Errors
    /// `NoTier` if there is none of this number.
    pub fn set_leaving(&mut self, number: TierNumber, is_leaving: bool) -> Result<()> {
        if self.tiers().get(number.0 as usize).is_none_or(Tier::is_removed) {
            return Err(Error::NoTier);
        }
        // Their containers are garbage as soon as the tier has no file, even if it is kept after that.
        self.tiers.moving.values_mut().for_each(|has_changed| *has_changed = true);
        lock(&self.tiers.blocked).remove(&number);
        // For a tier table that is damaged later. A directory that cannot be written has to do without.
        let _ = self.tiers.port.note_leaving(number, is_leaving);
        let role = if is_leaving { Role::Leaving } else { Role::Active };
        self.change_tiers(|tiers| tiers[number.0 as usize].role = role)
    }

    /// Returns whether a tier is leaving.
    pub fn is_leaving(&self, number: TierNumber) -> bool {
        self.tiers().get(number.0 as usize).is_some_and(|tier| tier.role == Role::Leaving)
    }

    /// Returns the number of a tier's next container.
    pub(crate) fn next_container(&self, number: TierNumber) -> Result<u64> {
        self.load_tiers()?.get(number.0 as usize).map(|tier| tier.next).ok_or(Error::NoTier)
    }

    /// Notes what keeps files in a tier that is leaving, or that nothing does.
    pub(crate) fn set_blocked(&self, number: TierNumber, blocked: Option<Blocked>) {
        let mut all = lock(&self.tiers.blocked);
        match blocked {
            // It may be kept by now.
            Some(blocked) if self.is_leaving(number) => drop(all.insert(number, blocked)),
            _ => drop(all.remove(&number)),
        }
    }

    /// Returns what keeps files in a tier that is leaving; `None` if nothing does, as far as is known.
    pub fn blocked(&self, number: TierNumber) -> Option<Blocked> {
        lock(&self.tiers.blocked).get(&number).copied()
    }

    /// Returns the files in a tier, those without a name included. Reads all inodes.
    pub fn files_in_tier(&self, number: TierNumber) -> Vec<Ino> {
        let (mut files, mut scan) = (Vec::new(), Scan::default());
        while self.scan_tier(&mut scan, number, &mut files) {}
        files
    }

    /// Looks at the next inodes for files in a tier; returns whether there may be more. Nothing comes to a
    /// tier that is leaving, so a walk that finds none, with changes between its steps, means that it has
    /// none.
    pub(crate) fn scan_tier(&self, scan: &mut Scan, number: TierNumber, files: &mut Vec<Ino>) -> bool {
        self.scan_with(scan, |ino, inode| {
            if matches!(inode.form, Form::Container(Container { tier, .. }) if tier == number) {
                files.push(ino);
            }
        })
    }

    /// Moves a file out of its tier at once: to another one, or to the region if no other can take it. Its
    /// old container is removed after the next commit. A file in the region stays there.
    ///
    /// # Errors
    /// `NoTier` if no tier can take the file and the region has no space for it; `Container` if it cannot be
    /// read.
    pub fn move_out(&mut self, ino: Ino) -> Result<()> {
        if !matches!(self.file(ino)?.form, Form::Container(_)) {
            return Ok(());
        }
        let moved = self.relocate(ino);
        if !matches!(moved, Err(Error::NoTier)) {
            return moved;
        }
        self.promote(ino).map_err(|error| match error {
            Error::NoSpace | Error::TooLarge => Error::NoTier,
            error => error,
        })
    }

    /// Moves all files out of a tier, as [`move_out`](Self::move_out) does each, and makes that durable. What
    /// was moved before a failure or a crash stays where it went.
    ///
    /// # Errors
    /// As [`move_out`](Self::move_out), with the file.
    pub fn empty_tier(&mut self, number: TierNumber) -> Result<(), (Ino, Error)> {
        let mut moved_bytes = 0;
        for ino in self.files_in_tier(number) {
            let failed = |error| (ino, error);
            // The commit frees the space of what was moved before.
            if moved_bytes >= COMMIT_BYTES {
                self.sync().map_err(failed)?;
                moved_bytes = 0;
            }
            moved_bytes += self.inode(ino).map_err(failed)?.size;
            if let Err(error) = self.move_out(ino) {
                self.sync().map_err(failed)?;
                match error {
                    Error::NoTier => self.move_out(ino).map_err(failed)?,
                    error => return Err(failed(error)),
                }
            }
        }
        self.sync().map_err(|error| (Ino::ROOT, error))
    }

    /// Removes a tier without files from the table, and then everything of the region from its directory.
    /// Durable when it returns.
    ///
    /// # Errors
    /// `NoTier` if there is none of this number, `NotEmpty` if it has files. `Container` if the marker could
    /// not be removed; the table has forgotten the tier, and the marker is left over.
    pub fn remove_tier(&mut self, number: TierNumber) -> Result<()> {
        if self.tiers().get(number.0 as usize).is_none_or(Tier::is_removed) {
            return Err(Error::NoTier);
        }
        if !self.files_in_tier(number).is_empty() {
            return Err(Error::NotEmpty);
        }
        // From here on no inode refers to the tier after a power loss either.
        self.commit()?;
        let containers = self.containers();
        for garbage in containers.list(number).unwrap_or_default() {
            let _ = containers.remove(Container { tier: number, number: garbage });
        }
        self.forget_tier(number)
    }

    /// Notes that the data of all files in a tier is lost: reading and writing them fails, until they are
    /// emptied or removed. Durable when it returns. The tier is leaving; after a crash, some files have been
    /// noted, and this can be repeated.
    ///
    /// # Errors
    /// Those of an operation.
    pub fn lose_files(&mut self, number: TierNumber) -> Result<()> {
        for ino in self.files_in_tier(number) {
            self.stage(|fs| {
                let mut inode = fs.raw_inode(ino)?;
                inode.form = Form::Container(Container::lost(ino));
                inode.is_passthrough = false;
                fs.set_inode(ino, &inode);
                Ok(())
            })?;
        }
        self.commit()
    }

    /// Removes a tier from the table, and its marker from the directory. It has no files, durably, and no
    /// containers.
    ///
    /// # Errors
    /// As [`remove_tier`](Self::remove_tier), but for `NotEmpty`.
    pub(crate) fn forget_tier(&mut self, number: TierNumber) -> Result<()> {
        lock(&self.tiers.blocked).remove(&number);
        self.change_tiers(|tiers| {
            let tier = &mut tiers[number.0 as usize];
            *tier = Tier::removed(tier.next);
        })?;
        self.tiers.port.release(number).map_err(Error::Container)
    }

    /// Changes the tier table, durably.
    fn change_tiers(&mut self, change: impl Fn(&mut Vec<Tier>)) -> Result<()> {
        self.transact(|fs| {
            let mut tiers = fs.load_tiers()?;
            change(&mut tiers);
            fs.set_tiers(&tiers)
        })?;
        self.commit()?;
        change(&mut self.tiers.table);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
