//! A history of a pool beside its naive twin: steps, power cuts, damage, and what must hold after
//! each. Everything panics where the map and the twin differ.

mod cuts;

use super::pool::{META, POOL, Shape, create, open, superblocks};
use super::store::MemStore;
use super::twin::{Effect, Held, HeldPlace, Live, MiniDevice, State, Version, key};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_map::delta::Delta;
use weir_map::journal::Frame;
use weir_map::root::Root;
use weir_map::superblock::JOURNAL_AT;
use weir_map::{
    Chunk, Copied, Hardening, Intent, IntentKind, KeepSpace, Location, Map, Needs, PAGE, RecordId,
    Superblock, Word,
};
use weir_model::{BlockRange, Bytes, DeviceId, DeviceOffset, ExtentKey, PlaceId, PlaceKind, Store, VolumeId};

/// Extents of the volumes there may be: trees of one, two and three levels.
const VOLUMES: [u64; 3] = [300, 5000, 600_000];
const SLOTS: u64 = 200;

/// An extent: of the n-th volume, the n-th of those used.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    pub volume: u8,
    pub slot: u8,
}

/// A run of blocks, fitted to the extent size; `None` is all of them.
pub type Run = Option<(u16, u16)>;

#[derive(Clone, Debug)]
pub enum Step {
    Create(u8),
    Remove(u8),
    Place(Spot, u8),
    Write {
        at: Spot,
        place: u8,
        run: Run,
        durable: bool,
    },
    Many {
        first: Spot,
        count: u8,
        run: Run,
    },
    Clear {
        at: Spot,
        run: Run,
        keep: u8,
    },
    GiveBack(Spot),
    /// A write to fine slots of a device.
    WriteFine {
        at: Spot,
        device: u8,
        run: Run,
    },
    /// A copy to a device: to slots, or a whole place.
    Copy {
        at: Spot,
        device: u8,
        fine: bool,
        run: Run,
        durable: bool,
    },
    Drop {
        at: Spot,
        place: u8,
        run: Run,
    },
    Narrow {
        at: Spot,
        place: u8,
        run: Run,
    },
    /// Write intents, or their withdrawal.
    Intend {
        at: Spot,
        run: Run,
        settled: bool,
    },
    Flush(u8),
    Reuse(u8),
    /// So many steps of a commit; whether frames are made durable one by one.
    Commit {
        steps: u8,
        eager: bool,
    },
    /// So many steps of a checkpoint, with this many pages at once.
    Checkpoint {
        steps: u8,
        pages: u8,
    },
    Settle,
    Cut {
        seed: u64,
        damage: bool,
    },
}

