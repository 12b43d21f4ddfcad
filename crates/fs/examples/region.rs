//! Creates, mounts and checks a file system, for tests and measurements:
//! `region create FILE MIB`, `region mount FILE DIRECTORY`, `region check FILE`.
//!
//! `mount` answers requests until the directory is unmounted.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_fs::check::check;
use weir_fs::fuse::{self, MountOptions};
use weir_fs::layout::Geometry;
use weir_fs::layout::superblock::Superblock;
use weir_fs::namespace::{Durability, FileSystem};
use weir_fs::nvm::{Mapped, Persistence};

fn create(region: &Path, mib: &str) -> Result<(), Box<dyn Error>> {
    let size = mib.parse::<u64>()? << 20;
    let geometry = Geometry::new(size, Geometry::CHUNK_BYTES).ok_or("a region needs more chunks")?;
    let memory = Mapped::create(region, size, false)?;
    let (uuid, hash_key) = (*uuid::Uuid::new_v4().as_bytes(), *uuid::Uuid::new_v4().as_bytes());
    let superblock = Superblock { geometry, uuid, hash_key };
    FileSystem::create(memory, &superblock, (0, 0), fuse::now())?;
    Ok(())
}

fn mount(region: &Path, directory: &Path) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let memory = Mapped::open(region, true)?;
    let durability = match memory.persistence() {
        Persistence::CacheLines => Durability::EachOperation,
        Persistence::FileSync => Durability::Sync,
    };
    let fs = FileSystem::open(memory, durability)?;
    let options = MountOptions {
        source: region.display().to_string(),
        allow_other: true,
        is_trusted: true,
        sync_interval: Duration::from_secs(1),
    };
    fuse::serve(fs, directory, &options, || println!("mounted after {:?}, {durability:?}", began.elapsed()))?;
    Ok(())
}

fn report(region: &Path) -> Result<(), Box<dyn Error>> {
    let fs = FileSystem::open_read_only(Mapped::open(region, false)?)?;
    let report = check(&fs);
    println!("{report:#?}\n{:#?}, wear {:?}", fs.usage(), fs.wear());
    if report.is_clean() { Ok(()) } else { Err("the file system is damaged".into()) }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["create", region, mib] => create(Path::new(region), mib),
        ["mount", region, directory] => mount(Path::new(region), Path::new(directory)),
        ["check", region] => report(Path::new(region)),
        _ => Err("region create FILE MIB | mount FILE DIRECTORY | check FILE".into()),
    }
}
