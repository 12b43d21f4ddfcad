//! Random set-ups and histories: plain data that proptest makes up and shrinks.
#![allow(unreachable_pub, reason = "a part of the test binaries")]

use proptest::prelude::*;
use proptest::sample::select;
use weir_model::{BLOCK, Bytes, DeviceOffset, ExtentSize, Nanos, Op, SECTOR, VolumeOffset};
use weir_world::driver::{Ask, Crash, Setup, Step};
use weir_world::{DeviceSpec, Fault, Kinds, Pace, Seed, Stop};

/// What a history may contain.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Most steps.
    pub steps: usize,
    /// Power cuts and kills.
    pub crashes: bool,
    /// Devices that fail.
    pub faults: bool,
    /// Several volumes of one extent each fight over less space than they need, so that what one
    /// gives up another one gets at once.
    pub crowded: bool,
}

impl Kind {
    /// No more than requests, restarts and volumes that come and go.
    pub const fn calm(steps: usize) -> Self {
        Self { steps, crashes: false, faults: false, crowded: false }
    }
}

/// A set-up with a history for it.
pub fn history(kind: Kind) -> impl Strategy<Value = (Setup, Vec<Step>)> {
    // Steps do not depend on the set-up before both are made up, so that each shrinks by itself.
    (setup(kind), prop::collection::vec(step(kind), 1..=kind.steps)).prop_map(|(setup, steps)| {
        let steps = steps.into_iter().map(|step| step.sized(setup.extent)).collect();
        (setup, steps)
    })
}

/// A step, requests counted in extents of unknown size.
#[derive(Clone, Debug)]
enum Sketch {
    Ask { volume: usize, op: Op, at: Span, len: Span, fua: bool },
    Other(Step),
}

/// So many sixteenths of an extent and sectors.
type Span = (u64, u64);

impl Sketch {
    fn sized(self, extent: ExtentSize) -> Step {
        let sized = |(sixteenths, sectors)| sixteenths * extent.bytes().0 / 16 + sectors * SECTOR;
        match self {
            Self::Ask { volume, op, at, len, fua } => {
                let (offset, len) = (VolumeOffset(sized(at)), Bytes(sized(len)));
                Step::Ask(Ask { volume, op, offset, len, fua })
            }
            Self::Other(step) => step,
        }
    }
}

fn extent_size() -> impl Strategy<Value = ExtentSize> {
    let size = |kib| ExtentSize::new(Bytes::kib(kib)).expect("a valid size");
    select(vec![64, 64, 64, 64, 128, 128, 256, 1024, 4096]).prop_map(size)
}

/// Tiny devices, so that space runs out, under volumes that promise more than there is.
fn setup(kind: Kind) -> impl Strategy<Value = Setup> {
    let crowd = kind.crowded;
    let pace = prop_oneof![
        6 => (1u64..2000).prop_map(|usual| Pace::Random(Nanos::micros(usual))),
        1 => select(&weir_timing::NAMES[..]).prop_map(|name| Pace::Model(name.to_owned())),
    ];
    let extents = if crowd { (1u64..3).boxed() } else { prop_oneof![1u64..6, 1u64..24].boxed() };
    let devices = if crowd { 1..2 } else { 1..4 };
    let volume = if crowd { (Just(0), Just(0)).boxed() } else { (1u64..24, 0u64..64).boxed() };
    let volumes = if crowd { 3..5 } else { 1..4 };
    let device = (extents, pace, prop::bool::weighted(0.8), select(vec![512, 512, 4096]));
    (
        any::<u64>(),
        extent_size(),
        select(weir_policy::placement::ALL).prop_map(|policy| policy.0.to_owned()),
        prop::collection::vec(device, devices),
        prop::collection::vec(volume, volumes),
        select(if crowd { vec![16usize, 32] } else { vec![1, 2, 4, 8, 16, 32] }),
        select(vec![8u64, 12, 32]),
    )
        .prop_map(|(seed, extent, policy, devices, volumes, depth, memory)| {
            let bytes = extent.bytes().0;
            // Superblocks and, on the first device, the map come before the data.
            let before = |number| if number == 0 { 2 << 20 } else { 1 << 20 };
            let device = |(number, (extents, pace, write_cache, sector))| DeviceSpec {
                size: Bytes(bytes.max(before(number)) + extents * bytes + BLOCK),
                pace,
                write_cache,
                sector,
                faults: vec![],
            };
            // Large extents: fewer of them are enough.
            let fewer = (bytes >> 18).max(1);
            let volume = |(extents, blocks): (u64, u64)| Bytes((extents / fewer + 1) * bytes + blocks * 4096);
            Setup {
                seed: Seed(seed),
                extent,
                policy,
                devices: devices.into_iter().enumerate().map(device).collect(),
                volumes: volumes.into_iter().map(volume).collect(),
                memory: Bytes::mib(memory),
                depth,
            }
        })
}

