//! A history of a pool beside its naive twin: steps, power losses, damage, and the expected state after each.
//! Any difference between the map and the twin panics.

mod changes;
mod crash;
mod durable;

use super::pool::{Shape, create, open, superblocks};
use super::store::MemStore;
use super::twin::{Effect, Live, MiniDevice, ModelExtent, State, Version, copies_of, key};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_map::delta::Delta;
use weir_map::root::Root;
use weir_map::{Chunk, Map, Needs, PAGE, RecordId, SpaceReservation, Superblock};
use weir_model::{BlockRange, DeviceId, ExtentKey, PlaceId, PlaceKind, VolumeId};

/// The extents of the possible volumes: trees of one, two and three levels.
const VOLUMES: [u64; 3] = [300, 5000, 600_000];
const SLOTS: u64 = 200;

/// An extent: the volume's ordinal, and the extent's among those used.
#[derive(Clone, Copy, Debug)]
pub struct ExtentRef {
    pub volume: u8,
    pub slot: u8,
}

/// A run of blocks, fitted to the extent size; `None` is all of them.
pub type Run = Option<(u16, u16)>;

#[derive(Clone, Debug)]
pub enum Step {
    Create(u8),
    Remove(u8),
    Place(ExtentRef, u8),
    Write {
        at: ExtentRef,
        place: u8,
        run: Run,
        durable: bool,
    },
    Many {
        first: ExtentRef,
        count: u8,
        run: Run,
    },
    Clear {
        at: ExtentRef,
        run: Run,
        keep: u8,
    },
    ReleaseEmpty(ExtentRef),
    /// Writes to fine slots of a device.
    WriteFine {
        at: ExtentRef,
        device: u8,
        run: Run,
    },
    /// Copies to a device: to slots, or a whole place.
    Copy {
        at: ExtentRef,
        device: u8,
        fine: bool,
        run: Run,
        durable: bool,
    },
    /// Copies a run of blocks that some place is valid for.
    CopyHeld {
        at: ExtentRef,
        device: u8,
        fine: bool,
        durable: bool,
    },
    Drop {
        at: ExtentRef,
        place: u8,
        run: Run,
    },
    Narrow {
        at: ExtentRef,
        place: u8,
        run: Run,
    },
    /// Opens write intents, or closes them.
    OpenIntent {
        at: ExtentRef,
        run: Run,
        settled: bool,
    },
    Flush(u8),
    Reuse(u8),
    /// Makes this many steps of a commit; `eager`: frames are made durable one by one.
    Commit {
        steps: u8,
        eager: bool,
    },
    /// Makes this many steps of a checkpoint, with this many pages at once.
    Checkpoint {
        steps: u8,
        pages: u8,
    },
    Settle,
    Crash {
        seed: u64,
        damage: bool,
    },
}

/// Counts of the situations that histories have met, to show that they cover the corner cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coverage {
    pub frames: u64,
    pub wraps: u64,
    pub checkpoints: u64,
    pub torn_frames: u64,
    pub no_metadata_room: u64,
    pub no_space: u64,
    pub damage_refused: u64,
    pub damage_survived: u64,
    pub older_roots: u64,
    pub cut_recoveries: u64,
    pub removed: u64,
    pub fine: u64,
    pub copies: u64,
    pub drops: u64,
    pub narrowed_first: u64,
    /// Extents with reserved space and one full place.
    pub kept_full: u64,
}

#[derive(Debug)]
enum Checkpointing {
    Pages,
    Flush,
    Root(Box<Root>),
}

