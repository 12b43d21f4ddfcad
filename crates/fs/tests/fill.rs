//! How full a region gets before it refuses data, if files grow in turn, and again after some were removed.
//!
//! `WEIR_FS_SEED` sets the seed.

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use weir_fs::check::check;
use weir_fs::layout::inode::Kind;
use weir_fs::layout::superblock::Superblock;
use weir_fs::layout::{Geometry, Ino, PAGE_BYTES, Time};
use weir_fs::namespace::{Durability, FileSystem, New};
use weir_fs::nvm::Mapped;

const NOW: Time = Time { seconds: 1, nanos: 0 };
const SIZE: u64 = 64 << 20;
/// Files that grow at a time.
const GROWING: usize = 8;
/// Operations without space after which the region counts as full.
const REFUSALS: u32 = 20;

/// The sizes of files, in bytes.
#[derive(Clone, Copy, Debug)]
enum Sizes {
    /// Up to ten pages.
    Small,
    /// From 512 bytes to 1 MiB, each power of two as often.
    Logarithmic,
    /// From 100 kB to 1 MB.
    Medium,
}

impl Sizes {
    fn any(self, random: &mut SmallRng) -> u64 {
        match self {
            Self::Small => random.random_range(1..40_000),
            Self::Logarithmic => 2_f64.powf(random.random_range(9.0..20.0)) as u64,
            Self::Medium => random.random_range(100_000..1_000_000),
        }
    }
}

struct File {
    name: String,
    ino: Ino,
    wanted: u64,
    size: u64,
}

struct Region {
    fs: FileSystem<Mapped>,
    random: SmallRng,
    created: u32,
    files: Vec<File>,
}

impl Region {
    fn new(folder: &std::path::Path, seed: u64) -> Self {
        let memory = Mapped::create(&folder.join("region"), SIZE, true).expect("a file");
        let geometry = Geometry::new(SIZE, Geometry::CHUNK_BYTES).expect("a possible size");
        let superblock = Superblock { geometry, uuid: [1; 16], hash_key: [2; 16], has_tiers: true };
        let memory = FileSystem::create(memory, &superblock, (0, 0), NOW).expect("space");
        let fs = FileSystem::open(memory, Durability::Sync).expect("a new file system");
        Self { fs, random: SmallRng::seed_from_u64(seed), created: 0, files: Vec::new() }
    }

    fn create(&mut self, sizes: Sizes) -> Option<File> {
        let name = format!("file{}", self.created);
        self.created += 1;
        let (kind, permissions, target, attributes) = (Kind::File, 0o644, &[][..], &[][..]);
        let new = New { kind, permissions, uid: 0, gid: 0, device: 0, target, attributes };
        let (ino, _) = self.fs.create_file(Ino::ROOT, name.as_bytes(), &new, NOW).ok()?;
        Some(File { name, ino, wanted: sizes.any(&mut self.random), size: 0 })
    }

    /// Fills the region with files that grow by `piece` bytes at a time, several in turn; returns which share
    /// of its usable bytes files have then.
    fn fill(&mut self, sizes: Sizes, piece: u64) -> f64 {
        let (mut growing, mut refusals) = (Vec::new(), 0);
        let bytes = vec![5; piece as usize];
        while refusals < REFUSALS {
            if growing.len() < GROWING {
                match self.create(sizes) {
                    Some(file) => growing.push(file),
                    None => refusals += 1,
                }
                continue;
            }
            let nth = self.random.random_range(0..growing.len());
            let file: &mut File = &mut growing[nth];
            let part = &bytes[..piece.min(file.wanted - file.size) as usize];
            let written = self.fs.write(file.ino, file.size, part, NOW).unwrap_or(0);
            file.size += written as u64;
            refusals += u32::from(written < part.len());
            if written < part.len() || file.size == file.wanted {
                self.files.push(growing.swap_remove(nth));
            }
            if self.random.random_ratio(1, 2000) {
                self.fs.sync().expect("no failure");
            }
        }
        self.files.append(&mut growing);
        let report = check(&self.fs);
        assert!(report.is_clean(), "{report:#?}");
        let total: u64 = self.files.iter().map(|file| file.size).sum();
        total as f64 / (self.fs.usage().pages * PAGE_BYTES) as f64
    }

    /// Removes half of the files.
    fn thin(&mut self) {
        for file in std::mem::take(&mut self.files) {
            if self.random.random() {
                self.files.push(file);
                continue;
            }
            self.fs.unlink(Ino::ROOT, file.name.as_bytes(), NOW).expect("it exists");
            self.fs.forget(file.ino, 0).expect("no failure");
        }
        self.fs.sync().expect("no failure");
    }
}

#[test]
fn a_region_is_filled_also_by_files_that_grow_and_after_others_were_removed() {
    let seed = std::env::var("WEIR_FS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("WEIR_FS_SEED={seed}");
    let pairs = [
        (Sizes::Small, Sizes::Logarithmic),
        (Sizes::Logarithmic, Sizes::Medium),
        (Sizes::Medium, Sizes::Small),
    ];
    for (first, then) in pairs {
        for piece in [4096, 131_072] {
            // In memory, if possible: it is space that counts here, and not durability.
            let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
            let folder = folder.expect("a folder");
            let mut region = Region::new(folder.path(), seed);
            let before = region.fill(first, piece);
            region.thin();
            let after = region.fill(then, piece);
            let percent = [before * 100.0, after * 100.0];
            println!("{first:?}, then {then:?}, by {piece} bytes: {percent:.1?} %");
            // Half a page of each file is lost, and what is left of a chunk.
            assert!(before > 0.8 && after > 0.8, "{percent:?}");
        }
    }
}
