//! Damages that the check must find.

use super::*;
use crate::layout::inode::Kind;
use crate::layout::superblock::Superblock;
use crate::layout::{Geometry, Time};
use crate::namespace::{Durability, New};
use crate::nvm::{Granule, Simulated};

type Fs = FileSystem<Simulated>;

fn file_system() -> Fs {
    let geometry = Geometry::new(2 << 20, Geometry::CHUNK_BYTES_MIN).expect("a possible size");
    let superblock = Superblock { geometry, uuid: [1; 16], hash_key: [2; 16], has_tiers: false };
    let memory = Simulated::new(2 << 20, Granule::Word);
    let memory = FileSystem::create(memory, &superblock, (0, 0), Time::default()).expect("a new file system");
    let mut fs = FileSystem::open(memory, Durability::Sync).expect("the file system");
    for (name, kind) in [(b"file", Kind::File), (b"dirs", Kind::Directory), (b"gone", Kind::File)] {
        let new = New { kind, permissions: 0o755, uid: 0, gid: 0, device: 0, target: &[], attributes: &[] };
        let (ino, _) = fs.create_file(Ino::ROOT, name, &new, Time::default()).expect("space");
        if kind == Kind::File {
            fs.write(ino, 0, &[1; 5000], Time::default()).expect("space");
        }
    }
    let (ino, _) = fs.lookup(Ino::ROOT, b"file").expect("it");
    fs.write(ino, 60_000, &[1; 9000], Time::default()).expect("space");
    fs.unlink(Ino::ROOT, b"gone", Time::default()).expect("it");
    fs.sync().expect("no failure");
    fs
}

/// Plants a damage and expects one finding or more, the first with this text in it.
fn finds(text: &str, damage: impl FnOnce(&mut Fs)) {
    let mut fs = file_system();
    let report = check(&fs);
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!((report.directories, report.files, report.orphans), (2, 1, 0));
    damage(&mut fs);
    let report = check(&fs);
    assert!(report.findings.iter().any(|finding| finding.contains(text)), "{text}: {report:#?}");
}

fn inode_at(fs: &Fs, ino: Ino) -> u64 {
    let geometry = fs.superblock().geometry;
    let (index, slot) = geometry.slot_of(ino);
    let chunk = fs.inode_chunks().nth(index as usize).expect("a chunk");
    geometry.chunk_at(chunk) + slot * 256
}

fn change_inode(fs: &mut Fs, name: &[u8], change: impl FnOnce(&mut Inode)) {
    let (ino, mut inode) = fs.lookup(Ino::ROOT, name).expect("the file");
    change(&mut inode);
    let at = inode_at(fs, ino);
    fs.store_mut().stage(at, &inode.encode());
}

#[test]
fn damaged_superblocks_are_found() {
    finds("first copy of the superblock", |fs| fs.store_mut().stage(100, &[1]));
    finds("second copy of the superblock", |fs| fs.store_mut().stage(Geometry::COPY_AT + 64, &[9]));
}

#[test]
fn damaged_inodes_are_found() {
    finds("has 1 names, but 2 links", |fs| change_inode(fs, b"file", |inode| inode.links = 2));
    finds("its type is not that", |fs| {
        change_inode(fs, b"file", |inode| inode.mode = Kind::Fifo.mode_bits());
    });
    finds("pages, but says", |fs| change_inode(fs, b"file", |inode| inode.pages += 1));
    finds("impossible size", |fs| change_inode(fs, b"file", |inode| inode.size = u64::MAX));
    finds("0 entries and 3 links, but", |fs| change_inode(fs, b"dirs", |inode| inode.links = 3));
    finds("this directory belongs to", |fs| change_inode(fs, b"dirs", |inode| inode.parent = Ino(9)));
    finds("page 200 does not exist or belongs to several", |fs| {
        change_inode(fs, b"dirs", |inode| inode.attributes = Some((Page(200), 1)));
        change_inode(fs, b"file", |inode| inode.attributes = Some((Page(200), 1)));
    });
}