pub struct History {
    shape: Shape,
    blocks: u16,
    superblocks: Vec<Superblock>,
    store: MemStore,
    map: Map,
    devices: [MiniDevice; 2],
    /// The state as opened, and the frames written since.
    base: State,
    effects: Vec<Effect>,
    /// The number of durable frames, and the resulting state.
    durable: usize,
    state: State,
    /// The number of frames in the older and in the newest durable root.
    checkpointed: (usize, usize),
    live: BTreeMap<ExtentKey, Live>,
    owner: BTreeMap<RecordId, ExtentKey>,
    allocated: BTreeSet<Chunk>,
    released: BTreeSet<Chunk>,
    quarantined: Vec<Chunk>,
    admin: VecDeque<Delta>,
    volumes_created: BTreeSet<VolumeId>,
    /// Volumes being removed, and those of them whose deletion is queued.
    volumes_being_removed: BTreeSet<VolumeId>,
    volumes_to_drop: BTreeSet<VolumeId>,
    /// The commit in progress: the state when it began (number of versions, number ready), and the extents in
    /// its frames.
    commit: Option<BTreeMap<ExtentKey, (usize, usize)>>,
    touched: BTreeSet<ExtentKey>,
    flushed_meanwhile: bool,
    checkpoint: Option<(Checkpointing, usize)>,
    last_at: u64,
    pub coverage: Coverage,
}

impl History {
    pub fn new(shape: Shape) -> Self {
        let superblocks = superblocks(shape);
        let mut store = MemStore::new(2);
        create(&mut store, &superblocks).expect("nothing is wrong with the devices");
        let (map, _) = open(&mut store, &superblocks).expect("a new pool opens");
        Self {
            shape,
            blocks: map.extent().blocks(),
            superblocks,
            store,
            map,
            devices: [MiniDevice::default(); 2],
            base: State::default(),
            effects: Vec::new(),
            durable: 0,
            state: State::default(),
            checkpointed: (0, 0),
            live: BTreeMap::new(),
            owner: BTreeMap::new(),
            allocated: BTreeSet::new(),
            released: BTreeSet::new(),
            quarantined: Vec::new(),
            admin: VecDeque::new(),
            volumes_created: BTreeSet::new(),
            volumes_being_removed: BTreeSet::new(),
            volumes_to_drop: BTreeSet::new(),
            commit: None,
            touched: BTreeSet::new(),
            flushed_meanwhile: false,
            checkpoint: None,
            last_at: 0,
            coverage: Coverage::default(),
        }
    }

