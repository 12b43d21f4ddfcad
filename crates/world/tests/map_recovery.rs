//! The map alone against power cuts: whatever was committed is there after opening, and nothing
//! that was not; two owners never share a place.
//!
//! The engine's part is played here in the simplest way: one change after the other, no data.

mod common;

use common::property;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use weir_map::{Found, Hardening, KeepSpace, Location, Map, MapError, NewDevice, NewPool, PoolId, Whole};
use weir_model::{
    BlockRange, Bytes, DeviceClass, DeviceId, ExtentIndex, ExtentKey, ExtentSize, Nanos, Store, VolumeId,
};
use weir_world::{DeviceSpec, Pace, Seed, Stop, World};

const DEVICES: [Bytes; 2] = [Bytes::mib(8), Bytes::mib(6)];
const EXTENT: Bytes = Bytes::kib(64);
/// Far apart, so that several leaves, levels and record groups come and go.
const STRIDE: u64 = 211;
const EXTENTS: u64 = 150;

#[derive(Clone)]
enum Step {
    Write(u64, BlockRange),
    Clear(u64, BlockRange, KeepSpace),
    Commit,
    Checkpoint,
    /// The power fails at this blocking write from now on.
    CutAt(u64),
    Cut,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(extent, range) => write!(f, "write extent {extent}: {}+{}", range.first, range.count),
            Self::Clear(extent, range, keep) => {
                write!(f, "clear extent {extent}: {}+{}, keep {keep:?}", range.first, range.count)
            }
            Self::Commit => f.write_str("commit"),
            Self::Checkpoint => f.write_str("checkpoint"),
            Self::CutAt(write) => write!(f, "power cut at write {write}"),
            Self::Cut => f.write_str("power cut"),
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let blocks = (EXTENT.0 / 4096) as u16;
    let range = prop_oneof![
        Just(BlockRange { first: 0, count: blocks }),
        (0..blocks, 1..blocks)
            .prop_map(move |(first, count)| BlockRange { first, count: count.min(blocks - first) }),
    ];
    let keep = prop_oneof![8 => Just(KeepSpace::AsIs), 1 => Just(KeepSpace::Yes), 1 => Just(KeepSpace::No)];
    prop_oneof![
        30 => (0..EXTENTS, range.clone()).prop_map(|(extent, range)| Step::Write(extent * STRIDE, range)),
        20 => (0..EXTENTS, range, keep)
            .prop_map(|(extent, range, keep)| Step::Clear(extent * STRIDE, range, keep)),
        8 => Just(Step::Commit),
        2 => Just(Step::Checkpoint),
        2 => (1u64..30).prop_map(Step::CutAt),
        1 => Just(Step::Cut),
    ]
}

/// The places of an extent with the blocks valid in each, and whether their space is kept.
type Value = (Vec<(Whole, Vec<u16>)>, bool);

struct Bench {
    world: World,
    map: Map,
    volume: VolumeId,
    /// By extent: what a recovery must find,
    durable: BTreeMap<u64, Value>,
    /// or may find instead.
    committing: BTreeMap<u64, Value>,
}

impl Bench {
    fn new(seed: Seed) -> Result<Self, MapError> {
        let pace = Pace::Random(Nanos::millis(1));
        let spec = |size| DeviceSpec { size, pace: pace.clone(), write_cache: true, faults: vec![] };
        let mut world = World::new(seed, Bytes(4096), &DEVICES.map(spec)).expect("no model is named");
        let device = |size| NewDevice { name: format!("{size}"), size, class: DeviceClass::Ssd };
        let pool = NewPool {
            id: PoolId([1; 16]),
            name: "pool".to_owned(),
            extent: ExtentSize::new(EXTENT).expect("a valid size"),
            devices: DEVICES.map(device).into(),
            metadata: DeviceId(0),
        };
        weir_map::create(&mut world, &pool)?;
        let map = open(&mut world)?;
        let mut bench =
            Self { world, map, volume: VolumeId(0), durable: BTreeMap::new(), committing: BTreeMap::new() };
        let size = Bytes((EXTENTS * STRIDE + 1) * EXTENT.0);
        bench.volume = bench.map.create_volume("volume", size, Hardening::Flush);
        bench.commit()?;
        Ok(bench)
    }

    fn key(&self, extent: u64) -> ExtentKey {
        ExtentKey { volume: self.volume, index: ExtentIndex(extent) }
    }

    fn value(&self, extent: u64) -> Value {
        let blocks = (EXTENT.0 / 4096) as u16;
        match self.map.find(self.key(extent)) {
            Found::Empty => Value::default(),
            Found::Direct(whole) => (vec![(whole, (0..blocks).collect())], false),
            Found::Record(record) => {
                let place = |place: &weir_map::Place| match place.at {
                    Location::Whole(whole) => {
                        (whole, (0..blocks).filter(|b| place.valid.contains(*b)).collect())
                    }
                    Location::Fine { .. } => panic!("nobody made a fine place"),
                };
                (record.places.iter().map(place).collect(), record.keep)
            }
        }
    }