/// What histories have met, to know that they reach the corners.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
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
    /// As opened, and the frames written since.
    base: State,
    effects: Vec<Effect>,
    /// So many of them are durable, which makes:
    durable: usize,
    state: State,
    /// So many are in the older and in the newest durable root.
    rooted: (usize, usize),
    live: BTreeMap<ExtentKey, Live>,
    owner: BTreeMap<RecordId, ExtentKey>,
    allocated: BTreeSet<Chunk>,
    given_back: BTreeSet<Chunk>,
    resting: Vec<Chunk>,
    admin: VecDeque<Delta>,
    volumes_made: BTreeSet<VolumeId>,
    /// Being removed, and those of them whose end is queued.
    going: BTreeSet<VolumeId>,
    dropping: BTreeSet<VolumeId>,
    /// The commit under way: what could be committed when it began (how many versions, how many
    /// ready), and what its frames had.
    commit: Option<BTreeMap<ExtentKey, (usize, usize)>>,
    touched: BTreeSet<ExtentKey>,
    flushed_meanwhile: bool,
    checkpoint: Option<(Checkpointing, usize)>,
    last_at: u64,
    pub met: Met,
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
            rooted: (0, 0),
            live: BTreeMap::new(),
            owner: BTreeMap::new(),
            allocated: BTreeSet::new(),
            given_back: BTreeSet::new(),
            resting: Vec::new(),
            admin: VecDeque::new(),
            volumes_made: BTreeSet::new(),
            going: BTreeSet::new(),
            dropping: BTreeSet::new(),
            commit: None,
            touched: BTreeSet::new(),
            flushed_meanwhile: false,
            checkpoint: None,
            last_at: 0,
            met: Met::default(),
        }
    }

    pub fn run(&mut self, steps: &[Step]) {
        // Something to work on from the start.
        for step in [Step::Create(0), Step::Create(1), Step::Settle].iter().chain(steps) {
            self.step(step);
        }
        self.settle();
        self.cut(1, false);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Create(size) => self.create_volume(size),
            Step::Remove(volume) => self.remove_volume(volume),
            Step::Place(at, device) => self.with(at, |h, key| h.place(key, device)),
            Step::Write { at, place, run, durable } => {
                self.with(at, |h, key| h.write(key, place, run, durable));
            }
            Step::Many { first, count, run } => {
                for slot in first.slot..first.slot.saturating_add(count) {
                    self.with(Spot { slot, ..first }, |h, key| {
                        if h.current(key).places.is_empty() {
                            h.place(key, slot % 2);
                        }
                        h.write(key, 0, run, false);
                    });
                }
            }
            Step::Clear { at, run, keep } => {
                let keep = [KeepSpace::AsIs, KeepSpace::Yes, KeepSpace::No][usize::from(keep % 3)];
                self.with(at, |h, key| h.clear(key, run, keep));
            }
            Step::GiveBack(at) => self.with(at, |h, key| h.give_back(key)),
            Step::WriteFine { at, device, run } => self.with(at, |h, key| h.write_fine(key, device, run)),
            Step::Copy { at, device, fine, run, durable } => {
                let kind = if fine { PlaceKind::Fine } else { PlaceKind::Whole };
                let to = PlaceId { device: DeviceId(device % 2), kind };
                self.with(at, |h, key| h.copy(key, to, run, durable));
            }
            Step::Drop { at, place, run } => self.with(at, |h, key| h.drop_place(key, place, run)),
            Step::Narrow { at, place, run } => self.with(at, |h, key| h.narrow(key, place, run)),
            Step::Intend { at, run, settled } => self.with(at, |h, key| h.intend(key, run, settled)),
            Step::Flush(device) => self.flush_data(usize::from(device % 2)),
            Step::Reuse(count) => {
                for chunk in self.resting.drain(..usize::from(count).min(self.resting.len())) {
                    self.map.reuse(chunk);
                    assert!(self.allocated.remove(&chunk));
                }
            }
            Step::Commit { steps, eager } => (0..steps).for_each(|_| self.commit_step(eager)),
            Step::Checkpoint { steps, pages } => {
                (0..steps).for_each(|_| self.checkpoint_step(usize::from(pages.max(1)) * PAGE));
            }
            Step::Settle => self.settle(),
            Step::Cut { seed, damage } => self.cut(seed, damage),
        }
        self.check_space();
    }

    fn nth_volume(&self, n: u8) -> Option<VolumeId> {
        let all: Vec<_> = self.state.volumes.keys().filter(|v| !self.going.contains(v)).collect();
        (!all.is_empty()).then(|| *all[usize::from(n) % all.len()])
    }

    /// Does something to an extent, if there is a volume, and compares what is found there after.
    fn with(&mut self, at: Spot, act: impl FnOnce(&mut Self, ExtentKey)) {
        let Some(volume) = self.nth_volume(at.volume) else { return };
        let extents = self.state.volumes[&volume].1.0 >> self.shape.extent_log2;
        let key = key(volume, u64::from(at.slot) % SLOTS * (extents / SLOTS));
        act(self, key);
        self.check_extent(key);
    }

    fn current(&self, key: ExtentKey) -> Held {
        let durable = || self.state.extents.get(&key).cloned().unwrap_or_default();
        self.live.get(&key).map_or_else(durable, |live| live.current.clone())
    }

    fn check_extent(&self, key: ExtentKey) {
        let found = Held::of_found(&self.map.find(key), self.blocks);
        assert_eq!(found, self.current(key), "what is found at {key}");
        self.check_overwrites(key);
    }

    /// Makes `held` the extent's current value, as a new version if there are needs to name.
    fn change(&mut self, key: ExtentKey, held: Held, version: Option<Option<Needs>>) {
        let before = self.current(key).chunks();
        self.given_back.extend(before.difference(&held.chunks()).copied());
        let live = self.live.entry(key).or_default();
        if let Some(needs) = version {
            live.versions.push(Version { needs, held: held.settled(self.blocks) });
        }
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

    fn place(&mut self, key: ExtentKey, device: u8) {
        let mut held = self.current(key);
        if held.places.len() >= 3 {
            return;
        }
        if !self.map.has_metadata_room() {
            self.met.no_metadata_room += 1;
            return;
        }
        let device = DeviceId(device % 2);
        if held.places.iter().any(|p| p.id == PlaceId { device, kind: PlaceKind::Whole }) {
            return;
        }
        let Some(whole) = self.map.allocate(device) else {
            self.met.no_space += 1;
            return;
        };
        assert!(self.allocated.insert(Chunk::Whole(whole)), "{whole:?} was handed out twice");
        self.map.place(key, whole);
        held.places.push(HeldPlace::whole(whole, 0..0));
        self.change(key, held, None);
    }

    fn write(&mut self, key: ExtentKey, place: u8, run: Run, durable: bool) {
        let mut held = self.current(key);
        let wholes: Vec<_> = held.places.iter().filter_map(|p| p.whole).collect();
        if wholes.is_empty() {
            return;
        }
        let range = self.range(run);
        let whole = wholes[usize::from(place) % wholes.len()];
        let needs = (!durable).then(|| self.needs(whole.device));
        self.map.written(key, whole, range, needs);
        held.fill(&whole.into(), range);
        held.narrow(Location::from(whole).id(), range);
        self.changed(key, held, needs);
    }

    /// After a change that may have left one full place.
    fn changed(&mut self, key: ExtentKey, mut held: Held, needs: Option<Needs>) {
        held.keep &= !held.is_one_full(self.blocks);
        self.change(key, held, Some(needs));
    }

    /// Slots for a run, if there are enough.
    fn slots(&mut self, device: DeviceId, range: BlockRange) -> Option<Location> {
        let at = self.map.allocate_slots(device, range.count);
        let Some(Location::Fine { slots, .. }) = &at else {
            self.met.no_space += 1;
            return None;
        };
        for slot in slots {
            assert!(self.allocated.insert(Chunk::Slot(device, *slot)), "{slot:?} was handed out twice");
        }
        at
    }

    fn write_fine(&mut self, key: ExtentKey, device: u8, run: Run) {
        let (device, range) = (DeviceId(device % 2), self.range(run));
        let room =
            self.map.has_metadata_room() && self.may_have(key, PlaceId { device, kind: PlaceKind::Fine });
        let Some(at) = room.then(|| self.slots(device, range)).flatten() else { return };
        let needs = Some(self.needs(device));
        let mut held = self.current(key);
        self.map.written(key, at.clone(), range, needs);
        held.fill(&at, range);
        held.narrow(at.id(), range);
        self.met.fine += 1;
        self.changed(key, held, needs);
    }

    fn may_have(&mut self, key: ExtentKey, id: PlaceId) -> bool {
        let mut held = self.current(key);
        let wholes = held.places.iter().filter(|p| p.whole.is_some()).count();
        let most = if id.kind == PlaceKind::Fine && wholes == 0 { 3 } else { 4 };
        let room = held.places.len() < most && (id.kind == PlaceKind::Fine || wholes < 2);
        let may = held.place(id).is_some() || room;
        assert_eq!(self.map.may_have(key, id), may, "{key} may have {id:?}");
        may
    }

    fn copy(&mut self, key: ExtentKey, to: PlaceId, run: Run, durable: bool) {
        let range = self.range(run);
        let mut held = self.current(key);
        let all_held = (range.first..range.end()).all(|b| held.holders(b) > 0);
        if !self.may_have(key, to) || !self.map.has_metadata_room() {
            return;
        }
        let there = held.place(to).and_then(|p| p.whole);
        let at = match (to.kind, there) {
            (PlaceKind::Whole, Some(whole)) => Some(whole.into()),
            (PlaceKind::Whole, None) => self.map.allocate(to.device).map(|whole| {
                assert!(self.allocated.insert(Chunk::Whole(whole)), "{whole:?} was handed out twice");
                whole.into()
            }),
            (PlaceKind::Fine, _) => self.slots(to.device, range),
        };
        let Some(at) = at else { return };
        let source = (!durable).then(|| self.needs(DeviceId(1 - to.device.0)));
        let needs = (!durable).then(|| self.needs(to.device));
        let took = self.map.copied(key, at.clone(), range, source, needs);
        let mut copy = held.clone();
        copy.fill(&at, range);
        if took == Copied::Refused {
            assert!(!all_held, "{key}: a copy to {at:?} was refused");
            let mut fresh = Held::default();
            fresh.fill(&at, range);
            let unused = fresh.chunks().difference(&held.chunks()).copied().collect::<Vec<_>>();
            for chunk in unused {
                self.map.reuse(chunk);
                assert!(self.allocated.remove(&chunk));
            }
            return;
        }
        assert!(all_held, "{key}: a copy of what is nowhere");
        self.met.copies += 1;
        if source.is_some() {
            self.change(key, held, Some(source));
        }
        self.changed(key, copy, needs);
    }

    fn nth_place(&self, key: ExtentKey, place: u8) -> Option<PlaceId> {
        let places = self.current(key).places;
        (!places.is_empty()).then(|| places[usize::from(place) % places.len()].id)
    }

    fn drop_place(&mut self, key: ExtentKey, place: u8, run: Run) {
        let Some(from) = self.nth_place(key, place) else { return };
        let range = self.range(run);
        let mut held = self.current(key);
        let blocks: Vec<_> = held.place(from).expect("named").blocks.keys().copied().collect();
        let may = blocks.iter().filter(|b| range.contains(**b)).all(|b| held.holders(*b) > 1);
        let record = held.places.len() > 1 || !held.is_one_full(self.blocks);
        assert_eq!(self.map.dropped(key, from, range), may && record, "{key}: a drop from {from:?}");
        if may && record {
            held.place(from).expect("named").blocks.retain(|b, _| !range.contains(*b));
            self.met.drops += 1;
            self.changed(key, held, None);
        }
    }

    fn narrow(&mut self, key: ExtentKey, place: u8, run: Run) {
        let Some(to) = self.nth_place(key, place) else { return };
        let range = self.range(run);
        let mut held = self.current(key);
        self.map.narrowed(key, to, range);
        held.narrow(to, range);
        held.intent.retain(|b| !range.contains(*b));
        self.changed(key, held, None);
    }

    fn intend(&mut self, key: ExtentKey, run: Run, settled: bool) {
        let range = self.range(run);
        let mut held = self.current(key);
        if held.places.is_empty() {
            return;
        }
        if settled {
            self.map.settled(key, range);
            held.intent.retain(|b| !range.contains(*b));
        } else {
            self.map.intend(key, range);
            held.intent.extend(range.first..range.end());
        }
        self.changed(key, held, None);
    }

    /// Safety rule 3, by looking at every state there is or may be.
    fn check_overwrites(&self, key: ExtentKey) {
        let versions = self.live.get(&key).into_iter().flat_map(|l| l.versions.iter().map(|v| &v.held));
        let on_the_way = self.effects[self.durable..].iter().flat_map(|e| &e.extents);
        let on_the_way = on_the_way.filter(|(k, _)| *k == key).map(|(_, held)| held);
        let states: Vec<_> = versions.chain(on_the_way).chain(self.state.extents.get(&key)).collect();
        let current = self.current(key);
        for place in &current.places {
            for first in 0..self.blocks {
                let range = BlockRange { first, count: 1 };
                let strict = states.iter().any(|s| s.differs_if_written(place.id, range));
                let differs = strict || current.differs_if_written(place.id, range);
                if self.map.may_overwrite(key, place.id, range) {
                    assert!(!current.differs_if_written(place.id, range), "{key} block {first}");
                    // A version that another replaced before it was committed never becomes durable.
                    assert!(!self.state_differs(key, place.id, range), "{key} block {first}");
                } else {
                    assert!(differs, "{key} block {first} of {:?}", place.id);
                }
            }
        }
    }

    fn state_differs(&self, key: ExtentKey, id: PlaceId, range: BlockRange) -> bool {
        let on_the_way = self.effects[self.durable..].iter().flat_map(|e| &e.extents);
        let mut states = on_the_way.filter(|(k, _)| *k == key).map(|(_, held)| held);
        let durable = self.state.extents.get(&key);
        states.any(|s| s.differs_if_written(id, range))
            || durable.is_some_and(|s| s.differs_if_written(id, range))
    }

    fn clear(&mut self, key: ExtentKey, run: Run, keep: KeepSpace) {
        let range = self.range(run);
        self.map.cleared(key, range, keep);
        let mut held = self.current(key);
        if held.places.is_empty() {
            return;
        }
        held.places.iter_mut().for_each(|p| p.blocks.retain(|b, _| !range.contains(*b)));
        held.intent.retain(|b| !range.contains(*b));
        held.keep = match keep {
            KeepSpace::AsIs => held.keep,
            KeepSpace::Yes => true,
            KeepSpace::No => false,
        };
        self.change(key, held, Some(None));
    }

    fn give_back(&mut self, key: ExtentKey) {
        self.map.give_back(key);
        let mut held = self.current(key);
        let whole = |p: &&HeldPlace| p.whole.is_some();
        let used = held.places.iter().filter(whole).find(|p| !p.blocks.is_empty());
        let kept = used.or(held.places.iter().find(whole)).filter(|_| held.keep).map(|p| p.id);
        let before = held.places.len();
        held.places.retain(|p| !p.blocks.is_empty() || Some(p.id) == kept);
        if held.places.len() < before {
            if held.places.is_empty() {
                held = Held::default();
            }
            self.change(key, held, Some(None));
        }
    }

    fn create_volume(&mut self, size: u8) {
        let made = self.admin.iter().filter(|d| matches!(d, Delta::Volume { .. })).count();
        if self.state.volumes.len() + made >= 4 || !self.map.has_metadata_room() {
            return;
        }
        let size = Bytes(VOLUMES[usize::from(size) % VOLUMES.len()] << self.shape.extent_log2);
        let name = format!("volume {}", self.volumes_made.len());
        let id = self.map.create_volume(&name, size, Hardening::Flush);
        assert!(self.volumes_made.insert(id), "volume id {} was used before", id.0);
        self.admin.push_back(Delta::Volume { id, name, size, hardening: Hardening::Flush, copies: 1 });
    }

    fn queue(&mut self, delta: Delta) {
        self.map.queue(delta.clone());
        self.admin.push_back(delta);
    }

    fn remove_volume(&mut self, volume: u8) {
        let Some(volume) = self.nth_volume(volume) else { return };
        let intent = Intent { kind: IntentKind::RemoveVolume, volume, progress: 0 };
        self.queue(Delta::Intent { id: volume.0, intent });
        self.clear_volume(volume);
    }

    fn clear_volume(&mut self, volume: VolumeId) {
        self.going.insert(volume);
        let all = key(volume, 0)..=key(volume, u64::MAX);
        let mut keys: BTreeSet<_> = self.live.range(all.clone()).map(|(key, _)| *key).collect();
        keys.extend(self.state.extents.range(all).map(|(key, _)| *key));
        for key in keys {
            self.clear(key, None, KeepSpace::No);
            self.give_back(key);
            self.check_extent(key);
        }
    }

    /// Volumes being removed go when every extent has been given back durably.
    fn drop_volumes(&mut self) {
        for volume in self.going.clone() {
            let all = key(volume, 0)..=key(volume, u64::MAX);
            let quiet = self.live.range(all.clone()).all(|(key, _)| !self.map.has_pending(*key));
            let is_empty = self.state.extents.range(all).next().is_none();
            if quiet && is_empty && self.dropping.insert(volume) {
                self.live.retain(|key, _| key.volume != volume);
                self.queue(Delta::DropVolume { id: volume });
                self.queue(Delta::EndIntent { id: volume.0 });
                self.met.removed += 1;
            }
        }
    }

    fn flush_data(&mut self, device: usize) {
        self.flushed_meanwhile = true;
        let device = &mut self.devices[device];
        device.flushed = Some(weir_map::Epoch(device.epoch));
        device.epoch += 1;
    }

    fn commit_step(&mut self, eager: bool) {
        if self.commit.is_none() {
            self.drop_volumes();
            if !self.map.has_uncommitted() {
                return;
            }
            self.map.begin_commit();
            let with_versions = self.live.iter().filter(|(_, live)| !live.versions.is_empty());
            let devices = &self.devices;
            let counted = with_versions.map(|(key, l)| (*key, (l.versions.len(), l.ready(devices))));
            self.commit = Some(counted.collect());
            self.touched.clear();
            self.flushed_meanwhile = false;
        }
        if !self.map.has_journal_room() {
            self.frames_durable();
            return self.make_room();
        }
        let (devices, mut bytes) = (self.devices, Vec::new());
        match self.map.next_frame(|d| devices[d.index()].flushed, &mut bytes) {
            Some(to) => {
                self.frame(to, bytes);
                if eager {
                    self.frames_durable();
                }
            }
            None => {
                self.frames_durable();
                self.check_commit();
            }
        }
    }

    /// Writes a frame, and compares what it says with what the twin would commit.
    fn frame(&mut self, to: DeviceOffset, bytes: Vec<u8>) {
        let ring = JOURNAL_AT.0..JOURNAL_AT.0 + self.shape.journal_pages * PAGE as u64;
        assert!(ring.contains(&to.0) && to.0 + bytes.len() as u64 <= ring.end);
        self.met.frames += 1;
        self.met.wraps += u64::from(to.0 < self.last_at);
        self.last_at = to.0;
        let range = to.0..to.0 + bytes.len() as u64;
        let needed = &self.effects[self.rooted.0..];
        let overlaps = |e: &Effect| e.at < range.end && range.start < e.at + e.bytes.len() as u64;
        assert!(!needed.iter().any(overlaps), "a frame overwrites one that a root needs");
        self.store.write(META, to, &bytes).expect("nothing fails here");
        let frame = Frame::decode(&bytes, POOL, self.blocks).expect("a frame just sealed");
        let mut effect = Effect {
            at: to.0,
            bytes,
            sequence: frame.sequence,
            durable: frame.durable,
            admin: Vec::new(),
            extents: Vec::new(),
        };
        let mut says: BTreeMap<ExtentKey, Held> = BTreeMap::new();
        for delta in &frame.deltas {
            if let Delta::Entry { key, word } = delta {
                match word {
                    Word::Empty => drop(says.insert(*key, Held::default())),
                    Word::Direct(whole) => drop(says.insert(*key, Held::full(*whole, self.blocks))),
                    Word::Record(id) => drop(self.owner.insert(*id, *key)),
                    Word::Child(_) => panic!("a leaf's word is no child"),
                }
            }
        }
        for delta in frame.deltas {
            match delta {
                Delta::Entry { .. } => {}
                Delta::Record { id, record } => {
                    drop(says.insert(self.owner[&id], Held::of_record(&record)));
                }
                Delta::DropRecord { id } => assert!(says.contains_key(&self.owner[&id])),
                other => {
                    assert_eq!(Some(&other), self.admin.front(), "queued work goes in order");
                    effect.admin.extend(self.admin.pop_front());
                }
            }
        }
        for (key, held) in says {
            assert!(self.touched.insert(key), "{key} is in a commit twice");
            let live = self.live.get_mut(&key).expect("something changed there");
            let ready = live.ready(&self.devices);
            let version = live.versions.drain(..ready).next_back();
            assert_eq!(Some(&held), version.as_ref().map(|v| &v.held), "what {key} commits");
            effect.extents.push((key, held));
        }
        self.effects.push(effect);
    }

    fn frames_durable(&mut self) {
        self.store.flush(META).expect("nothing fails here");
        let mut released = Vec::new();
        self.map.commit_durable(&mut released);
        for effect in &self.effects[self.durable..] {
            self.state.apply(effect);
        }
        self.durable = self.effects.len();
        if !released.is_empty() {
            let owned = self.state.owned();
            for chunk in released {
                assert!(self.given_back.remove(&chunk), "{chunk:?} was not given back");
                assert!(!owned.contains(&chunk), "{chunk:?} is released and durable");
                self.resting.push(chunk);
            }
        }
    }

    /// At a commit's end everything that was ready is durable.
    fn check_commit(&mut self) {
        let Some(begun) = self.commit.take() else { return };
        for (key, (versions, ready)) in begun {
            let Some(live) = self.live.get_mut(&key) else { continue };
            let looked_at_as_begun = !self.flushed_meanwhile && live.versions.len() == versions;
            if ready > 0 && looked_at_as_begun && !self.touched.contains(&key) {
                let durable = self.state.extents.get(&key).cloned().unwrap_or_default();
                assert_eq!(live.versions[ready - 1].held, durable, "{key} was ready and is not durable");
                live.versions.drain(..ready);
            }
        }
    }

    fn checkpoint_step(&mut self, most: usize) {
        let Some((phase, rooted)) = self.checkpoint.take() else {
            if self.durable == self.effects.len() {
                self.map.begin_checkpoint().expect("room was kept for it");
                self.checkpoint = Some((Checkpointing::Pages, self.durable));
            }
            return;
        };
        let phase = match phase {
            Checkpointing::Pages => {
                let mut bytes = Vec::new();
                match self.map.next_pages(most, &mut bytes) {
                    Some(to) => {
                        let from = self.superblocks[0].pages_at().0;
                        let area = from..from + self.shape.meta_pages * PAGE as u64;
                        assert!(area.contains(&to.0) && bytes.len() <= most);
                        self.store.write(META, to, &bytes).expect("nothing fails here");
                        Checkpointing::Pages
                    }
                    None => Checkpointing::Flush,
                }
            }
            Checkpointing::Flush => {
                self.store.flush(META).expect("nothing fails here");
                let (root, page, to) = self.map.finished_root().expect("all pages were taken");
                self.store.write(META, to, &page[..]).expect("nothing fails here");
                Checkpointing::Root(Box::new(root))
            }
            Checkpointing::Root(root) => {
                self.store.flush(META).expect("nothing fails here");
                self.map.checkpoint_durable(*root);
                self.rooted = (self.rooted.1, rooted);
                self.met.checkpoints += 1;
                return;
            }
        };
        self.checkpoint = Some((phase, rooted));
    }

    fn make_room(&mut self) {
        let mut begun = 0;
        while self.checkpoint.is_some() || !self.map.has_journal_room() {
            begun += u32::from(self.checkpoint.is_none());
            assert!(begun <= 2, "two checkpoints make room");
            self.checkpoint_step(8 * PAGE);
        }
    }

    /// Everything that can become durable does.
    fn settle(&mut self) {
        (0..2).for_each(|device| self.flush_data(device));
        for _ in 0..100_000 {
            if self.commit.is_none() && !self.map.has_uncommitted() {
                break;
            }
            self.commit_step(false);
        }
        assert!(!self.map.has_uncommitted() && self.given_back.is_empty() && self.map.releasing() == 0);
        self.live.retain(|key, live| {
            let durable = self.state.extents.get(key).cloned().unwrap_or_default();
            let mut named = live.current.clone();
            // A place nothing was written in yet is not named by anything durable.
            named.places.retain(|place| !place.blocks.is_empty() || durable.places.contains(place));
            assert_eq!(named.settled(self.blocks), durable, "{key} after everything was committed");
            live.versions.clear();
            live.current != durable
        });
        let keys: BTreeSet<_> = self.live.keys().chain(self.state.extents.keys()).copied().collect();
        keys.into_iter().for_each(|key| self.check_extent(key));
        assert_eq!(self.map.pending(), self.live.len(), "extents held for writes under way");
        assert_eq!(State::of(&self.map), self.state);
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
