//! Metadata on two members, in random histories: devices fail, are lost and come back, and the power fails at
//! any write, also during an opening. Acknowledged changes are there whenever the pool opens, unless a
//! rollback was accepted; and it opens whenever nothing forbids it.

mod support;

use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use support::store::MemStore;
use support::{Rng, property};
use weir_map::create::{read_superblock, write_superblock};
use weir_map::superblock::{ROOT_AT, Reading};
use weir_map::{
    Hardening, Map, MapError, NewDevice, NewPool, OpenOptions, PAGE, PoolId, Recovery, Superblock,
};
use weir_model::{
    BlockRange, Bytes, DeviceClass, DeviceId, DeviceSet, ExtentIndex, ExtentKey, ExtentSize, IoError,
    Planted, Store, VolumeId,
};

const MEMBERS: [DeviceId; 2] = [DeviceId(0), DeviceId(1)];
const DATA: DeviceId = DeviceId(2);
const SIZE: Bytes = Bytes::mib(32);
const VOLUME: VolumeId = VolumeId(0);

#[derive(Clone, Copy, Debug)]
enum Step {
    Commit(u8),
    Checkpoint,
    /// Makes every command to the device fail from now on.
    Break(u8),
    /// Makes the power fail at the write after this many, and return; then the pool opens with these devices,
    /// perhaps with another power loss during the opening.
    Cut {
        writes: u8,
        absent: u8,
        seed: u64,
    },
    /// Ends the server, perhaps in the middle of a write, with its devices keeping their writes; then the
    /// pool opens with these devices.
    Kill {
        writes: u8,
        absent: u8,
    },
    /// Makes the flush of the device after this many fail: the affected writes are readable until the power
    /// fails, and no later flush makes them durable. Perhaps every command from then on fails.
    FailFlush {
        device: u8,
        after: u8,
        breaks: bool,
    },
    /// Makes the next read of a copy of its superblock fail.
    FailRead {
        device: u8,
        second: bool,
    },
    /// Flips a bit of a member's metadata while the pool is closed.
    Rot {
        member: u8,
        seed: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1u8..6).prop_map(Step::Commit),
        3 => Just(Step::Checkpoint),
        2 => (0u8..3).prop_map(Step::Break),
        6 => (0u8..12, prop_oneof![3 => Just(0u8), 2 => 1u8..7], any::<u64>())
            .prop_map(|(writes, absent, seed)| Step::Cut { writes, absent, seed }),
        1 => (0u8..2, any::<u64>()).prop_map(|(member, seed)| Step::Rot { member, seed }),
    ]
}

/// Generates steps in which devices fail temporarily, no rollback is accepted, and no bit flips.
fn passing() -> impl Strategy<Value = Step> {
    let absent = || prop_oneof![3 => Just(0u8), 2 => 1u8..7];
    prop_oneof![
        3 => (1u8..3).prop_map(Step::Commit),
        1 => Just(Step::Checkpoint),
        1 => (0u8..3).prop_map(Step::Break),
        5 => (0u8..3, 0u8..20, any::<bool>())
            .prop_map(|(device, after, breaks)| Step::FailFlush { device, after, breaks }),
        2 => (0u8..3, any::<bool>()).prop_map(|(device, second)| Step::FailRead { device, second }),
        4 => (0u8..8, absent()).prop_map(|(writes, absent)| Step::Kill { writes, absent }),
        4 => (0u8..8, absent(), any::<u64>())
            .prop_map(|(writes, absent, seed)| Step::Cut { writes, absent, seed }),
    ]
}

/// Counts of the situations that histories have met, to show that they cover the corner cases.
#[derive(Clone, Copy, Debug, Default)]
struct Coverage {
    left_behind: u64,
    synchronized: u64,
    recorded: u64,
    rollbacks: u64,
    stale: u64,
    diverged: u64,
    cut_openings: u64,
    repaired: u64,
    failed_openings: u64,
}

/// A pool whose state is a set of commits: the n-th maps extent n.
struct History {
    store: MemStore,
    map: Option<Map>,
    /// The acknowledged commits, and those that may be durable.
    acknowledged: BTreeSet<u64>,
    possibly_durable: BTreeSet<u64>,
    next: u64,
    /// Whether a rollback was accepted, so that each member may have a history of its own.
    forked: bool,
    /// The members of the present history.
    branch: DeviceSet,
    /// Whether the user accepts a rollback at times.
    rolls_back: bool,
    /// The number of pending failures, which may make an opening fail.
    failures: u64,
    coverage: Coverage,
}

