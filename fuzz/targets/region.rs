//! Overwrites metadata of a small region, chosen by the input, then opens, checks, repairs and uses it. Nothing
//! panics, a repair ends in a clean file system or in a refusal, and so do further operations on a repaired one.
//!
//! The first byte is the number of damages, four bytes each: the page, the offset in it, and the new byte. What
//! follows are operations, three bytes each.
#![no_main]

use std::io;
use std::sync::OnceLock;
use weir_fs::check::check;
use weir_fs::layout::inode::{Form, Inode, Kind};
use weir_fs::layout::quota::{Limit, Owner};
use weir_fs::layout::superblock::{Superblock, checksum};
use weir_fs::layout::{Chunk, Geometry, Ino, PAGE_BYTES, Time};
use weir_fs::namespace::{Allocate, Durability, FileSystem, New, RenameHow, Seek, SetAttribute};
use weir_fs::nvm::Memory;
use weir_fs::repair::{Refusal, repair};

const SIZE: u64 = 14 << 16;
const NOW: Time = Time { seconds: 1, nanos: 0 };
const NAMES: [&[u8]; 8] = [b"small", b"large", b"link", b"dirs", b"below", b"deep", b"second", b"new"];

#[derive(Clone)]
struct Ram(Vec<u8>);

impl Memory for Ram {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }
    fn load(&self, at: u64, out: &mut [u8]) {
        out.copy_from_slice(&self.0[at as usize..][..out.len()]);
    }
    fn bytes(&self, at: u64, len: usize) -> &[u8] {
        &self.0[at as usize..][..len]
    }
    fn store(&mut self, at: u64, bytes: &[u8]) {
        self.0[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    fn zero(&mut self, at: u64, len: u64) {
        self.0[at as usize..][..len as usize].fill(0);
    }
    fn flush(&mut self, _: u64, _: u64) {}
    fn fence(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Fs = FileSystem<Ram>;

/// A region with files of all forms, and the addresses of its pages of metadata.
fn template() -> &'static (Ram, Vec<u64>) {
    static TEMPLATE: OnceLock<(Ram, Vec<u64>)> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let geometry = Geometry::new(SIZE, Geometry::CHUNK_BYTES_MIN).expect("a possible size");
        let superblock = Superblock { geometry, uuid: [1; 16], hash_key: [2; 16], has_tiers: false };
        let memory = FileSystem::create(Ram(vec![0; SIZE as usize]), &superblock, (0, 0), NOW).expect("space");
        let mut fs = FileSystem::open(memory, Durability::Sync).expect("a file system");
        let mut inos = vec![Ino::ROOT];
        for (name, kind, len) in [
            ("small", Kind::File, 5000),
            ("large", Kind::File, 100_000),
            ("link", Kind::Symlink, 0),
            ("dirs", Kind::Directory, 0),
        ] {
            inos.push(make(&mut fs, Ino::ROOT, name.as_bytes(), kind, len));
        }
        make(&mut fs, inos[4], b"below", Kind::File, 100);
        inos.push(make(&mut fs, inos[4], b"deep", Kind::Directory, 0));
        make(&mut fs, Ino::ROOT, b"gone", Kind::File, 100);
        fs.link(inos[1], Ino::ROOT, b"second", NOW).expect("space");
        fs.set_attribute(inos[1], b"user.a", b"value", SetAttribute::Always, NOW).expect("space");
        fs.unlink(Ino::ROOT, b"gone", NOW).expect("it");
        let limit = Limit { bytes: Some(1 << 30), inodes: Some(100) };
        fs.set_limit(Owner::User(0), limit).expect("space");
        fs.sync().expect("no failure");
        // The log has a change that damages nothing else.
        fs.set_attribute(inos[2], b"user.b", b"", SetAttribute::Always, NOW).expect("space");
        fs.sync().expect("no failure");
        let inodes = Chunk(fs.store().load_u32(geometry.inode_map_at()));
        let mut pages = vec![0, Geometry::COPY_AT, Geometry::ROOTS_AT, Geometry::LOG_AT, geometry.table_at()];
        pages.extend([geometry.inode_map_at(), geometry.chunk_at(inodes), geometry.chunk_at(inodes)]);
        pages.extend(inos.iter().filter_map(|ino| page(&fs.inode(*ino).expect("it"))));
        for ino in [Ino::ROOT, inos[1]] {
            let (first, _) = fs.inode(ino).expect("it").attributes.expect("attributes");
            pages.push(first.address());
        }
        (fs.into_memory(), pages)
    })
}

fn page(inode: &Inode) -> Option<u64> {
    match inode.form {
        Form::Run { first, .. } if inode.is_directory() => Some(first.address()),
        Form::Tree { root, .. } => Some(root.address()),
        _ => None,
    }
}

