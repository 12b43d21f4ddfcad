//! Draws pools at random.

use super::{HistoryKind, between, pick, weighted};
use crate::driver::{Setup, VolumeSpec};
use crate::{DeviceSpec, Pace, Rng, Seed};
use weir_engine::{DurableWrites, FlushRules, Percent, WhenFull};
use weir_map::Hardening;
use weir_model::{BLOCK, Bytes, ExtentSize, Nanos, Planted, SECTOR};
use weir_policy::harm::{MoveControl, Rules};

/// Maximum number of extents of a wide volume, and of a device under it.
const WIDE: u64 = 600;

/// Draws tiny devices under over-provisioned volumes, so that space runs out, and a short journal, so that it
/// wraps around often.
pub(crate) fn setup(rng: &mut Rng, seed: Seed, kind: &HistoryKind) -> Setup {
    let (crowd, wide) = (kind.crowded, kind.many_extents);
    let kib = match (wide, kind.large_extents) {
        (true, _) => 64,
        (_, true) => weighted(rng, &[(5, 512), (3, 1024), (1, 2048), (1, 4096)]),
        _ => weighted(rng, &[(16, 64), (3, 128), (1, 256)]),
    };
    let most = if kind.large_extents { 3 } else { 10 };
    let bytes = kib << 10;
    let devices = if crowd { kind.devices_min } else { between(rng, kind.devices_min, kind.devices_min + 2) };
    let many = wide && rng.chance(0.5);
    let volumes = match (crowd, many) {
        (true, _) => between(rng, 3, 4),
        (_, true) => between(rng, 100, 140),
        _ => between(rng, kind.volumes_min, kind.volumes_min + 2),
    };
    let (journal_pages, meta_pages) = (between(rng, 8, 40), between(rng, 108, 140));
    let mirrored = devices > 1 && rng.chance(0.4);
    let device = |rng: &mut Rng, number: u64| {
        let extents = match (crowd, wide) {
            (true, _) => between(rng, 1, 2),
            (_, true) => between(rng, WIDE / 2, WIDE),
            _ => between(rng, 1, most),
        };
        let pace = match rng.below(8) {
            0 => Pace::Model(pick(rng, &weir_timing::NAMES).to_owned()),
            _ => Pace::Random(Nanos::micros(between(rng, 1, 2000))),
        };
        let before = if number == 0 || (number == 1 && mirrored) {
            (192 << 10) + (journal_pages + meta_pages) * BLOCK
        } else {
            bytes
        };
        let size = before.next_multiple_of(bytes) + extents * bytes + BLOCK;
        let write_cache = rng.chance(0.8);
        DeviceSpec {
            size: Bytes(size),
            pace,
            write_cache,
            sector: pick(rng, &[512, 512, 4096]),
            faults: vec![],
        }
    };
    // Two copies need a map on two devices. A separate random stream, so that the rest is unchanged.
    let mut apart = Rng::new(seed).fork().fork();
    let mut own = apart.fork();
    let mut odd = Rng::new(Seed(seed.0.rotate_left(40)));
    let chance = if mirrored && apart.chance(0.5) { 0.7 } else { 0.0 };
    let mut volume = |rng: &mut Rng| {
        let size = match (crowd, rng.below(4)) {
            (true, _) => Bytes(bytes),
            _ if many => Bytes(between(rng, 1, 3) * bytes),
            _ if wide => Bytes(between(rng, WIDE / 2, WIDE) * bytes),
            _ if kind.large_extents => Bytes(between(rng, 1, 2) * bytes + rng.below(bytes / BLOCK) * BLOCK),
            // Often one that ends within an extent.
            (false, 0) => Bytes(between(rng, 1, 6) * bytes + rng.below(bytes / BLOCK) * BLOCK),
            (false, _) => Bytes(between(rng, 1, 8) * bytes),
        };
        let cut = if kind.odd_sizes { odd.below(BLOCK / SECTOR) * SECTOR } else { 0 };
        let size = size - Bytes(cut);
        let hardening = pick(rng, &[Hardening::Flush, Hardening::Flush, Hardening::Write]);
        let copies = if apart.chance(chance) { 2 } else { 1 };
        let policy = if own.chance(0.2) { Some(policy(&mut own)) } else { None };
        VolumeSpec { size, hardening, copies, policy }
    };
    // A few extents, so that they evict one another.
    let mut cached = Rng::new(Seed(!seed.0));
    let extent_cache = if cached.chance(0.25) { Bytes(between(&mut cached, 1, 8) * bytes) } else { Bytes(0) };
    // Also from a separate random stream.
    let moves = moves(&mut Rng::new(Seed(seed.0.rotate_left(32))));
    let mut spread = Rng::new(Seed(seed.0.rotate_left(48)));
    let extra = weighted(&mut spread, &[(4, None), (1, Some(Percent(1))), (1, Some(Percent(20)))]);
    // So short that the pool is quiet between two requests, or while one waits.
    let micros = between(&mut spread, 1, 20_000);
    let quiet = weighted(&mut spread, &[(2, None), (1, Some(Nanos::micros(micros)))]);
    let flushes = flushes(&mut Rng::new(Seed(seed.0.rotate_left(16))));
    let mut files = Rng::new(Seed(seed.0.rotate_left(48)));
    let patience = WhenFull::Wait { timeout: Nanos::micros(between(rng, 1, 50_000)) };
    Setup {
        seed,
        extent: ExtentSize::new(Bytes(bytes)).expect("a power of two from 64 KiB to 4 MiB"),
        policy: maybe_duplexed(policy(rng), seed).to_owned(),
        devices: (0..devices).map(|number| device(rng, number)).collect(),
        journal_pages,
        meta_pages,
        mirrored,
        deadline: Nanos::millis(pick(rng, &[3_000, 10_000, 30_000])),
        when_full: weighted(rng, &[(1, WhenFull::Error), (1, patience)]),
        volumes: (0..volumes).map(|_| volume(rng)).collect(),
        // Usually without a limit, so that much is migrated.
        mover_share: Percent(weighted(rng, &[(3, 100), (1, 20), (1, 1)])),
        extra,
        quiet,
        extent_cache,
        moves,
        flushes,
        // Enough for all buffers that hung devices may keep, and for all requests besides.
        memory: Bytes::mib(32) + extent_cache,
        depth: if crowd { pick(rng, &[16, 32]) } else { pick(rng, &[1, 2, 4, 8, 16, 32]) },
        durable_writes: pick(&mut files, &[DurableWrites::OneCommand, DurableWrites::WriteThenFlush]),
        // Superblocks that rot or are misdirected must not cause a device to be given up.
        verified: files.chance(0.5) && !kind.rot,
        planted: Planted::NONE,
        served: None,
    }
}

