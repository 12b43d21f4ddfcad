//! The machine against naive twins and hand-computed times.

use super::sets::{Found, Sets};
use super::*;
use proptest::prelude::*;
use weir_model::Bytes;
use weir_policy::eviction::items::FileKey;

const SPEC: MachineSpec = MachineSpec {
    cores: 2,
    cycle: Picos(500),
    caches: 1,
    cache: Bytes(64 << 10),
    cache_ways: 8,
    small_tlb: TlbSpec { entries: 16, ways: 4 },
    large_tlb: TlbSpec { entries: 8, ways: 4 },
    line_work: Cycles(4),
    transfer: Picos(6400),
    latency: Picos(60_000),
    walk: Cycles(10),
    flush: Cycles(40),
    fence: Cycles(30),
};

const fn small(at: u64) -> Place {
    Place { at: Address(at), pages: PageSize::Small }
}

/// Keys of a set in a list, the most recent last.
#[derive(Debug)]
struct NaiveSets {
    sets: Vec<Vec<(u64, bool)>>,
    ways: usize,
}

impl NaiveSets {
    fn access(&mut self, key: u64, changes: bool) -> Found {
        let count = self.sets.len() as u64;
        let set = &mut self.sets[(key % count) as usize];
        if let Some(at) = set.iter().position(|(one, _)| *one == key) {
            let (_, changed) = set.remove(at);
            set.push((key, changed || changes));
            return Found::Hit;
        }
        let evicted_changed = set.len() == self.ways && set.remove(0).1;
        set.push((key, changes));
        Found::Miss { evicted_changed }
    }

    fn remove(&mut self, key: u64) -> bool {
        let count = self.sets.len() as u64;
        let set = &mut self.sets[(key % count) as usize];
        let at = set.iter().position(|(one, _)| *one == key);
        at.is_some_and(|at| set.remove(at).1)
    }
}

proptest! {
    #[test]
    fn sets_do_as_their_naive_twin(
        steps in prop::collection::vec((0u64..40, 0u8..5), 0..400), ways in 1usize..5, sets in 1usize..6,
    ) {
        let mut fast = Sets::new(sets * ways, ways);
        let mut naive = NaiveSets { sets: vec![Vec::new(); sets], ways };
        for (key, what) in steps {
            match what {
                0 => prop_assert_eq!(fast.remove(key), naive.remove(key)),
                _ => prop_assert_eq!(fast.access(key, what == 1), naive.access(key, what == 1)),
            }
        }
    }

    /// Every line that is missing is transferred, and so is every changed one that left.
    #[test]
    fn transfers_are_misses_and_lines_written_back(
        steps in prop::collection::vec((0u64..1 << 20, 1u64..9000, any::<bool>()), 0..60),
    ) {
        let mut machine = Machine::new(SPEC);
        for (at, len, writes) in steps {
            machine.begin(0);
            if writes { machine.write(small(at), len) } else { machine.read(small(at), len) }
            machine.end();
        }
        let counts = machine.counts();
        prop_assert!(counts.transfers >= counts.cache_misses && counts.transfers <= 2 * counts.cache_misses);
    }
}

fn time(machine: &mut Machine, run: impl Fn(&mut Machine)) -> Picos {
    let before = machine.now(0);
    machine.begin(0);
    run(machine);
    machine.end();
    Picos(machine.now(0).0 - before.0)
}

#[test]
fn a_page_takes_its_transfers_one_latency_and_a_walk() {
    let mut machine = Machine::new(SPEC);
    let first = time(&mut machine, |machine| machine.read(small(0), 4096));
    // 64 lines and the entry of the table; the first line and that entry come late.
    assert_eq!(first, Picos(65 * 6400 + 2 * 60_000 + 10 * 500));
    let again = time(&mut machine, |machine| machine.read(small(0), 4096));
    assert_eq!(again, Picos(64 * 4 * 500), "from the cache");
    assert_eq!(machine.counts(), Counts { cache_misses: 65, tlb_misses: 1, transfers: 65, flushes: 0 });
}

#[test]
fn writes_take_two_transfers_in_the_long_run() {
    let mut machine = Machine::new(SPEC);
    machine.begin(0);
    machine.write(small(0), 1 << 20);
    machine.end();
    machine.restart();
    machine.begin(0);
    machine.write(small(1 << 20), 1 << 20);
    machine.end();
    let lines = (1 << 20) / LINE_BYTES;
    let counts = machine.counts();
    assert!(counts.transfers.abs_diff(2 * lines) < lines / 20, "{counts:?}");
}

