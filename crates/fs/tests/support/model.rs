//! A naive model of the file system: what POSIX says, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use weir_fs::layout::inode::Kind;
use weir_fs::layout::quota::Limits;

/// Error number, as programs see it.
pub type Errno = i32;

/// A file of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub kind: Kind,
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub device: u32,
    pub modified: i64,
    pub changed: i64,
    pub data: Vec<u8>,
    pub entries: BTreeMap<Vec<u8>, u64>,
    pub parent: u64,
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// It was created without a name, and may get its first one.
    pub is_linkable: bool,
}

/// A state of the file system. A clone is cheap.
#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: BTreeMap<u64, Rc<Node>>,
    pub limits: Limits,
    /// Files that were created without a name and are still open.
    pub unnamed: BTreeSet<u64>,
    next: u64,
}

pub const ROOT: u64 = 0;

fn node(kind: Kind, permissions: u32, now: i64) -> Node {
    Node {
        kind,
        permissions,
        uid: 0,
        gid: 0,
        links: 1,
        device: 0,
        modified: now,
        changed: now,
        data: Vec::new(),
        entries: BTreeMap::new(),
        parent: ROOT,
        attributes: BTreeMap::new(),
        is_linkable: false,
    }
}

impl Model {
    pub fn new() -> Self {
        let root = Node { links: 2, ..node(Kind::Directory, 0o755, 0) };
        let nodes = BTreeMap::from([(ROOT, Rc::new(root))]);
        Self { nodes, limits: Limits::new(), unnamed: BTreeSet::new(), next: 1 }
    }

    /// Returns whether programs can still change the file.
    pub fn is_alive(&self, id: u64) -> bool {
        self.get(id).links > 0 || self.unnamed.contains(&id)
    }

    /// Returns the number of the next node.
    pub const fn next_id(&self) -> u64 {
        self.next
    }

    pub fn get(&self, id: u64) -> &Node {
        &self.nodes[&id]
    }

    pub fn change(&mut self, id: u64) -> &mut Node {
        Rc::make_mut(self.nodes.get_mut(&id).expect("the node exists"))
    }

    pub fn find(&self, parent: u64, name: &[u8]) -> Option<u64> {
        self.get(parent).entries.get(name).copied()
    }

    fn add_name(&mut self, parent: u64, name: &[u8], id: u64, now: i64) {
        let is_directory = self.get(id).kind == Kind::Directory;
        let directory = self.change(parent);
        directory.entries.insert(name.to_vec(), id);
        directory.links += u32::from(is_directory);
        (directory.modified, directory.changed) = (now, now);
        if is_directory {
            self.change(id).parent = parent;
        }
    }

    fn remove_name(&mut self, parent: u64, name: &[u8], now: i64) {
        let id = self.find(parent, name).expect("the name exists");
        let is_directory = self.get(id).kind == Kind::Directory;
        let directory = self.change(parent);
        directory.entries.remove(name);
        directory.links -= u32::from(is_directory);
        (directory.modified, directory.changed) = (now, now);
    }

    /// Removes one link; the node stays for the history, even without any.
    fn drop_link(&mut self, id: u64, now: i64) {
        let node = self.change(id);
        node.changed = now;
        node.links = if node.kind == Kind::Directory { 0 } else { node.links - 1 };
    }

    pub fn create(
        &mut self,
        parent: u64,
        name: &[u8],
        (kind, permissions, device): (Kind, u32, u32),
        target: &[u8],
        now: i64,
    ) -> Result<u64, Errno> {
        if self.find(parent, name).is_some() {
            return Err(libc::EEXIST);
        }
        let mut new = node(kind, permissions, now);
        new.device = device;
        new.links = if kind == Kind::Directory { 2 } else { 1 };
        new.data = target.to_vec();
        let id = self.add_node(parent, new);
        self.add_name(parent, name, id, now);
        Ok(id)
    }

    /// Adds a node with what it inherits from a directory.
    fn add_node(&mut self, parent: u64, mut new: Node) -> u64 {
        let id = self.next;
        self.next += 1;
        let directory = self.get(parent);
        if directory.permissions & libc::S_ISGID != 0 {
            new.gid = directory.gid;
            new.permissions |= if new.kind == Kind::Directory { libc::S_ISGID } else { 0 };
        }
        self.nodes.insert(id, Rc::new(new));
        id
    }

    /// Creates a file without a name, which is open until it is taken from `unnamed`.
    pub fn create_unnamed(&mut self, parent: u64, permissions: u32, is_linkable: bool, now: i64) {
        let new = Node { links: 0, is_linkable, ..node(Kind::File, permissions, now) };
        let id = self.add_node(parent, new);
        self.unnamed.insert(id);
    }