fn step(kind: Kind) -> impl Strategy<Value = Sketch> {
    let (crashes, faults) = (u32::from(kind.crashes), u32::from(kind.faults));
    prop_oneof![
        800 => ask(kind),
        100 => (1usize..8).prop_map(|answers| Sketch::Other(Step::Wait(answers))),
        60 => (1u64..3000).prop_map(|micros| Sketch::Other(Step::Pass(Nanos::micros(micros)))),
        3 => Just(Sketch::Other(Step::Check)),
        2 => (0usize..4).prop_map(|volume| Sketch::Other(Step::Replace(volume))),
        2 => Just(Sketch::Other(Step::Restart)),
        12 * crashes => crash(),
        2 * crashes => (0usize..4, 0u64..20_000, stop()).prop_map(|(volume, micros, how)| {
            Sketch::Other(Step::CrashWhileReplacing(volume, Nanos::micros(micros), how))
        }),
        4 * faults => (0usize..4, fault()).prop_map(|(device, fault)| Sketch::Other(Step::Break(device, fault))),
    ]
}

fn crash() -> impl Strategy<Value = Sketch> {
    let again = prop_oneof![4 => Just(vec![]), 1 => prop::collection::vec(1u64..12, 1..3)];
    (stop(), again).prop_map(|(how, again)| Sketch::Other(Step::Crash(Crash { how, again })))
}

fn stop() -> impl Strategy<Value = Stop> {
    prop_oneof![3 => Just(Stop::PowerCut), 1 => Just(Stop::Kill)]
}

/// Something that goes wrong with a device: a few errors, a pause, or its end.
fn fault() -> impl Strategy<Value = Fault> {
    let everywhere = DeviceOffset(0)..DeviceOffset(u64::MAX);
    let errors = (any::<bool>(), any::<bool>(), any::<bool>(), 1u64..4, prop::bool::ANY).prop_map(
        move |(reads, writes, flushes, times, often)| Fault::Errors {
            kinds: Kinds { reads, writes, flushes },
            range: everywhere.clone(),
            chance: if often { 1.0 } else { 0.1 },
            times,
        },
    );
    prop_oneof![
        8 => errors,
        1 => Just(Fault::Slow { factor: 100, during: Nanos(0)..Nanos::MAX }),
        1 => (1u64..500).prop_map(|ms| Fault::Hang { during: Nanos(0)..Nanos::millis(ms) }),
        1 => (0u64..500).prop_map(|ms| Fault::Vanish { at: Nanos::millis(ms) }),
    ]
}

fn ask(kind: Kind) -> impl Strategy<Value = Sketch> {
    let data = prop_oneof![50 => Just(Op::Write), 45 => Just(Op::Read)];
    let clear = prop_oneof![
        4 => Just(Op::Trim),
        3 => Just(Op::WriteZeroes { no_hole: false }),
        2 => Just(Op::WriteZeroes { no_hole: true }),
    ];
    // Whole extents give their space back; at once, if it has to be durable.
    let whole = (0u64..8, 1u64..3).prop_map(|(at, len)| ((16 * at, 0), (16 * len, 0)));
    let whole = if kind.crowded { Just(((0, 0), (16, 0))).boxed() } else { whole.boxed() };
    let often = if kind.crowded { 10 } else { 1 };
    let (volume, fua, rarely) = (0usize..4, any::<bool>(), prop::bool::weighted(0.1));
    let nowhere = Just(((0, 0), (0, 0)));
    let ask = |(volume, op, (at, len), fua)| Sketch::Ask { volume, op, at, len, fua };
    prop_oneof![
        75 => (volume.clone(), data.clone(), range(), rarely).prop_map(ask),
        5 * often => (volume.clone(), data, whole.clone(), rarely).prop_map(ask),
        10 => (volume.clone(), clear.clone(), range(), rarely).prop_map(ask),
        2 * often => (volume.clone(), clear, whole, fua).prop_map(ask),
        6 => (volume, Just(Op::Flush), nowhere, Just(false)).prop_map(ask),
    ]
}

/// Where requests go: often to the same few blocks, or across a border of extents; often in whole
/// blocks, but not always.
fn range() -> impl Strategy<Value = (Span, Span)> {
    let at = prop_oneof![
        3 => (Just(0u64), 0u64..64),
        2 => ((0u64..6).prop_map(|extent| 16 * extent + 15), 0u64..48),
        3 => (0u64..24 * 16, 0u64..8),
    ];
    let len = prop_oneof![
        6 => (Just(0u64), 1u64..33),
        2 => (0u64..16, 1u64..9),
        1 => (0u64..32, 0u64..9),
        1 => (Just(16u64), Just(0u64)),
    ];
    (any::<bool>(), at, len).prop_map(|(odd, at, len)| {
        let round = |(sixteenths, sectors): Span| (sixteenths, if odd { sectors } else { sectors / 8 * 8 });
        let (at, len) = (round(at), round(len));
        (at, if len == (0, 0) { (0, 8) } else { len })
    })
}
