//! Quotas: what users and groups have is counted, and an operation by which one of them would come to have
//! more than its hard limit fails.
//!
//! - Bytes are the sizes of regular files and symbolic links, holes included; every inode counts as one file.
//! - A walk counts all inodes once, by number. Inodes before its position are counted: a change of one
//!   changes the usage of its owners. Any other inode counts as it is when the walk comes to it.
//! - An operation's changes of usage are collected while it is staged. They are applied if it succeeds.
//! - Limits are enforced from the end of the walk on, for callers that [`FileSystem::enforce_limits`] names.
//!
//! Limits are durable, usage is not: each mount counts again.

use super::attributes::encode;
use super::{FileSystem, Scan};
use crate::error::{Error, Result};
use crate::layout::Ino;
use crate::layout::inode::Inode;
use crate::layout::quota::{self, ATTRIBUTE, Limit, Limits, Owner};
use crate::nvm::Memory;
use std::collections::BTreeMap;

/// What a user or group has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerUsage {
    /// Sum of the sizes of regular files and symbolic links. That of sparse files may exceed 2^64.
    pub bytes: u128,
    /// Number of inodes.
    pub inodes: u64,
}

/// What each user and group has; those without any inode are left out.
pub type OwnerUsages = BTreeMap<Owner, OwnerUsage>;

/// How far the counting is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// There are no limits, and nothing is counted.
    Off,
    /// It is in progress; limits are not enforced yet.
    Running {
        /// Share of the inodes that is counted, in percent.
        percent: u8,
    },
    /// Usage is known, and limits are enforced.
    Complete,
}

/// A walk over all inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Walk {
    #[default]
    Off,
    /// Inodes with lower numbers are counted.
    At(Ino),
    Complete,
}

/// What an inode adds to the usage of its owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Charge {
    uid: u32,
    gid: u32,
    bytes: i128,
}

impl Charge {
    /// Returns what a stored inode adds; `None` if it is free or a null file.
    fn of(inode: &Inode) -> Option<Self> {
        let has_bytes = [libc::S_IFREG, libc::S_IFLNK].contains(&(inode.mode & libc::S_IFMT));
        let bytes = if has_bytes { inode.size.into() } else { 0 };
        (inode.mode != 0).then_some(Self { uid: inode.uid, gid: inode.gid, bytes })
    }

    const fn owners(self) -> [Owner; 2] {
        [Owner::User(self.uid), Owner::Group(self.gid)]
    }
}

/// A change of an owner's usage.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    bytes: i128,
    inodes: i64,
    /// The part of `bytes` that is no growth by the operation: the kernel has written past the server.
    exempt_bytes: i128,
}

/// Limits and usage.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    limits: Limits,
    usage: OwnerUsages,
    walk: Walk,
    /// Whether limits hold for the caller of the operation in progress.
    is_enforced: bool,
    /// Changes by the operation in progress.
    changes: Vec<(Owner, Change)>,
}

impl Quotas {
    pub(super) fn begin(&mut self) {
        self.changes.clear();
    }

    /// Applies the changes of the operation in progress.
    ///
    /// # Errors
    /// `OverQuota` if an owner would come to have more than its limit.
    pub(super) fn finish(&mut self) -> Result<()> {
        if self.changes.iter().any(|(owner, change)| self.exceeds(*owner, change)) {
            return Err(Error::OverQuota);
        }
        for (owner, change) in self.changes.drain(..) {
            let usage = self.usage.entry(owner).or_default();
            // Only damage has more taken away than there is.
            usage.bytes = usage.bytes.saturating_add_signed(change.bytes);
            usage.inodes = usage.inodes.saturating_add_signed(change.inodes);
            if *usage == OwnerUsage::default() {
                self.usage.remove(&owner);
            }
        }
        Ok(())
    }

    /// Returns whether an owner would grow, and have more than its limit.
    fn exceeds(&self, owner: Owner, change: &Change) -> bool {
        if !self.is_enforced || self.walk != Walk::Complete {
            return false;
        }
        let Some(limit) = self.limits.get(&owner) else { return false };
        let usage = self.usage.get(&owner).copied().unwrap_or_default();
        let is_over = |used: u128, more: i128, max: Option<u64>| {
            max.is_some_and(|max| used.saturating_add_signed(more) > u128::from(max))
        };
        change.bytes > change.exempt_bytes && is_over(usage.bytes, change.bytes, limit.bytes)
            || change.inodes > 0 && is_over(usage.inodes.into(), change.inodes.into(), limit.inodes)
    }