/// Draws the rules for moves. Usually moves continue whatever their effect, so that there are many; sometimes
/// they are stopped all the time and begin again.
fn moves(rng: &mut Rng) -> MoveControl {
    let rules = Rules {
        sample: 1,
        window: Nanos::millis(between(rng, 1, 20)),
        commands: between(rng, 1, 8) as u32,
        // Any result counts as harm.
        margin: -1.0,
        pause: Nanos::millis(between(rng, 1, 50)),
        longest_pause: Nanos::millis(200),
    };
    weighted(
        rng,
        &[
            (4, MoveControl::NeverPaused(Rules::default())),
            (1, MoveControl::default()),
            (1, MoveControl::Judged(rules)),
        ],
    )
}

/// Draws the flush rules: half of the time the defaults, otherwise most devices are flushed outside of
/// commits, and not at once.
fn flushes(rng: &mut Rng) -> FlushRules {
    let slow = pick(rng, &[Nanos(0), Nanos::micros(300), Nanos::millis(1)]);
    let patience = pick(rng, &[Nanos(0), Nanos::millis(2), Nanos::millis(50), Nanos::secs(30)]);
    if rng.chance(0.5) {
        FlushRules::default()
    } else {
        FlushRules { slow_threshold: slow, slow_flush_interval: patience }
    }
}

/// Draws a policy, often the one that exercises everything.
pub(super) fn policy(rng: &mut Rng) -> &'static str {
    let plain = pick(rng, weir_policy::placement::ALL).name;
    pick(rng, &[plain, plain, "chaos"])
}

/// Makes half of the pools of `hystor`, and one in eight of the others, keep two copies of dirty data. It has
/// a random stream of its own.
fn maybe_duplexed(policy: &'static str, seed: Seed) -> &'static str {
    let mut rng = Rng::new(Seed(seed.0.rotate_left(16)));
    let chance = if policy == "hystor" { 0.5 } else { 0.125 };
    if rng.chance(chance) { "hystor-twice" } else { policy }
}