fn set(bits: u8) -> DeviceSet {
    (0..3).filter(|n| bits >> n & 1 == 1).map(DeviceId).collect()
}

impl History {
    fn new() -> Self {
        let device = |n: u8| NewDevice { name: format!("d{n}"), size: SIZE, class: DeviceClass::Ssd };
        let pool = NewPool {
            id: PoolId([4; 16]),
            name: "mirror".into(),
            extent: ExtentSize::new(Bytes::kib(64)).expect("a valid size"),
            devices: (0..3).map(device).collect(),
            metadata: MEMBERS.to_vec(),
        };
        let mut store = MemStore::new(3);
        weir_map::create(&mut store, &pool).expect("nothing is wrong with the devices");
        let mut history = Self {
            store,
            map: None,
            acknowledged: BTreeSet::new(),
            possibly_durable: BTreeSet::new(),
            next: 0,
            forked: false,
            branch: DeviceSet::default(),
            rolls_back: true,
            failures: 0,
            coverage: Coverage::default(),
        };
        history.open(DeviceSet::default()).expect("a new pool opens");
        let map = history.map.as_mut().expect("it is open");
        map.create_volume("v", Bytes(1 << 40), Hardening::Flush, 1);
        history.make_durable().expect("nothing fails here");
        history
    }

    /// Returns a copy of the closed pool.
    fn while_closed(&self) -> Self {
        let Self { store, acknowledged: must, possibly_durable: may, .. } = self;
        let (store, must, may) = (store.clone(), must.clone(), may.clone());
        Self { store, map: None, acknowledged: must, possibly_durable: may, ..*self }
    }

    fn run(&mut self, steps: &[Step]) {
        for step in steps {
            match *step {
                Step::Commit(count) => (0..count).for_each(|_| self.commit()),
                Step::Checkpoint => self.checkpoint(),
                Step::Break(device) => self.store.set_broken(DeviceId(device), true),
                Step::Cut { writes, absent, seed } => self.crash_while_writing(writes, set(absent), seed),
                Step::Kill { writes, absent } => self.kill(writes, set(absent)),
                Step::FailFlush { device, after, breaks } => {
                    self.failures += 1;
                    self.store.break_at_flush(DeviceId(device), u64::from(after), breaks);
                }
                Step::FailRead { device, second } => {
                    self.failures += 1;
                    let number = if second { SIZE.0 / PAGE as u64 - 1 } else { 0 };
                    self.store.fail_read(DeviceId(device), number);
                }
                Step::Rot { member, seed } => self.corrupt_metadata(MEMBERS[usize::from(member)], seed),
            }
        }
        self.crash_while_writing(0, DeviceSet::default(), 1);
    }

    /// Makes one change durable; it is acknowledged if that succeeds.
    fn commit(&mut self) {
        let Some(map) = &mut self.map else { return };
        let Some(place) = (0..3).find_map(|n| map.allocate(DeviceId(2 - n))) else { return };
        let n = self.next;
        self.next += 1;
        let key = ExtentKey { volume: VOLUME, index: ExtentIndex(n) };
        let blocks = map.extent().blocks();
        map.attach_place(key, place);
        map.mark_written(key, place, BlockRange { first: 0, count: blocks }, None);
        self.possibly_durable.insert(n);
        match self.make_durable() {
            Ok(()) => drop(self.acknowledged.insert(n)),
            Err(_) => self.map = None,
        }
    }

    /// Does what the engine does: writes every frame to every member; one that fails is left behind, and all
    /// remaining devices record that before the frame counts.
    fn make_durable(&mut self) -> Result<(), MapError> {
        let Some(map) = &mut self.map else { return Ok(()) };
        map.begin_commit();
        let mut bytes = Vec::new();
        loop {
            if !map.has_journal_space() {
                map.checkpoint_now(&mut self.store)?;
                map.checkpoint_now(&mut self.store)?;
            }
            let Some(at) = map.next_frame(|_| None, &mut bytes) else { break };
            for member in map.members().to_vec() {
                let written = self.store.write(member, at, &bytes).and_then(|()| self.store.flush(member));
                if let Err(error) = written {
                    let failed = MapError::Io { device: member, what: "write", at, error };
                    if !map.leave_behind(member) {
                        return Err(failed);
                    }
                    self.coverage.left_behind += 1;
                    write_superblocks(&mut self.store, map)?;
                }
            }
            map.finish_commit(&mut Vec::new());
        }
        map.finish_commit(&mut Vec::new());
        Ok(())
    }

