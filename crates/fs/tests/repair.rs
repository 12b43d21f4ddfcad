//! Each kind of damage that the check finds, and what the repair makes of it.

mod support;

use support::damage::{Fs, inode_at};
use support::pair::{self, format, format_with_tiers};
use weir_fs::check::check;
use weir_fs::error::Error;
use weir_fs::layout::chunk::{ENTRY_BYTES, Use};
use weir_fs::layout::inode::{Form, Inode, Kind};
use weir_fs::layout::superblock::checksum;
use weir_fs::layout::{Chunk, Geometry, Ino, PAGE_BYTES, Page, Time};
use weir_fs::namespace::{Change, Durability, FileSystem, New, SetAttribute};
use weir_fs::nvm::{Granule, Memory as _, Simulated};
use weir_fs::repair::{Outcome, Refusal, repair};
use weir_fs::tiers::{Container, SimulatedContainers, TierNumber};

const NOW: Time = Time { seconds: 7, nanos: 0 };
const SIZE: u64 = 3 << 20;

fn new(kind: Kind) -> New<'static> {
    let target: &[u8] = if kind == Kind::Symlink { b"target" } else { b"" };
    New { kind, permissions: 0o755, uid: 5, gid: 6, device: 0, target, attributes: &[] }
}

/// `small` (5000 bytes of 1, two names), `other` (9000 bytes of 2), `large` (150,000 bytes of 3, in chunks),
/// `link`, `dirs` with `below` (100 bytes of 4) and `deep`, and a null file.
fn file_system() -> Fs {
    file_system_of(SIZE)
}

fn file_system_of(size: u64) -> Fs {
    let memory = format(Simulated::new(size, Granule::Word));
    let mut fs = FileSystem::open(memory, Durability::Sync).expect("the file system");
    let mut make = |parent: Ino, name: &[u8], kind: Kind, bytes: &[u8]| {
        let (ino, _) = fs.create_file(parent, name, &new(kind), NOW).expect("space");
        if !bytes.is_empty() {
            assert_eq!(fs.write(ino, 0, bytes, NOW).expect("space"), bytes.len());
        }
        ino
    };
    let small = make(Ino::ROOT, b"small", Kind::File, &[1; 5000]);
    make(Ino::ROOT, b"other", Kind::File, &[2; 9000]);
    make(Ino::ROOT, b"large", Kind::File, &[3; 150_000]);
    make(Ino::ROOT, b"link", Kind::Symlink, &[]);
    let dirs = make(Ino::ROOT, b"dirs", Kind::Directory, &[]);
    make(dirs, b"below", Kind::File, &[4; 100]);
    make(dirs, b"deep", Kind::Directory, &[]);
    make(Ino::ROOT, b"gone", Kind::File, &[5; 100]);
    fs.link(small, Ino::ROOT, b"second", NOW).expect("space");
    fs.set_attribute(small, b"user.a", b"value", SetAttribute::Always, NOW).expect("space");
    fs.unlink(Ino::ROOT, b"gone", NOW).expect("it");
    fs.sync().expect("no failure");
    // The log must not have what is damaged.
    let spare = fs.create_file(Ino::ROOT, b"spare", &new(Kind::Fifo), NOW);
    let (spare, _) = spare.expect("space");
    fs.sync().expect("no failure");
    let change = Change { permissions: Some(0o600), ..Change::default() };
    fs.set_attributes(spare, &change, NOW).expect("no failure");
    fs.sync().expect("no failure");
    fs
}

