//! All that programs can see of a file system, by path.

use super::model::{Model, Node, ROOT};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use weir_fs::error::Result;
use weir_fs::layout::Ino;
use weir_fs::layout::inode::Kind;
use weir_fs::layout::quota::Limits;
use weir_fs::namespace::FileSystem;
use weir_fs::nvm::Memory;

/// Bytes of a file that a snapshot has at most.
const DATA_BYTES_MAX: u64 = 16 << 20;

/// All that programs can see of a file, except its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub mode: u32,
    pub owner: (u32, u32),
    pub links: u32,
    pub size: u64,
    pub device: u32,
    pub times: (i64, i64),
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path of the same file.
    pub first_path: String,
}

/// Files by path.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub files: BTreeMap<String, Seen>,
    /// Bytes of files and targets of links.
    pub data: BTreeMap<String, Vec<u8>>,
    /// Files whose containers the kernel may have changed without the server.
    pub flagged: BTreeSet<String>,
    /// Limits of users and groups.
    pub limits: Limits,
}

fn join(path: &str, name: &[u8]) -> String {
    format!("{path}/{}", String::from_utf8_lossy(name))
}

/// Returns what the model has, and the model's number of each path.
pub fn of_model(model: &Model) -> (Snapshot, BTreeMap<String, u64>) {
    let mut snapshot = Snapshot { limits: model.limits.clone(), ..Snapshot::default() };
    let mut ids = BTreeMap::new();
    let mut left = vec![(String::new(), ROOT)];
    while let Some((path, id)) = left.pop() {
        let node = model.get(id);
        let size = if node.kind == Kind::Directory { 0 } else { node.data.len() as u64 };
        let seen = Seen {
            mode: node.kind.mode_bits() | node.permissions,
            owner: (node.uid, node.gid),
            links: node.links,
            size,
            device: node.device,
            times: (node.modified, node.changed),
            attributes: node.attributes.clone(),
            first_path: String::new(),
        };
        snapshot.files.insert(path.clone(), seen);
        ids.insert(path.clone(), id);
        left.extend(node.entries.iter().map(|(name, id)| (join(&path, name), *id)));
    }
    name_files(&mut snapshot, &ids);
    (snapshot, ids)
}

/// Returns what the file system has, and the inode of each path.
pub fn of_file_system<M: Memory>(fs: &FileSystem<M>) -> Result<(Snapshot, BTreeMap<String, u64>)> {
    let mut snapshot = Snapshot { limits: fs.limits().clone(), ..Snapshot::default() };
    let mut inos = BTreeMap::new();
    let mut left = vec![(String::new(), Ino::ROOT)];
    while let Some((path, ino)) = left.pop() {
        let inode = fs.inode(ino)?;
        let is_directory = inode.is_directory();
        let seen = Seen {
            mode: inode.mode,
            owner: (inode.uid, inode.gid),
            links: inode.links,
            size: if is_directory { 0 } else { inode.size },
            device: inode.device,
            times: (inode.modified.seconds, inode.changed.seconds),
            attributes: fs.attributes(ino)?.into_iter().collect(),
            first_path: String::new(),
        };
        if matches!(inode.kind(), Some(Kind::File | Kind::Symlink)) {
            // Only damage makes files this large.
            let mut data = vec![0xee; inode.size.min(DATA_BYTES_MAX) as usize];
            let read = fs.read(ino, 0, &mut data)?;
            assert_eq!(read, data.len(), "{path}: a read ends early");
            snapshot.data.insert(path.clone(), data);
        }
        if inode.is_passthrough {
            snapshot.flagged.insert(path.clone());
        }
        snapshot.files.insert(path.clone(), seen);
        inos.insert(path.clone(), ino.0);
        if is_directory {
            let entries = fs.list(ino, 0, usize::MAX)?;
            assert!(entries.is_sorted_by(|a, b| a.hash < b.hash), "{path}: entries are not in order");
            left.extend(entries.into_iter().map(|entry| (join(&path, &entry.name), entry.ino)));
        }
    }
    name_files(&mut snapshot, &inos);
    Ok((snapshot, inos))
}