    fn checkpoint(&mut self) {
        let Some(map) = &mut self.map else { return };
        if map.checkpoint_now(&mut self.store).is_err() {
            self.map = None;
        }
    }

    fn crash_while_writing(&mut self, writes: u8, absent: DeviceSet, seed: u64) {
        let mut rng = Rng(seed);
        self.store.fail_after(1 + u64::from(writes));
        (0..writes).for_each(|_| self.commit());
        self.restore_power(&mut rng);
        for _ in 0..rng.below(3) {
            self.store.fail_after(1 + rng.below(30));
            if self.open(absent).is_err() {
                self.coverage.cut_openings += 1;
            }
            self.restore_power(&mut rng);
        }
        self.open_with_fallbacks(absent);
    }

    fn kill(&mut self, writes: u8, absent: DeviceSet) {
        self.store.fail_after(1 + u64::from(writes));
        (0..writes).for_each(|_| self.commit());
        self.server_ended();
        if !writes.is_multiple_of(3) {
            self.store.fail_after(1 + u64::from(writes) * 3);
            if self.open(absent).is_err() {
                self.coverage.cut_openings += 1;
            }
            self.server_ended();
        }
        self.open_with_fallbacks(absent);
    }

    fn server_ended(&mut self) {
        self.store.kill();
        (0..3).for_each(|n| self.store.set_broken(DeviceId(n), false));
        self.map = None;
    }

    fn restore_power(&mut self, rng: &mut Rng) {
        self.store.power_loss(rng);
        (0..3).for_each(|n| self.store.set_broken(DeviceId(n), false));
        self.map = None;
    }

    /// Opens without the absent devices if that is allowed, else as a user would proceed.
    fn open_with_fallbacks(&mut self, absent: DeviceSet) {
        let members_absent = MEMBERS.iter().filter(|m| absent.contains(**m)).count();
        match self.open(absent) {
            Ok(()) => {}
            Err(MapError::MirrorAbsent { device }) => {
                assert!(absent.contains(device));
                // Half of the time the device is brought back, else a rollback is accepted.
                if !self.rolls_back || self.next.is_multiple_of(2) || self.accept_rollback(absent).is_err() {
                    self.open_all();
                }
            }
            Err(MapError::Stale { .. } | MapError::Mismatch(_)) => {
                assert!(members_absent > 0);
                self.coverage.stale += u64::from(members_absent == 1);
                self.open_all();
            }
            Err(MapError::Diverged { .. }) if self.forked => self.open_all(),
            Err(error) => panic!("without {absent:?}: {error}"),
        }
    }

    fn open_all(&mut self) {
        match self.open(DeviceSet::default()) {
            Ok(()) => {}
            Err(MapError::Diverged { .. }) if self.forked => {
                self.coverage.diverged += 1;
                // The user decides which member to leave out; one of the two must be dispensable.
                let opened = MEMBERS
                    .into_iter()
                    .any(|member| self.accept_rollback([member].into_iter().collect()).is_ok());
                assert!(opened, "neither member can be done without");
            }
            Err(error) => panic!("with all devices: {error}"),
        }
    }

    fn try_open(&mut self, absent: DeviceSet, options: &OpenOptions) -> Result<(Map, Recovery), MapError> {
        let mut found: Vec<Superblock> = Vec::new();
        for device in (0..3).map(DeviceId).filter(|device| !absent.contains(*device)) {
            found.extend(read_superblock(&mut self.store, device, SIZE)?);
        }
        let options = OpenOptions { planted: Planted::for_tests(), ..*options };
        weir_map::open(&mut self.store, &found, &options)
    }

    fn open(&mut self, absent: DeviceSet) -> Result<(), MapError> {
        loop {
            match self.open_once(absent) {
                Err(MapError::Io { error: IoError::Os(_), .. }) if self.failures > 0 => {
                    self.failures -= 1;
                    self.coverage.failed_openings += 1;
                    // The user tries again, at times after the power was off.
                    match self.failures.is_multiple_of(3) {
                        true => self.restore_power(&mut Rng(self.next)),
                        false => self.server_ended(),
                    }
                }
                other => return other,
            }
        }
    }