    pub fn run(&mut self, steps: &[Step]) {
        // Initial volumes to work on.
        for step in [Step::Create(0), Step::Create(1), Step::Settle].iter().chain(steps) {
            self.step(step);
        }
        self.settle();
        self.crash(1, false);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Create(size) => self.create_volume(size),
            Step::Remove(volume) => self.remove_volume(volume),
            Step::Place(at, device) => self.with_extent(at, |h, key| h.place(key, device)),
            Step::Write { at, place, run, durable } => {
                self.with_extent(at, |h, key| h.write(key, place, run, durable));
            }
            Step::Many { first, count, run } => {
                for slot in first.slot..first.slot.saturating_add(count) {
                    self.with_extent(ExtentRef { slot, ..first }, |h, key| {
                        if h.current(key).places.is_empty() {
                            h.place(key, slot % 2);
                        }
                        h.write(key, 0, run, false);
                    });
                }
            }
            Step::Clear { at, run, keep } => {
                let keep =
                    [SpaceReservation::Unchanged, SpaceReservation::Reserve, SpaceReservation::Release]
                        [usize::from(keep % 3)];
                self.with_extent(at, |h, key| h.clear(key, run, keep));
            }
            Step::ReleaseEmpty(at) => self.with_extent(at, |h, key| h.release_empty_places(key)),
            Step::WriteFine { at, device, run } => {
                self.with_extent(at, |h, key| h.write_fine(key, device, run));
            }
            Step::Copy { at, device, fine, run, durable } => {
                let kind = if fine { PlaceKind::Fine } else { PlaceKind::Whole };
                let to = PlaceId { device: DeviceId(device % 2), kind };
                self.with_extent(at, |h, key| h.copy(key, to, run, durable));
            }
            Step::CopyHeld { at, device, fine, durable } => {
                let kind = if fine { PlaceKind::Fine } else { PlaceKind::Whole };
                let to = PlaceId { device: DeviceId(device % 2), kind };
                self.with_extent(at, |h, key| h.copy_valid_blocks(key, to, durable));
            }
            Step::Drop { at, place, run } => self.with_extent(at, |h, key| h.drop_place(key, place, run)),
            Step::Narrow { at, place, run } => self.with_extent(at, |h, key| h.narrow(key, place, run)),
            Step::OpenIntent { at, run, settled } => {
                self.with_extent(at, |h, key| h.open_intent(key, run, settled));
            }
            Step::Flush(device) => self.flush_data(usize::from(device % 2)),
            Step::Reuse(count) => {
                for chunk in self.quarantined.drain(..usize::from(count).min(self.quarantined.len())) {
                    self.map.reuse(chunk);
                    assert!(self.allocated.remove(&chunk));
                }
            }
            Step::Commit { steps, eager } => (0..steps).for_each(|_| self.commit_step(eager)),
            Step::Checkpoint { steps, pages } => {
                (0..steps).for_each(|_| self.checkpoint_step(usize::from(pages.max(1)) * PAGE));
            }
            Step::Settle => self.settle(),
            Step::Crash { seed, damage } => self.crash(seed, damage),
        }
        self.check_space();
    }

    fn nth_volume(&self, n: u8) -> Option<VolumeId> {
        let all: Vec<_> =
            self.state.volumes.keys().filter(|v| !self.volumes_being_removed.contains(v)).collect();
        (!all.is_empty()).then(|| *all[usize::from(n) % all.len()])
    }

    /// Changes an extent, if there is a volume, and compares the result.
    fn with_extent(&mut self, at: ExtentRef, act: impl FnOnce(&mut Self, ExtentKey)) {
        let Some(volume) = self.nth_volume(at.volume) else { return };
        let extents = self.state.volumes[&volume].1.0 >> self.shape.extent_log2;
        let key = key(volume, u64::from(at.slot) % SLOTS * (extents / SLOTS));
        act(self, key);
        self.check_extent(key);
    }

    fn current(&self, key: ExtentKey) -> ModelExtent {
        let empty = || ModelExtent { copies: copies_of(key.volume), ..ModelExtent::default() };
        let durable = || self.state.extents.get(&key).cloned().unwrap_or_else(empty);
        self.live.get(&key).map_or_else(durable, |live| live.current.clone())
    }

    fn check_extent(&self, key: ExtentKey) {
        let found = ModelExtent::of_found(&self.map.find(key), self.blocks);
        assert_eq!(found, self.current(key), "what is found at {key}");
        self.check_overwrites(key);
    }

    /// Makes `held` the extent's current value, as a new version if needs are given.
    fn change(&mut self, key: ExtentKey, held: ModelExtent, version: Option<Option<Needs>>) {
        let before = self.current(key).chunks();
        self.released.extend(before.difference(&held.chunks()).copied());
        let live = self.live.entry(key).or_default();
        if let Some(needs) = version {
            live.versions.push(Version { needs, held: held.after_recovery() });
        }
        self.coverage.kept_full += u64::from(held.space_reserved && held.is_one_full(self.blocks));
        live.current = held;
    }

    fn needs(&self, device: DeviceId) -> Needs {
        Needs { device, epoch: weir_map::Epoch(self.devices[device.index()].epoch) }
    }

    fn range(&self, run: Run) -> BlockRange {
        let blocks = self.blocks;
        run.map_or(BlockRange { first: 0, count: blocks }, |(first, count)| {
            let first = first % blocks;
            BlockRange { first, count: 1 + count % (blocks - first) }
        })
    }

    fn check_space(&self) {
        for sb in &self.superblocks {
            let here = self.allocated.iter().filter(|c| c.device() == sb.device);
            let extents = here.map(|chunk| match chunk {
                Chunk::Whole(whole) => whole.extent,
                Chunk::Slot(_, slot) => slot.extent,
            });
            let taken = extents.collect::<BTreeSet<_>>().len() as u32;
            assert_eq!(self.map.space(sb.device).free(), sb.data_extents - taken, "device {}", sb.device);
        }
    }
}
