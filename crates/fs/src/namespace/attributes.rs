//! Extended attributes: all of an inode's in one run of pages.
//!
//! The limits of users and groups are a hidden attribute of the root directory.
//!
//! A change writes all of them to new pages and frees the old ones. The stored form is a sequence of length
//! of the name (1 byte), length of the value (4 bytes), name, value; a length of 0 ends it.

use super::FileSystem;
use crate::error::{Error, Result};
use crate::layout::chunk::Purpose;
use crate::layout::inode::{ATTRIBUTE_BYTES_MAX, Inode};
use crate::layout::quota;
use crate::layout::{Ino, PAGE_BYTES, Page, Time};
use crate::nvm::Memory;

/// Attribute with the list that decides about accesses.
pub const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// Longest name of an attribute, in bytes, as in Linux.
const NAME_BYTES_MAX: usize = 255;
/// Largest size of all attributes of an inode in their stored form, in bytes.
const STORED_BYTES_MAX: usize = ATTRIBUTE_BYTES_MAX as usize;

/// What setting an attribute does if it exists or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetAttribute {
    /// Sets it in either case.
    Always,
    /// Fails if it exists.
    Create,
    /// Fails if it does not exist.
    Replace,
}

/// A name and a value.
type Attribute = (Vec<u8>, Vec<u8>);

fn is_hidden(name: &[u8]) -> bool {
    name == quota::ATTRIBUTE
}

/// Returns attributes in their stored form.
pub(crate) fn encode(attributes: &[Attribute]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in attributes {
        bytes.push(name.len() as u8);
        bytes.extend((value.len() as u32).to_le_bytes());
        bytes.extend(name);
        bytes.extend(value);
    }
    bytes
}

pub(crate) fn decode(mut bytes: &[u8]) -> Option<Vec<Attribute>> {
    let mut attributes = Vec::new();
    while let Some((name_len, rest)) = bytes.split_first().filter(|(len, _)| **len > 0) {
        let (value_len, rest) = rest.split_first_chunk::<4>()?;
        let (name, rest) = rest.split_at_checked(usize::from(*name_len))?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_len) as usize)?;
        attributes.push((name.to_vec(), value.to_vec()));
        bytes = rest;
    }
    Some(attributes)
}

impl<M: Memory> FileSystem<M> {
    /// Returns all attributes of an inode that programs may see.
    ///
    /// # Errors
    /// `NotFound`; `Damaged` if their stored form is wrong.
    pub fn attributes(&self, ino: Ino) -> Result<Vec<Attribute>> {
        let mut attributes = self.all_attributes(ino)?;
        attributes.retain(|(name, _)| !is_hidden(name));
        Ok(attributes)
    }

    /// Returns all attributes of an inode, hidden ones included.
    pub(super) fn all_attributes(&self, ino: Ino) -> Result<Vec<Attribute>> {
        let Some((first, pages)) = self.inode(ino)?.attributes else { return Ok(Vec::new()) };
        let mut bytes = vec![0; (u64::from(pages) * PAGE_BYTES) as usize];
        self.store.load_data(first.address(), &mut bytes);
        decode(&bytes).ok_or_else(|| Error::Damaged(format!("attributes of inode {} are damaged", ino.0)))
    }

    /// Returns the value of an attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `NotFound`.
    pub fn attribute(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let found = self.attributes(ino)?.into_iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value).ok_or(Error::NoAttribute)
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// `Exists` or `NoAttribute` as `how` says; `NotSupported` for the name of a hidden attribute;
    /// `AttributesTooLarge`, `NoSpace`, `NotFound`, `Invalid`.
    pub fn set_attribute(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        how: SetAttribute,
        now: Time,
    ) -> Result<()> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Error::Invalid);
        }
        if is_hidden(name) {
            return Err(Error::NotSupported);
        }
        self.change_attributes(ino, now, |attributes| {
            let at = attributes.iter().position(|(other, _)| other == name);
            match (at, how) {
                (Some(_), SetAttribute::Create) => return Err(Error::Exists),
                (None, SetAttribute::Replace) => return Err(Error::NoAttribute),
                (Some(at), _) => attributes[at].1 = value.to_vec(),
                (None, _) => attributes.push((name.to_vec(), value.to_vec())),
            }
            Ok(())
        })
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `NotFound`, `NoSpace`.
    pub fn remove_attribute(&mut self, ino: Ino, name: &[u8], now: Time) -> Result<()> {
        self.change_attributes(ino, now, |attributes| {
            let is_it = |(other, _): &Attribute| other == name && !is_hidden(name);
            let at = attributes.iter().position(is_it).ok_or(Error::NoAttribute)?;
            attributes.remove(at);
            Ok(())
        })
    }

    fn change_attributes(
        &mut self,
        ino: Ino,
        now: Time,
        mut change: impl FnMut(&mut Vec<Attribute>) -> Result<()>,
    ) -> Result<()> {
        self.transact(|fs| {
            let mut attributes = fs.all_attributes(ino)?;
            change(&mut attributes)?;
            let mut inode = fs.inode(ino)?;
            fs.store_attributes(&mut inode, &encode(&attributes))?;
            inode.changed = now;
            fs.set_inode(ino, &inode);
            Ok(())
        })
    }

    /// Gives an inode these attributes, in their stored form, in new pages.
    pub(crate) fn store_attributes(&mut self, inode: &mut Inode, stored: &[u8]) -> Result<()> {
        if stored.len() > STORED_BYTES_MAX.min(self.geometry().run_bytes_max() as usize) {
            return Err(Error::AttributesTooLarge);
        }
        let old = inode.attributes.take();
        if !stored.is_empty() {
            let pages = (stored.len() as u64).div_ceil(PAGE_BYTES) as u32;
            let first: Page = self.space.take_pages(&mut self.store, pages, Purpose::Metadata)?;
            let mut contents = stored.to_vec();
            contents.resize(pages as usize * PAGE_BYTES as usize, 0);
            self.store.store_data(first.address(), &contents)?;
            inode.attributes = Some((first, pages));
            inode.pages += u64::from(pages);
        }
        if let Some((first, pages)) = old {
            self.space.free_pages_at(&mut self.store, first, pages)?;
            inode.forget_pages(pages.into())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_attributes_are_read_back_and_damage_is_noticed() {
        let attributes = vec![(b"user.a".to_vec(), b"1".to_vec()), (b"user.b".to_vec(), Vec::new())];
        let mut bytes = encode(&attributes);
        bytes.extend([0; 100]);
        assert_eq!(decode(&bytes), Some(attributes));
        assert_eq!(decode(&[6, 255, 0, 0, 0, b'x']), None);
    }
}