fn make(fs: &mut Fs, parent: Ino, name: &[u8], kind: Kind, len: usize) -> Ino {
    let target: &[u8] = if kind == Kind::Symlink { b"target" } else { b"" };
    let new = New { kind, permissions: 0o755, uid: 0, gid: 0, device: 0, target, attributes: &[] };
    let (ino, _) = fs.create_file(parent, name, &new, NOW).expect("space");
    if len > 0 {
        fs.write(ino, 0, &vec![7; len], NOW).expect("space");
    }
    ino
}

fn damaged(steps: &[[u8; 4]]) -> Ram {
    let (memory, pages) = template();
    let mut memory = memory.clone();
    for [page, low, high, value] in steps {
        let start = pages[usize::from(*page) % pages.len()] as usize;
        memory.0[start + usize::from(u16::from_le_bytes([*low, *high])) % PAGE_BYTES as usize] = *value;
        // Half of the damages to a superblock get the right checksum.
        if start < 2 * PAGE_BYTES as usize && *page >= 128 {
            let page = &mut memory.0[start..start + PAGE_BYTES as usize];
            let sum = checksum(&page[..PAGE_BYTES as usize - 8]);
            page[PAGE_BYTES as usize - 8..].copy_from_slice(&sum.to_le_bytes());
        }
    }
    memory
}

/// Runs an operation, which may fail.
fn operate(fs: &mut Fs, [operation, first, second]: [u8; 3]) {
    let name = |number: u8| NAMES[usize::from(number) % NAMES.len()];
    let parent = if first & 0x80 == 0 { Ino::ROOT } else { Ino(u64::from(second) % 16) };
    let ino = fs.lookup(parent, name(first)).map_or(Ino(u64::from(first) % 32), |(ino, _)| ino);
    let at = u64::from(second) << (first % 12);
    let to = (parent, name(second));
    let kind = [Kind::File, Kind::Directory, Kind::Symlink][usize::from(second) % 3];
    let new = New { kind, permissions: 0o755, uid: 0, gid: 0, device: 0, target: b"t", attributes: &[] };
    match operation % 20 {
        0 => drop(fs.write(ino, at, &vec![second; 1 << (first % 17)], NOW)),
        1 => drop(fs.read(ino, at, &mut vec![0; 70_000])),
        2 => drop(fs.truncate(ino, at, NOW)),
        3 => drop(fs.create_file(parent, name(first), &new, NOW)),
        4 => drop(fs.unlink(parent, name(first), NOW)),
        5 => drop(fs.remove_directory(parent, name(first), NOW)),
        6 => drop(fs.rename((Ino::ROOT, name(first)), to, RenameHow::Replace, NOW)),
        7 => drop(fs.rename((Ino::ROOT, name(first)), to, RenameHow::Exchange, NOW)),
        8 => drop(fs.link(ino, parent, name(second), NOW)),
        9 => drop(fs.set_attribute(ino, name(second), &vec![first; at as usize % 9000], SetAttribute::Always, NOW)),
        10 => drop(fs.remove_attribute(ino, name(second), NOW)),
        11 => drop(fs.allocate(ino, at..at + 5000, Allocate::Space { keep_size: false }, NOW)),
        12 => drop(fs.allocate(ino, at..at + 70_000, Allocate::PunchHole, NOW)),
        13 => drop((fs.seek(ino, at, Seek::Data), fs.seek(ino, at, Seek::Hole))),
        14 => drop(fs.copy_range((ino, 0), (Ino(u64::from(second) % 16), at), 70_000, NOW)),
        15 => drop((fs.list(ino, 0, 100), fs.attributes(ino), fs.read_link(ino), fs.locate(ino, 10))),
        16 => drop(fs.sync()),
        17 => drop((fs.enforce_limits(second % 2 == 0), fs.count_inodes(u64::from(second)))),
        18 => {
            let limit = Limit { bytes: (second > 9).then_some(at), inodes: (first > 9).then_some(second.into()) };
            drop(fs.set_limit(Owner::User(first.into()), limit));
        }
        _ => drop((fs.usage(), fs.wear(), fs.forget_all())),
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((count, rest)) = bytes.split_first() else { return };
    let (damages, operations) = rest.split_at(rest.len().min(usize::from(*count % 32) * 4));
    let (operations, _) = operations.as_chunks::<3>();
    let memory = damaged(damages.as_chunks::<4>().0);
    if let Ok(fs) = FileSystem::open_read_only(memory.clone()) {
        check(&fs);
    }
    if let Ok(mut fs) = FileSystem::open(memory.clone(), Durability::Sync) {
        operations.iter().take(32).for_each(|operation| operate(&mut fs, *operation));
        check(&fs);
    }
    let repaired = match repair(memory, NOW) {
        Ok((memory, _)) => memory,
        Err(Refusal::Incomplete(findings)) => panic!("the repair left {findings:#?}"),
        Err(_) => return,
    };
    let mut fs = FileSystem::open(repaired, Durability::Sync).expect("a repaired file system can be mounted");
    operations.iter().take(32).for_each(|operation| operate(&mut fs, *operation));
    fs.sync().expect("no failure");
    let report = check(&fs);
    assert!(report.is_clean(), "{:#?}", report.findings);
});