    fn is_counted(&self, ino: Ino) -> bool {
        match self.walk {
            Walk::Off => false,
            Walk::At(next) => ino < next,
            Walk::Complete => true,
        }
    }

    fn change_of(&mut self, owner: Owner) -> &mut Change {
        let at = self.changes.iter().position(|(other, _)| *other == owner).unwrap_or_else(|| {
            self.changes.push((owner, Change::default()));
            self.changes.len() - 1
        });
        &mut self.changes[at].1
    }

    fn add(&mut self, charge: Charge, sign: i8) {
        for owner in charge.owners() {
            let change = self.change_of(owner);
            change.bytes += i128::from(sign) * charge.bytes;
            change.inodes += i64::from(sign);
        }
    }

    /// Exempts what the kernel has written from the limits of owners that have the file before and after.
    fn exempt(&mut self, before: Charge, after: Charge) {
        for owner in after.owners().into_iter().filter(|owner| before.owners().contains(owner)) {
            self.change_of(owner).exempt_bytes += after.bytes - before.bytes;
        }
    }

    /// Sets the limits, and begins or ends the counting.
    fn set_limits(&mut self, limits: Limits) {
        if limits.is_empty() {
            (self.walk, self.usage) = (Walk::Off, OwnerUsages::new());
        } else if self.walk == Walk::Off {
            self.walk = Walk::At(Ino::ROOT);
        }
        self.limits = limits;
    }

    fn count(usage: &mut OwnerUsages, inode: &Inode) {
        let Some(charge) = Charge::of(inode) else { return };
        for owner in charge.owners() {
            let usage = usage.entry(owner).or_default();
            usage.bytes = usage.bytes.saturating_add_signed(charge.bytes);
            usage.inodes += 1;
        }
    }
}

impl<M: Memory> FileSystem<M> {
    /// Reads the limits, and has counting begin if there are any.
    ///
    /// # Errors
    /// `Damaged` if they cannot be read.
    pub(super) fn open_quotas(&mut self) -> Result<()> {
        let limits = self.stored_limits()?;
        self.quotas.set_limits(limits);
        Ok(())
    }

    /// Returns the limits as they are stored.
    ///
    /// # Errors
    /// `Damaged` if they cannot be read.
    pub(crate) fn stored_limits(&self) -> Result<Limits> {
        let attributes = match self.all_attributes(Ino::ROOT) {
            Err(Error::NotFound) => return Ok(Limits::new()),
            attributes => attributes?,
        };
        let Some((_, value)) = attributes.iter().find(|(name, _)| name == ATTRIBUTE) else {
            return Ok(Limits::new());
        };
        let damaged = || Error::Damaged("the limits of users and groups cannot be read".to_owned());
        quota::decode(value).ok_or_else(damaged)
    }

    fn store_limits(&mut self, limits: &Limits) -> Result<()> {
        let value = quota::encode(limits).ok_or(Error::Invalid)?;
        self.transact(|fs| {
            let mut inode = fs.inode(Ino::ROOT)?;
            let mut attributes = fs.all_attributes(Ino::ROOT)?;
            attributes.retain(|(name, _)| name != ATTRIBUTE);
            if !limits.is_empty() {
                attributes.push((ATTRIBUTE.to_vec(), value.clone()));
            }
            fs.store_attributes(&mut inode, &encode(&attributes))?;
            fs.set_inode(Ino::ROOT, &inode);
            Ok(())
        })
    }

    /// Verifies that the stored limits can be read.
    ///
    /// # Errors
    /// `Damaged` if they cannot.
    pub fn verify_limits(&self) -> Result<()> {
        self.stored_limits().map(drop)
    }

    /// Returns the limits; none of a file system whose limits are damaged, which is read-only then.
    pub const fn limits(&self) -> &Limits {
        &self.quotas.limits
    }

    /// Sets the limits of a user or group, or removes them. Durable when it returns. The first limit has
    /// counting begin: see [`count_inodes`](Self::count_inodes).
    ///
    /// # Errors
    /// `Invalid` if there are too many limits, or one of 2^64 - 1; `AttributesTooLarge` if the attributes of
    /// the root directory leave no space for them; those of an operation.
    pub fn set_limit(&mut self, owner: Owner, limit: Limit) -> Result<()> {
        let mut limits = self.quotas.limits.clone();
        match limit.is_none() {
            true => limits.remove(&owner),
            false => limits.insert(owner, limit),
        };
        self.store_limits(&limits)?;
        self.commit()?;
        self.quotas.set_limits(limits);
        Ok(())
    }