    fn places(&self, extent: u64) -> Vec<Whole> {
        self.value(extent).0.into_iter().map(|(whole, _)| whole).collect()
    }

    fn step(&mut self, step: &Step) -> Result<(), MapError> {
        match *step {
            Step::Write(extent, range) => self.write(extent, range),
            Step::Clear(extent, range, keep) => {
                let key = self.key(extent);
                self.map.cleared(key, range, keep);
                self.map.give_back(key);
            }
            Step::Commit => self.commit()?,
            Step::Checkpoint => {
                self.commit()?;
                self.map.checkpoint_now(&mut self.world)?;
            }
            Step::CutAt(write) => self.world.cut_at_store_write(Some(write)),
            Step::Cut => return self.recover(),
        }
        Ok(())
    }

    fn write(&mut self, extent: u64, range: BlockRange) {
        let key = self.key(extent);
        let whole = match self.places(extent).first() {
            Some(whole) => *whole,
            None if !self.map.has_metadata_room() => return,
            None => {
                let Some(whole) = (0..2).find_map(|device| self.map.allocate(DeviceId(device))) else {
                    return;
                };
                self.map.place(key, whole);
                whole
            }
        };
        self.map.written(key, whole, range, None);
    }

    fn commit(&mut self) -> Result<(), MapError> {
        for extent in (0..EXTENTS).map(|extent| extent * STRIDE) {
            if self.map.has_pending(self.key(extent)) {
                self.committing.insert(extent, self.value(extent));
            }
        }
        while self.map.has_uncommitted() {
            self.write_frames()?;
            if self.map.wants_checkpoint() || !self.map.has_journal_room() {
                self.map.checkpoint_now(&mut self.world)?;
            }
        }
        self.durable.append(&mut self.committing);
        Ok(())
    }

    /// As many frames as the journal has room for.
    fn write_frames(&mut self) -> Result<(), MapError> {
        let failed = |frame: weir_map::FrameWrite, what| {
            move |error| MapError::Io { device: frame.device, what, at: frame.at, error }
        };
        let (mut bytes, mut released, mut last) = (Vec::new(), Vec::new(), None);
        self.map.begin_commit();
        while self.map.has_journal_room() {
            let Some(frame) = self.map.next_frame(|_| None, &mut bytes) else { break };
            self.world.write(frame.device, frame.at, &bytes).map_err(failed(frame, "write"))?;
            last = Some(frame);
        }
        if let Some(frame) = last {
            self.world.flush(frame.device).map_err(failed(frame, "flush"))?;
        }
        self.map.commit_durable(&mut released);
        released.into_iter().for_each(|whole| self.map.reuse(whole));
        Ok(())
    }

    /// Opens the pool as often as it takes, and looks at what is there.
    fn recover(&mut self) -> Result<(), MapError> {
        self.map = loop {
            self.world.stop(Stop::PowerCut);
            match open(&mut self.world) {
                Err(_) if self.world.is_dark() => {}
                opened => break opened?,
            }
        };
        let mut owned = BTreeSet::new();
        for extent in (0..EXTENTS).map(|extent| extent * STRIDE) {
            let found = self.value(extent);
            let committed = self.durable.get(&extent).cloned().unwrap_or_default();
            let committing = self.committing.get(&extent);
            assert!(
                found == committed || committing == Some(&found),
                "extent {extent} is {found:?}; it was {committed:?}, to become {committing:?}"
            );
            self.durable.insert(extent, found);
            for whole in self.places(extent) {
                assert!(owned.insert(whole), "{whole:?} has two owners");
            }
        }
        self.committing.clear();
        for device in [DeviceId(0), DeviceId(1)] {
            let space = self.map.space(device);
            let taken = owned.iter().filter(|whole| whole.device == device).count() as u32;
            assert_eq!(space.extents() - space.free(), taken, "device {device}");
        }
        Ok(())
    }

    fn run(&mut self, steps: &[Step]) {
        for step in steps {
            match self.step(step) {
                Err(_) if self.world.is_dark() => self.recover().expect("the pool opens"),
                done => done.expect("nothing is wrong with the devices"),
            }
        }
        self.world.cut_at_store_write(None);
        self.commit().expect("nothing is wrong with the devices");
        self.recover().expect("the pool opens");
    }
}

#[test]
fn what_was_committed_survives() {
    let histories = (prop::collection::vec(step(), 1..2000), any::<u64>());
    property(60, histories, |(steps, seed)| {
        let mut bench = Bench::new(Seed(seed)).expect("the pool is created");
        bench.run(&steps);
        Ok(())
    });
}

fn open(world: &mut World) -> Result<Map, MapError> {
    let mut superblocks = Vec::new();
    for (number, size) in DEVICES.into_iter().enumerate() {
        let found = weir_map::create::read_superblock(world, DeviceId(number as u8), size)?;
        superblocks.push(found.expect("a pool was created"));
    }
    Ok(weir_map::open(world, superblocks)?.0)
}
