//! Views agree with reads, which copy segment by segment, whatever happens to the files in between.

use super::*;
use crate::layout::superblock::Superblock;
use crate::layout::{Geometry, PAGE_BYTES};
use crate::namespace::{Allocate, Durability};
use crate::nvm::{Granule, Mapped as MappedRegion, Simulated};
use crate::testing::{NEW, NOW, file};
use crate::tiers::Class;
use rand::rngs::SmallRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};

const CHUNK: u64 = Geometry::CHUNK_BYTES_MIN;
const REGION: u64 = 64 * CHUNK;
/// Files share 40 chunks, so that all steps find space.
const FILE_MAX: u64 = 20 * CHUNK;

fn file_system<M: Memory>(memory: M) -> FileSystem<M> {
    let geometry = Geometry::new(REGION, CHUNK).expect("a possible size");
    let superblock = Superblock { geometry, uuid: [1; 16], hash_key: [2; 16], has_tiers: false };
    let memory = FileSystem::create(memory, &superblock, (0, 0), NOW).expect("an empty region");
    FileSystem::open(memory, Durability::Sync).expect("it was just created")
}

fn mapped() -> (FileSystem<MappedRegion>, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a new directory");
    let memory = MappedRegion::create(&directory.path().join("region"), REGION, false).expect("a new region");
    (file_system(memory), directory)
}

/// How many views of each kind there were: region, window, copy.
type Kinds = [u32; 3];

fn verify<M: Memory>(fs: &FileSystem<M>, ino: Ino, range: Range<u64>, kinds: &mut Kinds) {
    let len = (range.end - range.start) as usize;
    let mut read = vec![0; len];
    let expected = fs.read(ino, range.start, &mut read).expect("it can be read");
    let view = fs.view(ino, range.start, len).expect("as above");
    assert!(*view == read[..expected], "{ino:?} at {range:?}");
    kinds[match view {
        View::Region(_) => 0,
        View::Window(_) => 1,
        View::Copy(_) => 2,
    }] += 1;
}

/// Moves what wear levelling would, whose gap is 1.
fn level<M: Memory>(fs: &mut FileSystem<M>) {
    if let Some(plan) = fs.plan_levelling(1) {
        fs.level(&plan).expect("no failure");
    }
    fs.sync().expect("no failure");
}

fn views_agree<M: Memory>(fs: &mut FileSystem<M>, steps: u32, random: &mut SmallRng) -> Kinds {
    let files =
        [&b"one"[..], b"two"].map(|name| fs.create_file(Ino::ROOT, name, &NEW, NOW).expect("space").0);
    let mut kinds = Kinds::default();
    for _ in 0..steps {
        let ino = files[random.random_range(0..2)];
        let start = random.random_range(0..FILE_MAX - 1);
        let range = start..random.random_range(start + 1..=FILE_MAX.min(start + 6 * CHUNK));
        let step = random.random_range(0..8);
        match step {
            0 | 1 => {
                let mut bytes = vec![0; (range.end - range.start) as usize];
                random.fill_bytes(&mut bytes);
                fs.write(ino, range.start, &bytes, NOW).expect("space");
            }
            2 => fs.truncate(ino, range.start, NOW).expect("no failure"),
            3 => fs.allocate(ino, range, Allocate::PunchHole, NOW).expect("no failure"),
            4 => fs.allocate(ino, range, Allocate::Space { keep_size: false }, NOW).expect("space"),
            5 => level(fs),
            6 => verify(fs, ino, start..range.end.min(start + CHUNK / 2), &mut kinds),
            _ => verify(fs, ino, range, &mut kinds),
        }
        if matches!(step, 2 | 3) {
            fs.sync().expect("no failure"); // What they freed can be used again.
        }
    }
    kinds
}

#[test]
fn views_agree_with_reads() {
    for seed in 0..8 {
        println!("seed {seed}");
        let (mut fs, _directory) = mapped();
        let [region, window, _] = views_agree(&mut fs, 300, &mut SmallRng::seed_from_u64(seed));
        assert!(region > 0 && window > 20, "{region} views of the region, {window} windows");
    }
    let mut fs = file_system(Simulated::new(REGION, Granule::Sector));
    let [region, window, copy] = views_agree(&mut fs, 100, &mut SmallRng::seed_from_u64(0));
    assert!(region > 0 && copy > 0 && window == 0, "simulated memory maps nothing");
}

#[test]
fn a_large_file_is_one_slice() {
    let (mut fs, _directory) = mapped();
    let [one, two] =
        [&b"one"[..], b"two"].map(|name| fs.create_file(Ino::ROOT, name, &NEW, NOW).expect("space").0);
    // Their chunks alternate.
    for chunk in 0..10 {
        fs.write(one, chunk * CHUNK, &[chunk as u8; CHUNK as usize], NOW).expect("space");
        fs.write(two, chunk * CHUNK, &[1; CHUNK as usize], NOW).expect("space");
    }
    fs.allocate(one, 4 * CHUNK..5 * CHUNK, Allocate::PunchHole, NOW).expect("no failure");
    let view = fs.view(one, 0, usize::MAX).expect("it can be read");
    assert!(matches!(view, View::Window(_)) && view.len() as u64 == 10 * CHUNK);
    for (number, chunk) in view.chunks(CHUNK as usize).enumerate() {
        let expected = if number == 4 { 0 } else { number as u8 };
        assert!(chunk.iter().all(|byte| *byte == expected), "chunk {number}");
    }
    assert!(fs.view(one, 10 * CHUNK, 1).expect("it is the end").is_empty());
    assert!(matches!(fs.view(Ino::ROOT, 0, 1), Err(Error::IsDirectory)));
}

#[test]
fn small_files_are_where_they_are() {
    let (mut fs, _directory) = mapped();
    let (ino, _) = fs.create_file(Ino::ROOT, b"small", &NEW, NOW).expect("space");
    fs.write(ino, 0, &[7; 3 * PAGE_BYTES as usize], NOW).expect("space");
    let at = match fs.segment(&fs.inode(ino).expect("it exists"), 5).at {
        Some(at) => fs.store().memory().bytes(at, 1).as_ptr(),
        None => panic!("it was written"),
    };
    let view = fs.view(ino, 5, PAGE_BYTES as usize).expect("it can be read");
    assert!(matches!(view, View::Region(_)) && view.as_ptr() == at);
    drop(view);
    // Beyond its pages it is a hole, which a small file has no chunk for.
    fs.truncate(ino, 6 * PAGE_BYTES, NOW).expect("no failure");
    verify(&fs, ino, 0..6 * PAGE_BYTES, &mut Kinds::default());
}

/// What is read in place stays in the region as what is copied does.
#[test]
fn views_are_accesses() {
    for (read, left) in [("one", "two"), ("two", "one")] {
        let (mut fs, _) = crate::testing::file_system(&[Class::Flash]);
        let [one, two] = ["one", "two"].map(|name| file(&mut fs, name, 2 * PAGE_BYTES));
        let ino = |name| if name == "one" { one } else { two };
        let view = fs.view(ino(read), 0, 1).expect("it can be read");
        assert!(matches!(view, View::Region(_)));
        drop(view);
        assert_eq!(fs.take_victims(1, 1), [(ino(left), 2 * PAGE_BYTES)], "{read} was read");
    }
}