#[test]
fn numbers_beyond_the_region_are_found() {
    finds("has page 99999", |fs| {
        let form = Form::Run { first: Page(99_999), pages: 1 };
        change_inode(fs, b"dirs", |inode| inode.form = form);
    });
    finds("has page 18446744073709551615", |fs| {
        change_inode(fs, b"file", |inode| inode.attributes = Some((Page(u64::MAX), 1)));
    });
    finds("chunk 77777 does not exist", |fs| {
        let (ino, inode) = fs.lookup(Ino::ROOT, b"file").expect("the file");
        let Form::Tree { root, .. } = inode.form else { panic!("a file with chunks") };
        fs.store_mut().stage(root.address() + 4, &77_777_u32.to_le_bytes());
        let mut byte = [7];
        fs.read(ino, 65_536, &mut byte).expect("a read");
        assert_eq!(byte, [0], "a chunk that does not exist is a hole");
    });
}

#[test]
fn damaged_tables_are_found() {
    finds("its page bits are not", |fs| {
        let geometry = fs.superblock().geometry;
        let mut chunks = (0..geometry.chunks()).map(crate::layout::Chunk);
        let is_pages = |chunk: &crate::layout::Chunk| {
            let entry = fs.space().entry(fs.store(), *chunk).expect("an entry");
            entry.usage == crate::layout::chunk::Use::Pages
        };
        let chunk = chunks.find(is_pages).expect("a chunk of pages");
        fs.store_mut().stage(geometry.entry_at(chunk) + 64 + 1, &[0xff]);
    });
    finds("the table says", |fs| {
        let at = fs.superblock().geometry.entry_at(crate::layout::Chunk(0));
        fs.store_mut().stage(at, &[0]);
    });
    finds("is allocated, but has no name", |fs| {
        let chunk = fs.inode_chunks().next().expect("a chunk");
        let at = fs.superblock().geometry.chunk_at(chunk);
        fs.store_mut().stage(at + 3, &[0x80]);
    });
    finds("is in use, but its bit says", |fs| {
        let chunk = fs.inode_chunks().next().expect("a chunk");
        let at = fs.superblock().geometry.chunk_at(chunk);
        fs.store_mut().stage(at, &[0x0f]);
    });
    finds("has neither a name nor its bit, but a mode", |fs| {
        let free = fs.superblock().geometry.ino_of(0, 200);
        assert!(fs.inode(free).is_err());
        let at = inode_at(fs, free);
        fs.store_mut().stage(at, &Kind::File.mode_bits().to_le_bytes());
    });
    // The chunk that nobody has any more is free, so that nothing else is wrong.
    finds("belongs to several", |fs| {
        use crate::layout::chunk::{Entry, Use};
        let (_, inode) = fs.lookup(Ino::ROOT, b"file").expect("it");
        let Form::Tree { root, height: 1 } = inode.form else { panic!("a file with two chunks") };
        let [lost, shared] = [0, 4].map(|at| Chunk(fs.store().load_u32(root.address() + at)));
        fs.store_mut().stage(root.address(), &shared.0.to_le_bytes());
        let at = fs.superblock().geometry.entry_at(lost);
        let free = Entry { usage: Use::Free, wear: 1, owner: 0, index: 0, free_inodes: 0 };
        fs.store_mut().stage(at, &free.encode());
    });
    finds("the list of null files has", |fs| {
        fs.store_mut().stage(Geometry::ROOTS_AT + 8, &[0; 8]);
    });
    finds("is on the list of orphans, but is none", |fs| {
        let mut removed = Vec::new();
        for name in [b"one", b"two"] {
            let (ino, _) =
                fs.create_file(Ino::ROOT, name, &crate::testing::NEW, Time::default()).expect("space");
            fs.refer(ino);
            fs.unlink(Ino::ROOT, name, Time::default()).expect("it");
            removed.push(ino);
        }
        assert_eq!(check(fs).findings, [""; 0]);
        // The later one is first; freeing it would not change what the list begins with.
        let (at, inode) = (inode_at(fs, removed[1]), fs.inode(removed[1]).expect("it is open"));
        fs.store_mut().stage(at, &Inode { previous: Some(removed[0]), ..inode }.encode());
    });
}

#[test]
fn damaged_directories_are_found() {
    let first_record = |fs: &Fs| {
        let root = fs.inode(Ino::ROOT).expect("the root");
        let page = fs.bucket_page(&root, 0).expect("a bucket");
        page.address() + 8
    };
    finds("it is in the wrong bucket", |fs| {
        let at = first_record(fs);
        fs.store_mut().stage(at, &[0xff; 2]);
    });
    finds("is damaged", |fs| {
        let at = first_record(fs);
        fs.store_mut().stage(at + 16, &[3]);
    });
    finds("no such file", |fs| {
        let at = first_record(fs);
        fs.store_mut().stage(at + 8, &[0x77]);
    });
}