#[test]
fn a_flush_writes_a_changed_line_back_and_forgets_it() {
    let mut machine = Machine::new(SPEC);
    machine.begin(0);
    machine.write(small(0), 64);
    machine.end();
    let flush = time(&mut machine, |machine| {
        machine.flush(small(0), 64);
        machine.fence();
    });
    assert_eq!(flush, Picos((40 + 30) * 500 + 6400 + 60_000));
    let clean = time(&mut machine, |machine| machine.flush(small(4096), 64));
    assert_eq!(clean, Picos(40 * 500), "nothing to write back");
    let misses = machine.counts().cache_misses;
    time(&mut machine, |machine| machine.read(small(0), 64));
    assert_eq!(machine.counts().cache_misses, misses + 1);
}

#[test]
fn large_pages_miss_the_tlb_less() {
    let misses = |pages| {
        let mut machine = Machine::new(SPEC);
        machine.begin(0);
        machine.read(Place { at: Address(0), pages }, 8 << 20);
        machine.end();
        machine.counts().tlb_misses
    };
    assert_eq!((misses(PageSize::Small), misses(PageSize::Large)), (2048, 4));
}

/// Two cores that only transfer take twice the time of one; cores that only work do not wait.
#[test]
fn cores_share_the_bus() {
    let mut machine = Machine::new(SPEC);
    for core in [0, 1] {
        machine.begin(core);
        machine.read(small((core as u64) << 30), 4096);
        machine.end();
    }
    let [one, two] = [0, 1].map(|core| machine.now(core).0);
    assert_eq!(two - one, 65 * 6400);
    let mut machine = Machine::new(SPEC);
    for core in [0, 1] {
        machine.begin(core);
        machine.work(Cycles(1000));
        machine.end();
    }
    assert_eq!((machine.now(0), machine.now(1)), (Picos(500_000), Picos(500_000)));
}

const VFS: VfsCosts =
    VfsCosts { call: Cycles(300), open: Cycles(3000), create: Cycles(5000), remove: Cycles(4000) };
const COSTS: LinuxCosts = LinuxCosts {
    page_read: Cycles(150),
    page_write: Cycles(300),
    page_change: Cycles(400),
    block_change: Cycles(800),
    file_change: Cycles(1000),
    request: None,
};

#[test]
fn pages_of_removed_files_are_used_again() {
    let mut machine = Machine::new(SPEC);
    let mut fs = LinuxFs::new(LinuxKind::Ext2, COSTS, Vfs::new(VFS, PageSize::Large), 2);
    let buffer = small(1 << 50);
    machine.begin(0);
    for nth in 0..100 {
        fs.create(&mut machine, FileKey(nth));
        fs.write(&mut machine, FileKey(nth), 0, 10_000, buffer);
        fs.write(&mut machine, FileKey(nth), 10_000, 10, buffer);
        assert_eq!(fs.size(FileKey(nth)), 10_010);
        fs.remove(&mut machine, FileKey(nth));
    }
    assert_eq!((fs.memory_pages(), fs.size(FileKey(3))), (3, 0));
}

/// ext2 works more than ramfs for everything that changes pages, and as much for a read.
#[test]
fn a_block_device_costs_ext2_its_writes() {
    let time = |kind| {
        let mut machine = Machine::new(SPEC);
        let mut fs = LinuxFs::new(kind, COSTS, Vfs::new(VFS, PageSize::Large), 1);
        machine.begin(0);
        fs.create(&mut machine, FileKey(0));
        fs.write(&mut machine, FileKey(0), 0, 8192, small(1 << 50));
        machine.end();
        machine.now(0)
    };
    assert!(time(LinuxKind::Ext2) > time(LinuxKind::Ramfs));
}

/// Without its page cache ext2 copies each page twice.
#[test]
fn pages_of_the_ramdisk_are_copied() {
    let transfers = |request| {
        let mut machine = Machine::new(SPEC);
        let costs = LinuxCosts { request, ..COSTS };
        let mut fs = LinuxFs::new(LinuxKind::Ext2, costs, Vfs::new(VFS, PageSize::Large), 1);
        machine.begin(0);
        fs.create(&mut machine, FileKey(0));
        fs.write(&mut machine, FileKey(0), 0, 1 << 20, small(1 << 50));
        machine.end();
        machine.restart();
        machine.begin(0);
        fs.read(&mut machine, FileKey(0), 0, 1 << 20, small(1 << 50));
        machine.end();
        machine.counts().transfers
    };
    let (cached, uncached) = (transfers(None), transfers(Some(Cycles(500))));
    assert!(uncached * 2 > cached * 3, "{cached} and {uncached}");
}