    fn open_once(&mut self, absent: DeviceSet) -> Result<(), MapError> {
        let without = [DATA].into_iter().collect::<DeviceSet>().and(absent);
        let (map, recovery) = self.try_open(absent, &OpenOptions { without, ..OpenOptions::default() })?;
        self.coverage.synchronized += recovery.synchronized.len() as u64;
        self.coverage.repaired += recovery.repaired;
        self.coverage.recorded += u64::from(!absent.without(without).is_empty());
        assert_eq!(recovery.absent, absent);
        assert_eq!(map.missing().without(map.absent()).without(recovery.left_behind), DeviceSet::default());
        let found = contents(&map);
        // After a fork, a member of the other history alone does not show that there is another history.
        if self.forked && self.branch.without(absent).is_empty() {
            self.opened(map, found);
            return Ok(());
        }
        assert!(
            found.is_superset(&self.acknowledged),
            "acknowledged and lost: {:?}",
            &self.acknowledged - &found
        );
        assert!(
            found.is_subset(&self.possibly_durable),
            "from nowhere: {:?}",
            &found - &self.possibly_durable
        );
        self.opened(map, found);
        Ok(())
    }

    /// Opens as with `--accept-rollback`: the state found becomes the expected one.
    fn accept_rollback(&mut self, absent: DeviceSet) -> Result<(), MapError> {
        let (map, _) = self.try_open(
            absent,
            &OpenOptions { accept_rollback: true, without: absent, ..OpenOptions::default() },
        )?;
        self.coverage.rollbacks += 1;
        self.forked = true;
        let found = contents(&map);
        self.opened(map, found);
        Ok(())
    }

    /// Notes that the state found is durable now.
    fn opened(&mut self, map: Map, found: BTreeSet<u64>) {
        self.acknowledged.clone_from(&found);
        self.branch = map.members().iter().copied().collect();
        self.forked &= self.branch.len() < 2;
        // After a fork other members may still have more.
        self.possibly_durable = if self.forked { &self.possibly_durable | &found } else { found };
        self.map = Some(map);
    }

    /// Damages one member only, which must not matter while the other is current.
    fn corrupt_metadata(&mut self, member: DeviceId, seed: u64) {
        let mut rng = Rng(seed);
        let Some(map) = self.map.take() else { return };
        let both = map.members().len() == 2;
        self.restore_power(&mut rng);
        let area = ROOT_AT[0].0 / PAGE as u64..SIZE.0 / PAGE as u64 - 1;
        let pages: Vec<u64> = self.store.pages(member).filter(|n| area.contains(n)).collect();
        if both {
            let number = pages[rng.below(pages.len() as u64) as usize];
            let mut page = self.store.page(member, number);
            let bit = rng.below(PAGE as u64 * 8) as usize;
            page[bit / 8] ^= 1 << (bit % 8);
            self.store.set_page(member, number, page);
        }
        self.open_all();
    }
}