    /// Sets whether limits hold for the operations that follow; they do not at first. Whatever the file
    /// system does on its own, and what root does, is free of them.
    pub const fn enforce_limits(&mut self, is_enforced: bool) {
        self.quotas.is_enforced = is_enforced;
    }

    /// Counts the next inodes, at most `max`; returns whether there may be more. Other operations may happen
    /// between two calls.
    pub fn count_inodes(&mut self, max: u64) -> bool {
        let Walk::At(Ino(first)) = self.quotas.walk else { return false };
        for number in first..first + max {
            let (index, _) = self.geometry().slot_of(Ino(number));
            if index >= self.inodes.chunk_count() {
                self.quotas.walk = Walk::Complete;
                return false;
            }
            // Some numbers are those of bitmaps.
            if let Ok(at) = self.inode_at(Ino(number)) {
                Quotas::count(&mut self.quotas.usage, &Inode::decode_lenient(&self.store.bytes(at)).0);
            }
        }
        self.quotas.walk = Walk::At(Ino(first + max));
        true
    }

    /// Returns how far the counting is.
    pub fn counting(&self) -> Counting {
        match self.quotas.walk {
            Walk::Off => Counting::Off,
            Walk::Complete => Counting::Complete,
            Walk::At(Ino(next)) => {
                let slots = self.inodes.chunk_count() * self.geometry().chunk_inodes();
                let percent = next.saturating_sub(1).saturating_mul(100) / slots.max(1);
                Counting::Running { percent: percent.min(99) as u8 }
            }
        }
    }

    /// Returns what each user and group has, as far as it is counted.
    pub const fn owner_usages(&self) -> &OwnerUsages {
        &self.quotas.usage
    }

    /// Counts what each user and group has, whether there are limits or not. Reads all inodes.
    pub fn count_owners(&self) -> OwnerUsages {
        let (mut usage, mut scan) = (OwnerUsages::new(), Scan::default());
        while self.scan_with(&mut scan, |_, inode| Quotas::count(&mut usage, inode)) {}
        usage
    }

    /// Notes what a change of an inode, which is about to be staged, does to the usage of its owners.
    pub(super) fn note_charge(&mut self, ino: Ino, at: u64, inode: &Inode) {
        if !self.quotas.is_counted(ino) {
            return;
        }
        let (stored, _) = Inode::decode_lenient(&self.store.bytes(at));
        let (before, after) = (Charge::of(&stored), Charge::of(inode));
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.quotas.add(before, -1);
        }
        if let Some(after) = after {
            self.quotas.add(after, 1);
        }
        // The kernel has written past the server. Growth by an operation was rejected before.
        if let (true, Some(before), Some(after)) = (stored.is_passthrough, before, after) {
            self.quotas.exempt(before, after);
        }
    }

    /// Rejects an operation that gives a file this size before it changes bytes, which are not staged.
    ///
    /// # Errors
    /// `OverQuota` if an owner would come to have more than its limit.
    pub(super) fn reject_growth(&self, ino: Ino, inode: &Inode, size: u64) -> Result<()> {
        if !self.quotas.is_enforced || size <= inode.size {
            return Ok(());
        }
        let Some(charge) = Charge::of(&Inode { size, ..*inode }) else { return Ok(()) };
        // What the kernel has written past the server is not counted yet.
        let counted = self.raw_inode(ino)?.size;
        let bytes = charge.bytes - i128::from(counted);
        let change = Change { bytes, ..Change::default() };
        match charge.owners().into_iter().any(|owner| self.quotas.exceeds(owner, &change)) {
            true => Err(Error::OverQuota),
            false => Ok(()),
        }
    }

    /// Rejects the allocation of space that no size counts, for callers and owners that limits hold for.
    ///
    /// # Errors
    /// `NotSupported`, by which programs know that they have to do without it.
    pub(super) fn reject_uncounted(&self, inode: &Inode, end: u64) -> Result<()> {
        match self.quotas.is_enforced && end > inode.size && self.has_byte_limit(inode) {
            true => Err(Error::NotSupported),
            false => Ok(()),
        }
    }

    /// Returns whether an owner of a file has a limit of bytes.
    pub(super) fn has_byte_limit(&self, inode: &Inode) -> bool {
        let owners = [Owner::User(inode.uid), Owner::Group(inode.gid)];
        owners.iter().any(|owner| self.quotas.limits.get(owner).is_some_and(|limit| limit.bytes.is_some()))
    }
}

#[cfg(test)]
mod tests;