fn find(fs: &Fs, path: &str) -> (Ino, Inode) {
    let start = (Ino::ROOT, fs.inode(Ino::ROOT).expect("the root"));
    let step = |(ino, _): (Ino, Inode), name: &str| fs.lookup(ino, name.as_bytes());
    path.split('/').try_fold(start, step).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn contents(fs: &Fs, path: &str) -> Vec<u8> {
    let (ino, inode) = find(fs, path);
    let mut bytes = vec![0; inode.size as usize];
    fs.read(ino, 0, &mut bytes).expect("a read");
    bytes
}

/// The memory as a program that writes past weir leaves it.
fn damage(fs: &mut Fs, at: u64, bytes: &[u8]) {
    fs.store_mut().memory_mut().store(at, bytes);
}

fn change(fs: &mut Fs, path: &str, change: impl FnOnce(&mut Inode)) {
    let (ino, mut inode) = find(fs, path);
    change(&mut inode);
    let at = inode_at(fs, ino);
    damage(fs, at, &inode.encode());
}

/// Names whose files must be as they were.
const INTACT: [(&str, usize, u8); 5] = [
    ("small", 5000, 1),
    ("second", 5000, 1),
    ("other", 9000, 2),
    ("large", 150_000, 3),
    ("dirs/below", 100, 4),
];

fn repaired(damage: impl FnOnce(&mut Fs)) -> Result<(Fs, Outcome), Refusal> {
    let mut fs = file_system();
    assert!(check(&fs).is_clean(), "{:#?}", check(&fs));
    damage(&mut fs);
    let memory = fs.into_memory();
    if let Ok(fs) = FileSystem::open_read_only(memory.clone()) {
        let found = check(&fs);
        println!("{:#?}", found.findings);
        assert!(!found.is_clean(), "the check finds it");
    }
    let (memory, outcome) = repair(memory, NOW)?;
    println!("{outcome:#?}");
    let fs = FileSystem::open(memory, Durability::Sync).expect("it can be mounted");
    assert!(check(&fs).is_clean());
    Ok((fs, outcome))
}

/// Repairs a damage, and expects this text among what was lost, or, if nothing was, among what was repaired.
/// All files but those `except` are as they were.
fn repairs(text: &str, is_loss: bool, except: &[&str], damage: impl FnOnce(&mut Fs)) -> Fs {
    let (fs, outcome) = repaired(damage).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!(!outcome.lost.is_empty(), is_loss, "{outcome:#?}");
    let lines = if is_loss { &outcome.lost } else { &outcome.repaired };
    assert!(lines.iter().any(|line| line.contains(text)), "{text}: {outcome:#?}");
    for (path, len, byte) in INTACT.iter().filter(|(path, _, _)| !except.contains(path)) {
        assert!(contents(&fs, path) == vec![*byte; *len], "{path}");
    }
    fs
}

fn refuses(text: &str, damage: impl FnOnce(&mut Fs)) {
    let refusal = repaired(damage).map(|(_, outcome)| outcome).expect_err("a refusal");
    assert!(refusal.to_string().contains(text), "{refusal}");
}

fn chunk_of_use(fs: &Fs, usage: Use) -> Chunk {
    let chunks = (0..fs.superblock().geometry.chunks()).map(Chunk);
    let is = |chunk: &Chunk| fs.space().entry(fs.store(), *chunk).is_ok_and(|entry| entry.usage == usage);
    chunks.into_iter().find(is).expect("a chunk of this use")
}

fn entry_at(fs: &Fs, usage: Use) -> u64 {
    fs.superblock().geometry.entry_at(chunk_of_use(fs, usage))
}

fn bit_of(fs: &Fs, page: Page) -> (u64, u8) {
    let (chunk, at) = fs.superblock().geometry.chunk_of(page);
    (fs.superblock().geometry.entry_at(chunk) + 64 + at as u64 / 8, 1 << (at % 8))
}

fn run_of(fs: &Fs, path: &str) -> (Page, u32) {
    let Form::Run { first, pages } = find(fs, path).1.form else { panic!("{path} is no run") };
    (first, pages)
}

/// Returns the address of the record of a name.
fn record_at(fs: &Fs, directory: &str, name: &[u8]) -> u64 {
    let inode = if directory.is_empty() { fs.inode(Ino::ROOT).expect("it") } else { find(fs, directory).1 };
    let Form::Run { first, pages } = inode.form else { panic!("a small directory") };
    let mut bytes = vec![0; pages as usize * 4096];
    fs.store().load(first.address(), &mut bytes);
    let at = bytes.windows(name.len()).position(|window| window == name).expect("the name");
    first.address() + at as u64 - 24
}

#[test]
fn superblocks() {
    repairs("first copy of the superblock", false, &[], |fs| damage(fs, 100, &[1]));
    repairs("second copy of the superblock", false, &[], |fs| damage(fs, Geometry::COPY_AT + 64, &[9]));
    refuses("checksum is wrong", |fs| {
        damage(fs, 100, &[1]);
        damage(fs, Geometry::COPY_AT + 100, &[1]);
    });
    refuses("both copies of the superblock are sound, but differ", |fs| {
        let page = weir_fs::layout::superblock::Superblock { uuid: [9; 16], ..*fs.superblock() }.encode();
        damage(fs, Geometry::COPY_AT, &page);
    });
}

#[test]
fn a_complete_log_that_no_operation_wrote() {
    repairs("the log has line 99999999", true, &[], |fs| {
        let mut log = vec![0; 192];
        log[..8].copy_from_slice(b"weirlog\0");
        log[24..32].copy_from_slice(&1_u64.to_le_bytes());
        log[64..72].copy_from_slice(&99_999_999_u64.to_le_bytes());
        let sum = checksum(&log[16..]);
        log[8..16].copy_from_slice(&sum.to_le_bytes());
        damage(fs, Geometry::LOG_AT, &log);
    });
}

#[test]
fn the_chunk_table() {
    for usage in [Use::Pages, Use::Data, Use::Inodes, Use::System] {
        for value in [99_u32, 0, 1, 2, 3, 4] {
            let same = [0, 1, 2, 3, 4][usage as usize];
            if value != same {
                repairs("its entry of the chunk table", false, &[], |fs| {
                    let at = entry_at(fs, usage);
                    damage(fs, at, &value.to_le_bytes());
                });
            }
        }
    }
    let fs = repairs("its entry of the chunk table", false, &[], |fs| {
        let at = entry_at(fs, Use::Free);
        damage(fs, at, &4_u32.to_le_bytes());
    });
    assert!(fs.space().free_chunks() > 0, "a leaked chunk is free again");
    repairs("its entry of the chunk table", false, &[], |fs| {
        let at = entry_at(fs, Use::Data);
        damage(fs, at + 8, &77_u64.to_le_bytes());
    });
    let table = |fs: &mut Fs| {
        let geometry = fs.superblock().geometry;
        let len = u64::from(geometry.chunks()) * ENTRY_BYTES;
        damage(fs, geometry.table_at(), &vec![0; len as usize]);
    };
    repairs("its entry of the chunk table", false, &[], table);
}

#[test]
fn bits_of_pages() {
    repairs("which of its pages are free", false, &[], |fs| {
        let (at, bit) = bit_of(fs, run_of(fs, "other").0);
        let bits = fs.store().bytes::<1>(at)[0];
        damage(fs, at, &[bits & !bit]);
    });
    repairs("which of its pages are free", false, &[], |fs| {
        let chunk = chunk_of_use(fs, Use::Pages);
        let at = fs.superblock().geometry.entry_at(chunk) + 64;
        damage(fs, at, &[0xff; 2]);
    });
}

#[test]
fn the_bitmap_of_inodes() {
    let bitmap = |fs: &Fs| fs.superblock().geometry.chunk_at(chunk_of_use(fs, Use::Inodes));
    // Bits of the first four slots, which hold the bitmap itself, and beyond the last slot.
    for (byte, value) in [(0, 0xfe), (1000, 0)] {
        let fs = repairs("", false, &[], |fs| {
            let at = bitmap(fs) + byte;
            let bits = fs.store().bytes::<1>(at)[0];
            damage(fs, at, &[bits & value]);
            for name in [b"a", b"b"] {
                let made = fs.create_file(Ino::ROOT, name, &new(Kind::Directory), NOW);
                assert!(!matches!(made, Err(Error::Damaged(_))) || byte == 0, "{made:?}");
            }
        });
        drop(fs);
    }
    // Inodes in use, then inodes that are free.
    repairs("", false, &[], |fs| {
        let at = bitmap(fs);
        damage(fs, at, &[0x0f]);
    });
    repairs("", false, &[], |fs| {
        let at = bitmap(fs) + 3;
        damage(fs, at, &[0x80]);
    });
}

#[test]
fn the_inode_map() {
    repairs("found again by the chunk table", false, &[], |fs| {
        let at = fs.superblock().geometry.inode_map_at();
        damage(fs, at, &[0; 4]);
    });
    for count in [0_u32, 2, u32::MAX] {
        repairs("number of chunks of inodes", false, &[], |fs| {
            damage(fs, Geometry::ROOTS_AT + 20, &count.to_le_bytes());
        });
    }
    refuses("all inodes are lost", |fs| {
        let (map, entry) = (fs.superblock().geometry.inode_map_at(), entry_at(fs, Use::Inodes));
        damage(fs, map, &[0; 4]);
        damage(fs, entry, &[0; 4]);
    });
}

#[test]
fn names() {
    let ino = find(&file_system(), "other").0.0;
    let lost = format!("lost+found/#{ino}");
    let is_found = |fs: &Fs| assert_eq!(contents(fs, &lost), vec![2; 9000]);
    is_found(&repairs("the name \"other\", as its inode 119 does not exist", true, &["other"], |fs| {
        let at = record_at(fs, "", b"other") + 8;
        damage(fs, at, &[0x77]);
    }));
    // A name that was removed without its link, and one that is not what its hash says.
    is_found(&repairs("it has no name", false, &["other"], |fs| {
        let at = record_at(fs, "", b"other") + 8;
        damage(fs, at, &[0; 8]);
    }));
    is_found(&repairs("which is damaged", true, &["other"], |fs| {
        let at = record_at(fs, "", b"other") + 25;
        damage(fs, at, b"x");
    }));
    // A type, a page, and the numbers of entries, links and buckets.
    repairs("", false, &[], |fs| {
        let at = record_at(fs, "", b"other") + 19;
        damage(fs, at, &[1]);
    });
    let fs = repairs("names in it, as pages of it are damaged", true, &["dirs/below"], |fs| {
        let at = find(fs, "dirs").1.form;
        let Form::Run { first, .. } = at else { panic!("a small directory") };
        damage(fs, first.address() + 8 + 16, &[3]);
    });
    let below = find(&file_system(), "dirs/below").0.0;
    assert_eq!(contents(&fs, &format!("lost+found/#{below}")), vec![4; 100]);
    repairs("links instead of", false, &[], |fs| change(fs, "dirs", |inode| inode.links = 9));
    repairs("", false, &[], |fs| change(fs, "dirs", |inode| inode.entries = 9));
    for buckets in [0, 7, u32::MAX] {
        repairs("its table of names", false, &[], |fs| change(fs, "dirs", |inode| inode.buckets = buckets));
    }
    repairs("its table of names", false, &[], |fs| change(fs, "dirs", |inode| inode.size = 1 << 40));
    repairs("", false, &[], |fs| change(fs, "dirs/deep", |inode| inode.parent = Ino(3)));
    // A chain that leads back to its own page.
    repairs("names in it", true, &[], |fs| {
        let Form::Run { first, .. } = find(fs, "dirs").1.form else { panic!("a small directory") };
        damage(fs, first.address(), &first.0.to_le_bytes());
    });
}

#[test]
fn directories_that_are_below_themselves() {
    let fs = repairs("", false, &["dirs/below"], |fs| {
        let (dirs, _) = find(fs, "dirs");
        let (deep, root) = (record_at(fs, "dirs", b"deep"), record_at(fs, "", b"dirs"));
        damage(fs, deep + 8, &dirs.0.to_le_bytes());
        damage(fs, root + 8, &[0; 8]);
    });
    let ino = find(&file_system(), "dirs").0.0;
    assert_eq!(contents(&fs, &format!("lost+found/#{ino}/below")), vec![4; 100]);
}

#[test]
fn links_and_lists() {
    repairs("2 links instead of 1", false, &[], |fs| change(fs, "small", |inode| inode.links = 1));
    repairs("1 links instead of 0", false, &[], |fs| change(fs, "other", |inode| inode.links = 0));
    // Null files are given up, removed files stay removed.
    repairs("", false, &[], |fs| damage(fs, Geometry::ROOTS_AT + 8, &[0; 8]));
    repairs("", false, &[], |fs| damage(fs, Geometry::ROOTS_AT + 16, &[9]));
    let other = find(&file_system(), "other").0;
    repairs("", false, &[], |fs| damage(fs, Geometry::ROOTS_AT, &other.0.to_le_bytes()));
}

#[test]
fn fields_of_inodes() {
    let fs =
        repairs("its size; it now ends where its space ends, 8192 bytes", true, &["small", "second"], |fs| {
            change(fs, "small", |inode| inode.size = u64::MAX);
        });
    assert_eq!(contents(&fs, "small")[..5000], [1; 5000]);
    repairs("symbolic link's target", true, &[], |fs| change(fs, "link", |inode| inode.size = 9999));
    repairs("bits of its mode", false, &[], |fs| change(fs, "other", |inode| inode.mode |= 1 << 20));
    repairs("nanoseconds of a time", true, &[], |fs| {
        change(fs, "other", |inode| inode.changed.nanos = u32::MAX);
    });
    repairs("its permissions", true, &[], |fs| change(fs, "other", |inode| inode.mode = 0));
    for path in ["dirs", "other", "link"] {
        let mode = find(&file_system(), path).1.mode;
        let wrong = if path == "dirs" { Kind::File } else { Kind::Directory };
        let fs = repairs("its type, by its names", false, &[], |fs| {
            change(fs, path, |inode| inode.mode = inode.mode & 0o7777 | wrong.mode_bits());
        });
        assert_eq!(find(&fs, path).1.mode, mode);
    }
    for pages in [999, u64::MAX] {
        repairs("", false, &[], |fs| change(fs, "other", |inode| inode.pages = pages));
    }
    // The pages behind a run are another file's.
    for (path, more) in
        ["small", "second", "other"].iter().flat_map(|path| [1, 2, 3].map(|more| (path, more)))
    {
        repairs("", false, &[], |fs| change(fs, path, |inode| inode.pages += more));
    }
}

#[test]
fn space_of_files() {
    // A run elsewhere, where nothing is allocated; then one that is too short, and one that is too long.
    repairs("its pages found again", false, &[], |fs| {
        let geometry = fs.superblock().geometry;
        let free = geometry.first_page(chunk_of_use(fs, Use::Free));
        change(fs, "other", |inode| inode.form = Form::Run { first: free, pages: 3 });
    });
    for pages in [1, 999] {
        repairs("", false, &[], |fs| {
            let (first, _) = run_of(fs, "other");
            change(fs, "other", |inode| inode.form = Form::Run { first, pages });
        });
    }
    // Two files with the same pages: each has a copy.
    let fs = repairs("each gets a copy", true, &["small", "second"], |fs| {
        let (first, _) = run_of(fs, "other");
        change(fs, "small", |inode| inode.form = Form::Run { first, pages: 2 });
    });
    assert_ne!(run_of(&fs, "small").0, run_of(&fs, "other").0);
    // Pages in the system's chunks, or in another file's chunk: whose they are is certain.
    for page in [Some(Page(4)), None, Some(Page(u64::MAX))] {
        let fs = repairs("its contents, as", true, &["small", "second"], |fs| {
            let data = fs.superblock().geometry.first_page(chunk_of_use(fs, Use::Data));
            let form = Form::Run { first: page.unwrap_or(data), pages: 2 };
            change(fs, "small", |inode| (inode.form, inode.size) = (form, 5000));
        });
        let attribute = fs.attribute(find(&fs, "small").0, b"user.a").expect("it");
        assert_eq!(attribute, b"value");
    }
}

#[test]
fn trees() {
    let root = |fs: &Fs| {
        let Form::Tree { root, .. } = find(fs, "large").1.form else { panic!("a file with chunks") };
        root.address()
    };
    for entry in [0_u32, 1, 77_777] {
        repairs("found again by the chunk table", false, &[], |fs| {
            let at = root(fs) + 4;
            damage(fs, at, &entry.to_le_bytes());
        });
    }
    repairs("found again by the chunk table", false, &[], |fs| {
        change(fs, "large", |inode| inode.form = Form::Tree { root: Page(0), height: 1 });
    });
    repairs("its chunks found again", false, &[], |fs| change(fs, "large", |inode| inode.form = Form::Empty));
    repairs("its chunks found again", false, &[], |fs| {
        let (ino, _) = find(fs, "large");
        let at = inode_at(fs, ino) + 64;
        damage(fs, at, &9_u32.to_le_bytes());
    });
    // Neither the file nor the table has the chunk.
    let fs = repairs("bytes 65536 to 131071, which now read as zeros", true, &["large"], |fs| {
        let at = root(fs) + 4;
        let chunk = Chunk(fs.store().load_u32(at));
        damage(fs, at, &1_u32.to_le_bytes());
        let entry = fs.superblock().geometry.entry_at(chunk);
        damage(fs, entry, &0_u32.to_le_bytes());
    });
    let bytes = contents(&fs, "large");
    assert!(
        bytes[..65_536].iter().all(|byte| *byte == 3) && bytes[65_536..131_072].iter().all(|byte| *byte == 0)
    );
    // Two files claim a chunk that the table gives to neither.
    refuses("and nothing tells whose it is", |fs| {
        let at = root(fs);
        let chunk = Chunk(fs.store().load_u32(at));
        damage(fs, at + 8, &chunk.0.to_le_bytes());
        let entry = fs.superblock().geometry.entry_at(chunk);
        damage(fs, entry + 8, &99_u64.to_le_bytes());
    });
}

#[test]
fn attributes() {
    let value = |fs: &Fs| fs.attribute(find(fs, "small").0, b"user.a");
    let at = |fs: &Fs| find(fs, "small").1.attributes.expect("attributes");
    for is_page in [true, false] {
        let fs = repairs("its attributes", true, &[], |fs| {
            if is_page {
                let page = at(fs).0.address();
                damage(fs, page, &[6, 255, 255, 0, 0]);
            } else {
                change(fs, "small", |inode| inode.attributes = Some((Page(1 << 40), 1)));
            }
        });
        assert!(matches!(value(&fs), Err(Error::NoAttribute)));
    }
    let fs = repairs("certainty about its attributes", true, &[], |fs| {
        let shared = at(fs);
        change(fs, "dirs", |inode| inode.attributes = Some(shared));
    });
    assert_eq!(value(&fs).expect("it"), b"value");
}

#[test]
fn a_lost_root_directory() {
    let fs = repairs("the root directory", true, &INTACT.map(|(path, _, _)| path), |fs| {
        let at = inode_at(fs, Ino::ROOT);
        damage(fs, at, &[0; 256]);
    });
    for (path, len, byte) in [("small", 5000, 1), ("other", 9000, 2), ("large", 150_000, 3)] {
        let ino = find(&file_system(), path).0.0;
        assert_eq!(contents(&fs, &format!("lost+found/#{ino}")), vec![byte; len]);
    }
    let dirs = find(&file_system(), "dirs").0.0;
    assert_eq!(contents(&fs, &format!("lost+found/#{dirs}/below")), vec![4; 100]);
}

#[test]
fn space_for_repairs_that_does_not_exist() {
    refuses("no space is free", |fs| {
        // So small that no chunk is kept free.
        *fs = file_system_of(20 << 16);
        let (ino, _) = find(fs, "spare");
        fs.unlink(Ino::ROOT, b"spare", NOW).expect("it");
        assert!(fs.inode(ino).is_err());
        let (full, _) = fs.create_file(Ino::ROOT, b"full", &new(Kind::File), NOW).expect("space");
        while fs.write(full, fs.inode(full).expect("it").size, &[9; 4096], NOW).is_ok() {}
        let mut number = 0_u32;
        while fs.usage().free_pages > 0 && number < 5000 {
            let made = fs.create_file(Ino::ROOT, format!("f{number}").as_bytes(), &new(Kind::File), NOW);
            let Ok((ino, _)) = made else { break };
            let _ = fs.write(ino, 0, &[9; 4096], NOW);
            number += 1;
        }
        fs.sync().expect("no failure");
        fs.set_attribute(full, b"user.b", b"", SetAttribute::Always, NOW).err();
        let at = record_at(fs, "dirs", b"below") + 8;
        damage(fs, at, &[0; 8]);
    });
}

#[test]
fn a_clean_file_system_is_left_alone() {
    let fs = file_system();
    let before = fs.store().memory().clone();
    let (memory, outcome) = repair(fs.into_memory(), NOW).expect("nothing to do");
    assert_eq!(outcome, Outcome::default());
    let (mut old, mut new) = (vec![0; SIZE as usize], vec![0; SIZE as usize]);
    before.load(0, &mut old);
    memory.load(0, &mut new);
    assert!(old == new && PAGE_BYTES > 0, "nothing was stored");
}

/// A page of a directory whose bit says that it is free is given to attributes, although changes of it are
/// staged.
#[test]
fn attributes_do_not_overwrite_a_directory() {
    let mut fs = file_system();
    let root = fs.inode(Ino::ROOT).expect("the root");
    let Form::Run { first, .. } = root.form else { panic!("a small directory") };
    let (at, bit) = bit_of(&fs, first);
    let bits = fs.store().bytes::<1>(at)[0];
    damage(&mut fs, at, &[bits & !bit]);
    let mut fs = FileSystem::open(fs.into_memory(), Durability::Sync).expect("it can be mounted");
    fs.create_file(Ino::ROOT, b"staged", &new(Kind::Fifo), NOW).expect("space");
    let set = fs.set_attribute(Ino::ROOT, b"user.b", b"x", SetAttribute::Always, NOW);
    assert!(matches!(set, Err(Error::Damaged(_))), "{set:?}");
    fs.sync().expect("no failure");
    find(&fs, "staged");
}

const CONTAINER: Container = Container { tier: TierNumber(1), number: 4 };

/// A file system with tiers, whose files "a" and "b" are in containers.
fn file_system_with_tiers() -> Fs {
    let memory = format_with_tiers(Simulated::new(2 << 20, Granule::Word));
    let containers = SimulatedContainers::default();
    let mut fs = pair::open(memory, Durability::Sync, Some(&containers)).expect("the file system");
    for name in [b"a", b"b"] {
        let (ino, _) = fs.create_file(Ino::ROOT, name, &new(Kind::File), NOW).expect("space");
        fs.write(ino, 0, &[7; 9000], NOW).expect("space");
        fs.evict_now(ino).expect("a tier takes it");
    }
    fs.sync().expect("no failure");
    // What the last group changed would be made right by the log.
    fs.set_attributes(Ino::ROOT, &Change { uid: Some(7), ..Change::default() }, NOW).expect("no failure");
    fs.sync().expect("no failure");
    fs
}

/// Damages the inode of "b" and repairs that; returns its form, and what is lost.
fn repaired_form(damage: impl FnOnce(&Fs, &mut Inode)) -> (Form, Vec<String>) {
    let mut fs = file_system_with_tiers();
    let (ino, mut inode) = find(&fs, "b");
    let at = inode_at(&fs, ino);
    damage(&fs, &mut inode);
    fs.store_mut().memory_mut().store(at, &inode.encode());
    let memory = fs.into_memory();
    let found = FileSystem::open_read_only(memory.clone()).map(|fs| check(&fs)).expect("it can be read");
    assert!(!found.is_clean(), "the check finds it");
    let (memory, outcome) = repair(memory, NOW).unwrap_or_else(|refusal| panic!("{refusal}"));
    let fs = FileSystem::open_read_only(memory).expect("it can be read");
    assert!(check(&fs).is_clean());
    (find(&fs, "b").1.form, outcome.lost)
}

#[test]
fn files_in_containers() {
    // What is wrong elsewhere leaves the container alone.
    let (form, lost) = repaired_form(|_, inode| inode.links = 7);
    assert!(matches!(form, Form::Container(_)) && lost.is_empty(), "{form:?} {lost:?}");
    let (form, lost) = repaired_form(|fs, inode| inode.form = find(fs, "a").1.form);
    assert!(form == Form::Empty && lost[0].contains("another file has its container"), "{form:?} {lost:?}");
    let unknown = Container { tier: TierNumber(2), ..CONTAINER };
    let beyond = Container { number: 1000, ..CONTAINER };
    for container in [unknown, beyond] {
        let (form, lost) = repaired_form(|_, inode| inode.form = Form::Container(container));
        assert!(form == Form::Empty && lost[0].contains("its contents"), "{form:?} {lost:?}");
    }
}