fn write_superblocks(store: &mut MemStore, map: &Map) -> Result<(), MapError> {
    for sb in map.devices() {
        let left = !map.missing().contains(sb.device) && !map.absent().contains(sb.device);
        match left.then(|| write_superblock(store, sb)) {
            Some(Err(error)) if map.members().contains(&sb.device) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn contents(map: &Map) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    map.for_each(VOLUME, |index, _| found.extend([index.0]));
    found
}

#[test]
fn acknowledged_commits_survive_either_member() {
    let all = Cell::new(Coverage::default());
    property(120, prop::collection::vec(step(), 1..60), |steps| {
        let mut history = History::new();
        history.coverage = all.get();
        history.run(&steps);
        all.set(history.coverage);
    });
    let met = all.get();
    let corners = [
        met.left_behind,
        met.synchronized,
        met.recorded,
        met.rollbacks,
        met.stale,
        met.diverged,
        met.cut_openings,
        met.repaired,
    ];
    assert!(corners.iter().all(|n| *n > 0), "the histories miss something: {met:?}");
}

#[test]
fn member_counts_only_if_complete() {
    let all = Cell::new(Coverage::default());
    property(400, prop::collection::vec(passing(), 1..60), |steps| {
        let mut history = History::new();
        (history.rolls_back, history.coverage) = (false, all.get());
        history.run(&steps);
        all.set(history.coverage);
    });
    let met = all.get();
    let corners = [met.left_behind, met.synchronized, met.recorded, met.cut_openings, met.failed_openings];
    assert!(corners.iter().all(|n| *n > 0), "the histories miss something: {met:?}");
}

#[test]
fn leave_behind_record_survives_failed_flush() {
    let without: DeviceSet = [MEMBERS[1], DATA].into_iter().collect();
    let options = OpenOptions { accept_rollback: true, without, planted: Planted::for_tests() };
    for flushes in 1..9 {
        let mut history = History::new();
        history.restore_power(&mut Rng(1));
        history.store.fail_flush_after(MEMBERS[0], flushes);
        history.try_open(without, &options).map(drop).expect_err("a flush fails");
        let (map, _) = history.try_open(without, &options).expect("no flush fails");
        drop(map);
        history.restore_power(&mut Rng(3));
        for copy in [0, SIZE.0 / PAGE as u64 - 1] {
            let found = Superblock::decode(&history.store.page(MEMBERS[0], copy));
            let Reading::Good(found) = found else { panic!("flush {flushes}: {found:?}") };
            assert_eq!(found.missing, without, "flush {flushes}");
        }
    }
}

#[test]
fn unreadable_torn_superblock_does_not_return() {
    let mut history = History::new();
    // The other member was left behind: one copy records this when the power fails.
    let map = history.map.as_mut().expect("it is open");
    assert!(map.leave_behind(MEMBERS[1]));
    let page = map.devices()[0].encode();
    history.store.set_page(MEMBERS[0], 0, *page);
    history.restore_power(&mut Rng(1));
    history.store.fail_read(MEMBERS[0], 0);
    history.open(DeviceSet::default()).expect("the other copy is read");
    history.store.set_broken(MEMBERS[0], true);
    history.commit();
    assert_eq!(history.coverage.left_behind, 1);
    history.restore_power(&mut Rng(1));
    history.open(DeviceSet::default()).expect("what each of them says goes together");
    assert_eq!(history.coverage.synchronized, 1);
}

/// Returns the sets of absent members: none, or either one.
fn present_device_sets() -> [DeviceSet; 3] {
    [DeviceSet::default(), MEMBERS[..1].iter().copied().collect(), MEMBERS[1..].iter().copied().collect()]
}

/// Opens the pool while a flush of each member fails, and again without a power loss, with either or both
/// members; then after one.
fn check_flush_failures(base: &History, flushes: [u64; 2], breaks: bool) {
    for (second, third) in
        present_device_sets().into_iter().flat_map(|s| present_device_sets().map(|t| (s, t)))
    {
        let what = format!("flushes {flushes:?} fail, breaking {breaks}; without {second:?}, {third:?}");
        let mut history = base.while_closed();
        let opened = |history: &mut History, absent: DeviceSet| {
            match history.open(absent) {
                Ok(()) => history.commit(),
                Err(MapError::MirrorAbsent { .. } | MapError::Stale { .. } | MapError::Io { .. }) => {}
                Err(error) => panic!("{what}: {error}"),
            };
            history.store.fail_flush_after(MEMBERS[0], u64::MAX);
            history.store.fail_flush_after(MEMBERS[1], u64::MAX);
            history.server_ended();
        };
        for (member, flushes) in MEMBERS.into_iter().zip(flushes) {
            history.store.break_at_flush(member, flushes, breaks);
        }
        opened(&mut history, DeviceSet::default());
        opened(&mut history, second);
        history.restore_power(&mut Rng(flushes[0] * 16 + flushes[1]));
        opened(&mut history, third);
        history.restore_power(&mut Rng(flushes[1]));
        history.open(DeviceSet::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

#[test]
fn members_never_diverge_after_failed_flushes() {
    let both = History::new();
    let mut one = History::new();
    one.store.set_broken(MEMBERS[1], true);
    one.commit();
    for mut base in [both, one] {
        base.restore_power(&mut Rng(1));
        for (a, b) in (0..12).flat_map(|a| (0..12).map(move |b| (a, b))) {
            check_flush_failures(&base, [a, b], false);
            check_flush_failures(&base, [a, b], true);
        }
    }
}

#[test]
fn left_behind_member_is_not_served() {
    let mut history = History::new();
    history.store.set_broken(MEMBERS[1], true);
    history.commit();
    assert_eq!(history.coverage.left_behind, 1);
    history.restore_power(&mut Rng(1));
    history.store.fail_flush(MEMBERS[1]);
    let error = history.open(DeviceSet::default()).expect_err("it may have users' data");
    assert!(matches!(error, MapError::Io { what: "flush", .. }), "{error}");
    history.open([MEMBERS[1]].into_iter().collect()).expect("the pool opens without it");
}
