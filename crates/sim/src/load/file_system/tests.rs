use super::*;
use proptest::prelude::*;

impl FileSystemConfig {
    /// Returns a file system of 64 MiB, without journal, trims and indirect blocks.
    pub(crate) fn for_tests(memory: Bytes) -> Self {
        Self {
            size: Bytes::mib(64),
            memory,
            dirty: 0.4,
            background: 0.1,
            age: Nanos::secs(30),
            journal: Bytes(0),
            trim: false,
            indirect: false,
        }
    }
}

fn config(memory: u64) -> FileSystemConfig {
    FileSystemConfig { dirty: 0.5, background: 0.25, ..FileSystemConfig::for_tests(Bytes::kib(memory)) }
}

fn writes(requests: &VecDeque<BlockRequest>) -> u64 {
    requests.iter().filter(|ask| ask.op == Op::Write).map(|ask| ask.count).sum()
}

#[test]
fn cached_blocks_are_not_read_and_removed_ones_not_written() {
    let mut files = FileSystem::new(config(4096));
    let mut asked = VecDeque::new();
    let file = files.create(None, &mut asked);
    files.write(file, 0..100_000, &mut asked);
    files.read(file, 0..100_000, &mut asked);
    assert_eq!(asked, [], "all of it is in memory");
    files.set_time(Nanos::secs(29));
    assert_eq!(files.write_back(), None);
    files.remove(file, &mut asked);
    files.set_time(Nanos::secs(31));
    let mut written = Vec::new();
    while let Some(ask) = files.write_back() {
        written.extend(ask.first..ask.first + ask.count);
    }
    // A bitmap and an inode.
    assert_eq!(written, [0, 1]);
}

#[test]
fn files_are_read_from_the_disk_once_in_runs() {
    let mut files = FileSystem::new(config(4096));
    let mut asked = VecDeque::new();
    let file = files.create(None, &mut asked);
    files.write(file, 0..Bytes::kib(512).0, &mut asked);
    files.mark_all_clean();
    files.drop_clean_blocks();
    asked.clear();
    files.read(file, 0..8192, &mut asked);
    assert_eq!(asked.iter().map(|ask| ask.count).sum::<u64>(), 2);
    files.read(file, 8192..16_384, &mut asked);
    assert_eq!(asked.iter().map(|ask| ask.count).sum::<u64>(), RUN_MAX, "what goes on reads ahead");
    files.read(file, 16_384..Bytes::kib(128).0, &mut asked);
    assert_eq!(asked.iter().map(|ask| ask.count).sum::<u64>(), RUN_MAX);
    assert!(asked.iter().all(|ask| ask.op == Op::Read));
}

#[test]
fn dirty_blocks_are_written_back_by_file() {
    let mut files = FileSystem::new(config(4096));
    let mut asked = VecDeque::new();
    let [first, second] = [(); 2].map(|()| files.create(None, &mut asked));
    files.mark_all_clean();
    for at in 0..20 {
        files.set_time(Nanos::millis(at));
        for file in [second, first] {
            files.write(file, at * 4096..(at + 1) * 4096, &mut asked);
        }
    }
    files.set_time(Nanos::secs(40));
    let mut owners = Vec::new();
    while let Some(ask) = files.write_back() {
        let owner = |file: FileId| files.files[file.0].blocks.contains(&ask.first).then_some(file);
        owners.push(owner(first).or(owner(second)));
    }
    owners.dedup();
    assert_eq!(owners.len(), 3, "each has one turn, and so has the file system's own: {owners:?}");
    assert!(owners[0] == Some(second) || owners[0].is_none(), "what changed first comes first: {owners:?}");
}

#[test]
fn a_sync_writes_the_file_and_its_inode_or_the_journal() {
    for journal in [Bytes(0), Bytes::mib(1)] {
        let mut files = FileSystem::new(FileSystemConfig { journal, ..config(4096) });
        let mut asked = VecDeque::new();
        let file = files.create(None, &mut asked);
        files.write(file, 0..12_288, &mut asked);
        files.sync(file, &mut asked);
        // Three blocks and the inode; or, with a journal, three blocks, and bitmap and inode between a
        // descriptor and a commit record.
        assert_eq!(writes(&asked), if journal.0 == 0 { 4 } else { 3 + 4 }, "{asked:?}");
        asked.clear();
        files.sync(file, &mut asked);
        assert_eq!(writes(&asked), if journal.0 == 0 { 0 } else { 2 });
    }
}

#[test]
fn writers_above_the_dirty_limit_write_back() {
    let mut files = FileSystem::new(config(1024));
    let mut asked = VecDeque::new();
    let file = files.create(None, &mut asked);
    for at in 0..1024 {
        files.write(file, at * 4096..(at + 1) * 4096, &mut asked);
        assert!(files.dirty.len() <= 130);
    }
    assert!(writes(&asked) > 850, "{}", writes(&asked));
    assert!(asked.iter().any(|ask| ask.count == RUN_MAX));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Each block belongs to one file, and the files' blocks are exactly the allocated ones.
    #[test]
    fn no_block_has_two_owners(steps in prop::collection::vec((0u8..4, 0usize..12, 1u64..200_000), 1..200)) {
        let mut files = FileSystem::new(config(512));
        let ones = |word: &u64| u64::from(word.count_ones());
        let own = |files: &FileSystem| files.allocated.iter().map(ones).sum::<u64>();
        let at_first = own(&files);
        let mut asked = VecDeque::new();
        let directory = files.create(None, &mut asked);
        let mut here: Vec<FileId> = Vec::new();
        for (what, which, len) in steps {
            let file = here.get(which % here.len().max(1)).copied();
            match (what, file) {
                (0, _) | (_, None) => here.push(files.create(Some(directory), &mut asked)),
                (1, Some(file)) => {
                    files.remove(file, &mut asked);
                    here.retain(|other| *other != file);
                }
                (2, Some(file)) => files.write(file, len / 2..len, &mut asked),
                (_, Some(file)) => files.read(file, 0..len, &mut asked),
            }
            let all: Vec<u64> =
                here.iter().chain([&directory]).flat_map(|f| files.files[f.0].blocks.clone()).collect();
            let distinct: BTreeSet<_> = all.iter().copied().collect();
            prop_assert_eq!(distinct.len(), all.len());
            prop_assert_eq!(own(&files), at_first + all.len() as u64);
            prop_assert!(all.iter().all(|block| block % GROUP > INODE_BLOCKS));
        }
        let size = files.size().0 / BLOCK;
        prop_assert!(asked.iter().all(|ask| ask.count > 0 && ask.first + ask.count <= size));
    }
}
