//! Random accesses of mounted files, in every way in which programs access files, against copies in memory:
//! after `fsx`. Without root and `/dev/fuse` these tests say so and do nothing.

#[path = "support/access.rs"]
mod access;
#[path = "support/mounted.rs"]
mod mounted;

use access::{BYTES_MAX, Mix, Subject};
use mounted::{Mount, serve_here, serve_in_process};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::fs::XattrFlags;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_fs::report::{STATUS, Status};

/// Accesses shown with one that went wrong.
const SHOWN: usize = 40;
const REGION_BYTES: u64 = 96 << 20;

/// How a test accesses files.
#[derive(Clone, Copy)]
struct Load {
    /// Threads, each with files of its own.
    threads: usize,
    /// Files of each thread.
    files: usize,
    /// Mounts: after each, everything is compared and checked.
    rounds: usize,
    mix: Mix,
    /// Whether a thread moves the files between region and tiers, whatever the others do.
    moves_meanwhile: bool,
}

const ONE: Load = Load {
    threads: 1,
    files: 1,
    rounds: 3,
    mix: Mix { moves: false, is_placed: true },
    moves_meanwhile: false,
};
const MANY: Load = Load { threads: 3, files: 3, ..ONE };
const MOVED: Load = Load { threads: 2, files: 2, mix: Mix { moves: true, ..ONE.mix }, ..ONE };
const MOVED_MEANWHILE: Load =
    Load { mix: Mix { moves: false, is_placed: false }, moves_meanwhile: true, ..MOVED };

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs a load of `WEIR_FSX_OPERATIONS` accesses, by default a few thousand, from seed `WEIR_FSX_SEED`.
fn run(mount: Option<Mount>, load: Load, default: u64) {
    let Some(mut mount) = mount else { return };
    let operations = number("WEIR_FSX_OPERATIONS", default) as usize;
    let seed = number("WEIR_FSX_SEED", 1);
    println!("seed {seed}, {operations} operations");
    let path = |thread: usize, file: usize| format!("file-{thread}-{file}");
    let names: Vec<_> = (0..load.threads).flat_map(|t| (0..load.files).map(move |f| path(t, f))).collect();
    let paths: Vec<PathBuf> = names.iter().map(|name| mount.path(name)).collect();
    let mut subjects: Vec<Vec<Subject>> =
        paths.chunks(load.files).map(|paths| paths.iter().map(Subject::new).collect()).collect();
    let mut randoms: Vec<_> =
        (0..load.threads).map(|thread| SmallRng::seed_from_u64(seed + ((thread as u64) << 32))).collect();
    let mut moved = 0;
    for round in 0..load.rounds {
        let each = operations / load.threads / load.rounds;
        // A page of a mapping that this process waits for can keep its other threads from memory.
        let server = serve_in_process(&mut mount);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mover = load.moves_meanwhile.then(|| scope.spawn(|| move_files(&paths, seed, &is_over)));
            let threads: Vec<_> = subjects
                .iter_mut()
                .zip(&mut randoms)
                .map(|(subjects, random)| scope.spawn(move || access_files(subjects, random, load.mix, each)))
                .collect();
            let results: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            is_over.store(true, Ordering::Relaxed);
            moved += mover.map_or(0, |mover| mover.join().expect("the mover ends"));
            for (thread, result) in results.into_iter().enumerate() {
                match result {
                    Ok(Ok(count)) => moved += count,
                    Ok(Err(error)) => panic!("seed {seed}, round {round}, thread {thread}: {error}"),
                    Err(_) => panic!("seed {seed}, round {round}, thread {thread}: panicked"),
                }
            }
        });
        serve_here(&mut mount, server);
        for subject in subjects.iter_mut().flatten() {
            subject.compare().unwrap_or_else(|error| panic!("seed {seed}, after round {round}: {error}"));
            subject.close();
        }
    }
    println!("{moved} moves");
    let moves = load.mix.moves || load.moves_meanwhile;
    assert!(!moves || moved > 0, "seed {seed}: no file was moved");
}

/// Accesses files at random. Returns how many were moved, or what went wrong after which accesses.
fn access_files(
    subjects: &mut [Subject],
    random: &mut SmallRng,
    mix: Mix,
    count: usize,
) -> Result<usize, String> {
    let mut history = Vec::new();
    let mut moved = 0;
    for number in 0..count {
        let (file, other) = (random.random_range(0..subjects.len()), random.random_range(0..subjects.len()));
        let sizes = (subjects[file].size(), subjects[other].size());
        let access = mix.access(random, sizes, (file, other));
        history.push((file, access.clone()));
        match access::run(subjects, file, &access) {
            Ok(has_moved) => moved += usize::from(has_moved),
            Err(error) => {
                let last = &history[history.len().saturating_sub(SHOWN)..];
                let lines: Vec<_> =
                    last.iter().map(|(file, access)| format!("file {file}: {access:?}")).collect();
                return Err(format!("operation {number}: {error}\n{}", lines.join("\n")));
            }
        }
    }
    subjects.iter_mut().for_each(Subject::close);
    Ok(moved)
}

/// Moves the files between the region and the tiers until it is over. Returns how often one moved.
fn move_files(paths: &[PathBuf], seed: u64, is_over: &AtomicBool) -> usize {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut moved = 0;
    while !is_over.load(Ordering::Relaxed) {
        let path = &paths[random.random_range(0..paths.len())];
        moved += usize::from(move_file(path, random.random()));
        std::thread::sleep(Duration::from_millis(2));
    }
    moved
}

/// Evicts or promotes a file. It stays where it is while the kernel has its container open, and while it
/// changes.
fn move_file(path: &Path, evicts: bool) -> bool {
    let command = if evicts { "weir.evict" } else { "weir.promote" };
    rustix::fs::setxattr(path, command, b"", XattrFlags::empty()).is_ok()
}

/// Mounts a file system whose files in containers the kernel accesses; `None` if it does not.
fn passed_through() -> Option<Mount> {
    let mount = Mount::with_tiers(REGION_BYTES)?;
    let mut value = vec![0; 64 << 10];
    let len = rustix::fs::getxattr(mount.path(""), STATUS, &mut value[..]).expect("a report");
    let status: Status = serde_json::from_slice(&value[..len]).expect("JSON");
    let found = status.mount.expect("it is mounted");
    if !found.passthrough {
        println!("not tested: {:?}", found.passthrough_problem);
        return None;
    }
    Some(mount)
}

/// The server of [`serve_in_process`].
#[test]
fn serve_until_killed() {
    mounted::serve_if_asked();
}

#[test]
fn a_file_in_the_region() {
    run(Mount::new(REGION_BYTES), ONE, 3000);
}

#[test]
fn files_in_the_region() {
    run(Mount::new(REGION_BYTES), MANY, 3000);
}

#[test]
fn files_that_the_server_accesses_in_containers() {
    run(Mount::without_passthrough(REGION_BYTES), MOVED, 3000);
}

#[test]
fn files_that_the_kernel_accesses_in_containers() {
    run(passed_through(), MOVED, 3000);
}

#[test]
fn files_that_move_while_the_server_accesses_them() {
    run(Mount::without_passthrough(REGION_BYTES), MOVED_MEANWHILE, 3000);
}

#[test]
fn files_that_move_while_the_kernel_accesses_them() {
    run(passed_through(), MOVED_MEANWHILE, 3000);
}

/// The files of all threads fit into the region twice.
const _: () = assert!(2 * MANY.threads as u64 * MANY.files as u64 * BYTES_MAX as u64 <= REGION_BYTES);