/// Notes for each file its first path, so that hard links compare equal.
fn name_files(snapshot: &mut Snapshot, numbers: &BTreeMap<String, u64>) {
    let mut first: BTreeMap<u64, String> = BTreeMap::new();
    for (path, number) in numbers {
        let name = first.entry(*number).or_insert_with(|| path.clone()).clone();
        if let Some(seen) = snapshot.files.get_mut(path) {
            seen.first_path = name;
        }
    }
}

/// A state of the model, with what programs see of it.
pub struct State {
    pub model: Model,
    pub snapshot: Snapshot,
    pub ids: BTreeMap<String, u64>,
}

impl State {
    pub fn of(model: &Model) -> Self {
        let (snapshot, ids) = of_model(model);
        Self { model: model.clone(), snapshot, ids }
    }
}

/// What files were since the last sync of their containers, by the model's numbers.
pub type Behind = BTreeMap<u64, Vec<Rc<Node>>>;

/// Compares what was found with `states[0]`. Bytes may be those of any of the states, as long as the file has
/// them there. Flagged files may have any of the sizes, times and bytes that they had since the last sync of
/// their containers.
pub fn compare(found: &Snapshot, states: &[State], behind: &Behind) -> std::result::Result<(), String> {
    let State { model, snapshot: expected, ids } = &states[0];
    let mut found = found.clone();
    for path in found.flagged.clone() {
        let (Some(id), Some(expected)) = (ids.get(&path), expected.files.get(&path)) else { continue };
        let seen = found.files.get_mut(&path).expect("it was found");
        compare_flagged(seen, &found.data[&path], behind.get(id).map_or(&[], |versions| &versions[..]))
            .map_err(|error| format!("{path:?}: {error}"))?;
        (seen.size, seen.times) = (expected.size, expected.times);
        found.data.remove(&path);
    }
    if found.limits != expected.limits {
        return Err(format!("found limits {:?}, expected {:?}", found.limits, expected.limits));
    }
    if found.files != expected.files {
        let paths = found.files.keys().chain(expected.files.keys());
        let path = paths.filter(|path| found.files.get(*path) != expected.files.get(*path)).min();
        let path = path.expect("they differ");
        let (found, expected) = (found.files.get(path), expected.files.get(path));
        return Err(format!("{path:?}: found {found:?}, expected {expected:?}"));
    }
    for (path, data) in &found.data {
        let id = ids[path];
        let is_possible = |at: usize| {
            let versions = states.iter().filter_map(|state| state.model.nodes.get(&id));
            versions.into_iter().any(|node| node.data.get(at) == Some(&data[at]))
        };
        let expected = &model.get(id).data;
        if data != expected
            && let Some(at) = (0..data.len()).find(|&at| !is_possible(at))
        {
            let (found, expected) = (data[at], expected[at]);
            return Err(format!("{path:?}: byte {at} is {found}, which it never was; expected {expected}"));
        }
    }
    Ok(())
}

/// Compares a file that the kernel may have changed without the server with what it may be.
fn compare_flagged(seen: &Seen, data: &[u8], versions: &[Rc<Node>]) -> std::result::Result<(), String> {
    let has = |is_so: &dyn Fn(&Node) -> bool| versions.iter().any(|node| is_so(node));
    if !has(&|node| node.data.len() as u64 == seen.size) {
        return Err(format!("it never had {} bytes", seen.size));
    }
    if !has(&|node| node.modified == seen.times.0) || !has(&|node| node.changed == seen.times.1) {
        return Err(format!("it never had the times {:?}", seen.times));
    }
    // What was beyond its end may be zeros now.
    let is_possible =
        |at: usize| has(&|node| node.data.get(at).map_or(data[at] == 0, |byte| *byte == data[at]));
    match (0..data.len()).find(|at| !is_possible(*at)) {
        Some(at) => Err(format!("byte {at} is {}, which it never was", data[at])),
        None => Ok(()),
    }
}