    pub fn link(&mut self, id: u64, parent: u64, name: &[u8], now: i64) -> Result<(), Errno> {
        if self.get(id).kind == Kind::Directory {
            return Err(libc::EPERM);
        }
        if self.find(parent, name).is_some() {
            return Err(libc::EEXIST);
        }
        if self.get(id).links == 0 && !self.get(id).is_linkable {
            return Err(libc::ENOENT);
        }
        let node = self.change(id);
        node.links += 1;
        node.is_linkable = false;
        node.changed = now;
        self.add_name(parent, name, id, now);
        Ok(())
    }

    pub fn unlink(&mut self, parent: u64, name: &[u8], now: i64) -> Result<(), Errno> {
        let id = self.find(parent, name).ok_or(libc::ENOENT)?;
        if self.get(id).kind == Kind::Directory {
            return Err(libc::EISDIR);
        }
        self.remove_name(parent, name, now);
        self.drop_link(id, now);
        Ok(())
    }

    pub fn remove_directory(&mut self, parent: u64, name: &[u8], now: i64) -> Result<(), Errno> {
        let id = self.find(parent, name).ok_or(libc::ENOENT)?;
        if self.get(id).kind != Kind::Directory {
            return Err(libc::ENOTDIR);
        }
        if !self.get(id).entries.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.remove_name(parent, name, now);
        self.drop_link(id, now);
        Ok(())
    }

    fn is_within(&self, id: u64, ancestor: u64) -> bool {
        let mut at = id;
        while at != ROOT {
            if at == ancestor {
                return true;
            }
            at = self.get(at).parent;
        }
        ancestor == ROOT
    }

    pub fn rename(
        &mut self,
        (parent, name): (u64, &[u8]),
        (new_parent, new_name): (u64, &[u8]),
        (no_replace, exchange): (bool, bool),
        now: i64,
    ) -> Result<(), Errno> {
        let source = self.find(parent, name).ok_or(libc::ENOENT)?;
        let target = self.find(new_parent, new_name);
        let is_directory = |model: &Self, id: u64| model.get(id).kind == Kind::Directory;
        if is_directory(self, source) && self.is_within(new_parent, source) {
            return Err(libc::EINVAL);
        }
        match target {
            Some(_) if no_replace => return Err(libc::EEXIST),
            None if exchange => return Err(libc::ENOENT),
            Some(target) if target == source => return Ok(()),
            _ => {}
        }
        if let Some(target) = target {
            if exchange {
                if is_directory(self, target) && self.is_within(parent, target) {
                    return Err(libc::EINVAL);
                }
                self.remove_name(parent, name, now);
                self.remove_name(new_parent, new_name, now);
                self.add_name(parent, name, target, now);
                self.change(target).changed = now;
            } else {
                match (is_directory(self, source), is_directory(self, target)) {
                    (true, false) => return Err(libc::ENOTDIR),
                    (false, true) => return Err(libc::EISDIR),
                    (true, true) if !self.get(target).entries.is_empty() => return Err(libc::ENOTEMPTY),
                    _ => {}
                }
                self.remove_name(new_parent, new_name, now);
                self.drop_link(target, now);
                self.remove_name(parent, name, now);
            }
        } else {
            self.remove_name(parent, name, now);
        }
        self.add_name(new_parent, new_name, source, now);
        self.change(source).changed = now;
        Ok(())
    }

    pub fn write(&mut self, id: u64, offset: usize, bytes: &[u8], now: i64) {
        let node = self.change(id);
        let end = offset + bytes.len();
        if node.data.len() < end {
            node.data.resize(end, 0);
        }
        node.data[offset..end].copy_from_slice(bytes);
        (node.modified, node.changed) = (now, now);
    }

    pub fn truncate(&mut self, id: u64, size: usize, now: i64) {
        let node = self.change(id);
        node.data.resize(size, 0);
        (node.modified, node.changed) = (now, now);
    }

    pub fn zero(&mut self, id: u64, from: usize, to: usize, now: i64) {
        let node = self.change(id);
        let len = node.data.len();
        node.data[from.min(len)..to.min(len)].fill(0);
        (node.modified, node.changed) = (now, now);
    }

    /// What follows the allocation of a range up to `end`.
    pub fn grow(&mut self, id: u64, end: usize, keep_size: bool, now: i64) {
        let node = self.change(id);
        if !keep_size && end > node.data.len() {
            node.data.resize(end, 0);
            node.modified = now;
        }
        node.changed = now;
    }
}
