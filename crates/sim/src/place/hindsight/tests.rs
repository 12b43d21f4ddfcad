//! Tests of the bounds against an exhaustive search and against the costs of real policies.

use super::cost::{CommandCost, DeviceCost};
use super::dynamic_bound::{Effort, Tier, bound};
use super::events::{Access, BlockId, Event, Events, FilledBlocks};
use super::{Hindsight, cost, static_placement};
use crate::place::run::{Mode, Plan, place_and_record};
use crate::{Arrival, DeviceSize, DeviceSpec, PoolSpec, VolumeData};
use proptest::prelude::*;
use weir_model::{BLOCK, Bytes, ExtentIndex, ExtentSize, Hint, IoKind, Nanos, Op, Seed, VolumeOffset};
use weir_policy::placement::{ALL, by_name};
use weir_world::flash_log;

const EXTENT: ExtentSize = ExtentSize::DEFAULT;

/// Makes a request of one block; each block is in an extent of its own.
fn arrival(block: u64, op: Op) -> Arrival {
    let offset = VolumeOffset(block * EXTENT.bytes().0);
    Arrival { at: Nanos(0), volume: 0, op, offset, len: Bytes(BLOCK), hint: Hint::None }
}

fn tier(read: f64, write: f64, byte: f64, capacity: Option<u64>) -> Tier {
    let of = |command| CommandCost { per_command: command, per_byte: byte };
    Tier { cost: DeviceCost { read: of(read), write: of(write) }, capacity }
}

/// Makes a pool of two devices with room for these shares of the data.
fn pool(fast: (&str, f64), slow: (&str, f64)) -> PoolSpec {
    let device = |name: &str, (model, share): (&str, f64)| DeviceSpec {
        name: name.into(),
        model: model.into(),
        size: DeviceSize::Share(share),
        metadata: None,
        noise: None,
    };
    PoolSpec {
        extent: EXTENT,
        devices: vec![device("fast", fast), device("slow", slow)],
        mover_share: weir_engine::MOVER_SHARE,
        extent_cache: Bytes(0),
        moves: weir_policy::harm::MoveControl::default(),
    }
}

fn spaces(filled: u64) -> Vec<VolumeData> {
    let extents =
        std::iter::once(ExtentIndex(0)..ExtentIndex(filled)).filter(|run| !run.is_empty()).collect();
    vec![VolumeData { size: Bytes::mib(1), extents }]
}

/// Finds the dynamic optimum by exhaustive search: every state of all blocks after every request.
struct Exhaustive<'a> {
    tiers: &'a [Tier],
    blocks: usize,
    /// The cost of moving a block between two sets of devices, in general and right after the block was read.
    moves: Vec<Vec<f64>>,
    moves_read: Vec<Vec<f64>>,
}

impl<'a> Exhaustive<'a> {
    fn new(tiers: &'a [Tier], blocks: usize) -> Self {
        let moves = |costs_read: bool| Self::moves(tiers, costs_read);
        Self { tiers, blocks, moves: moves(true), moves_read: moves(false) }
    }

    fn sets(&self) -> usize {
        1 << self.tiers.len()
    }

    /// Computes the costs of moves from those of single copies and drops (Floyd and Warshall).
    fn moves(tiers: &[Tier], costs_read: bool) -> Vec<Vec<f64>> {
        let sets = 1usize << tiers.len();
        let mut cost = vec![vec![f64::INFINITY; sets]; sets];
        for (a, costs) in cost.iter_mut().enumerate() {
            costs[a] = 0.0;
            for (device, tier) in tiers.iter().enumerate().filter(|_| a > 0) {
                let has = |d: &usize| a >> d & 1 == 1;
                if has(&device) && a != 1 << device {
                    costs[a ^ (1 << device)] = 0.0;
                } else if !has(&device) {
                    let reads =
                        (0..tiers.len()).filter(has).map(|d| tiers[d].cost.read.per_byte * BLOCK as f64);
                    let read = if costs_read { reads.fold(f64::INFINITY, f64::min) } else { 0.0 };
                    let write = tier.cost.write;
                    let share =
                        write.per_command / f64::from(EXTENT.blocks()) + write.per_byte * BLOCK as f64;
                    costs[a | 1 << device] = read + share;
                }
            }
        }
        for via in 0..sets {
            for a in 0..sets {
                for b in 0..sets {
                    cost[a][b] = cost[a][b].min(cost[a][via] + cost[via][b]);
                }
            }
        }
        cost
    }

    fn set(&self, state: usize, block: usize) -> usize {
        state >> (block * self.tiers.len()) & (self.sets() - 1)
    }

    fn fits(&self, state: usize) -> bool {
        self.tiers.iter().enumerate().all(|(device, tier)| {
            let there = (0..self.blocks).filter(|block| self.set(state, *block) >> device & 1 == 1).count();
            tier.capacity.is_none_or(|capacity| there as u64 <= capacity)
        })
    }

    fn states(&self) -> Vec<usize> {
        (0..self.sets().pow(self.blocks as u32)).filter(|state| self.fits(*state)).collect()
    }

    /// Returns the cost of a block that is in one set of devices during one request and in another during the
    /// next. `event` is the next request's access to the block, if it has one; `was_touched` says whether the
    /// request before accessed it.
    fn step(&self, from: usize, to: usize, was_touched: bool, event: Option<&Event>) -> f64 {
        let moved = if was_touched { self.moves_read[from][to] } else { self.moves[from][to] };
        let members = (0..self.tiers.len()).filter(move |d| to >> d & 1 == 1);
        let shares = |event| members.map(move |d| self.tiers[d].share(event));
        match event.map(|event| (event, event.access)) {
            None => moved,
            Some((_, Access::Read)) if to == 0 => moved,
            Some((event, Access::Read)) => moved + shares(event).fold(f64::INFINITY, f64::min),
            Some((event, Access::Write)) if to > 0 => shares(event).sum(),
            Some((_, Access::Clear)) if to == 0 => 0.0,
            Some(_) => f64::INFINITY,
        }
    }

    /// Returns the least cost of these requests; the first `filled` blocks hold data.
    fn least_cost(&self, events: &Events, filled: u64) -> f64 {
        let states = self.states();
        let free = |state: usize| {
            (0..self.blocks).all(|block| (self.set(state, block) > 0) == ((block as u64) < filled))
        };
        let mut costs: Vec<f64> =
            states.iter().map(|state| if free(*state) { 0.0 } else { f64::INFINITY }).collect();
        let mut in_order: Vec<_> = events.all.iter().collect();
        in_order.sort_by_key(|event| event.at);
        let mut before = None;
        for event in in_order {
            let touched = (event.id.block / u64::from(EXTENT.blocks())) as usize;
            let to = |to: &usize| {
                let step = |(from, cost): (&usize, &f64)| {
                    let step = |block| {
                        let (from, to) = (self.set(*from, block), self.set(*to, block));
                        self.step(from, to, before == Some(block), (block == touched).then_some(event))
                    };
                    cost + (0..self.blocks).map(step).sum::<f64>()
                };
                states.iter().zip(&costs).map(step).fold(f64::INFINITY, f64::min)
            };
            costs = states.iter().map(to).collect();
            before = Some(touched);
        }
        costs.into_iter().fold(f64::INFINITY, f64::min)
    }
}

fn requests(blocks: u64) -> impl Strategy<Value = Vec<(u64, u8)>> {
    prop::collection::vec((0..blocks, 0u8..8), 1..9)
}

fn arrivals(requests: &[(u64, u8)]) -> Vec<Arrival> {
    let op = |kind| match kind {
        0..4 => Op::Read,
        4..7 => Op::Write,
        _ => Op::Trim,
    };
    requests.iter().map(|(block, kind)| arrival(*block, op(*kind))).collect()
}

fn dynamic(tiers: &[Tier], requests: &[(u64, u8)], filled: u64, rounds: u32) -> f64 {
    let events = Events::of(&arrivals(requests), EXTENT);
    let spaces = spaces(filled);
    let effort = Effort { periods: requests.len() as u32, rounds };
    bound(&events, &FilledBlocks { spaces: &spaces, extent: EXTENT, block: events.block }, tiers, effort)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// With one scarce device the bound is the optimum itself, up to the precision of the prices.
    #[test]
    fn nothing_costs_less_than_the_dynamic_bound(
        requests in requests(3),
        filled in 0u64..4,
        fast in (0.01f64..1.0, 0.01f64..1.0),
        byte in 0.0f64..2e-4,
        fits in 1u64..3,
    ) {
        let tiers = [tier(fast.0, fast.1, byte, Some(fits)), tier(1.0, 1.0, byte, None)];
        let exact = Exhaustive::new(&tiers, 3).least_cost(&Events::of(&arrivals(&requests), EXTENT), filled);
        let bound = dynamic(&tiers, &requests, filled, 400);
        prop_assert!(bound <= exact + 1e-9, "{bound} above {exact}");
        prop_assert!(bound >= 0.9 * exact - 1e-9, "{bound} far below {exact}");
    }

    #[test]
    fn bound_holds_with_two_scarce_devices(
        requests in requests(2),
        filled in 0u64..3,
        costs in (0.01f64..0.3, 0.1f64..1.0, 0.5f64..2.0),
        byte in 0.0f64..2e-4,
    ) {
        let tiers = [
            tier(costs.0, costs.1, byte, Some(1)),
            tier(costs.1, costs.0, byte / 2.0, Some(1)),
            tier(costs.2, costs.2, byte, None),
        ];
        let exact = Exhaustive::new(&tiers, 2).least_cost(&Events::of(&arrivals(&requests), EXTENT), filled);
        let bound = dynamic(&tiers, &requests, filled, 60);
        prop_assert!(bound <= exact + 1e-9, "{bound} above {exact}");
    }

    #[test]
    fn static_placement_is_optimal(
        costs in prop::collection::vec((0u8..20, 0u8..20, 0u8..20), 1..7),
        capacity in (0u64..4, 0u64..4),
    ) {
        let by_extent = costs.iter().flat_map(|c| [c.0, c.1, c.2].map(i64::from)).collect();
        let costs = static_placement::Costs { devices: 3, by_extent };
        let extents = costs.by_extent.len() / 3;
        let capacity = [capacity.0, capacity.1, 5];
        let cost = |at: &[u8]| -> i64 {
            at.iter().enumerate().map(|(extent, d)| costs.by_extent[3 * extent + usize::from(*d)]).sum()
        };
        let fits = |at: &[u8]| {
            let there = |device: usize| at.iter().filter(|d| usize::from(**d) == device).count() as u64;
            (0..3).all(|device| there(device) <= capacity[device])
        };
        let placements = (0..3usize.pow(extents as u32))
            .map(|n| (0..extents).map(|e| (n / 3usize.pow(e as u32) % 3) as u8).collect::<Vec<_>>())
            .filter(|at| fits(at));
        let least = placements.map(|at| cost(&at)).min();
        let found = static_placement::best(&costs, &capacity);
        prop_assert_eq!(found.is_some(), least.is_some());
        if let (Some(found), Some(least)) = (found, least) {
            prop_assert!(fits(&found));
            prop_assert_eq!(cost(&found), least);
        }
    }
}

#[test]
fn a_block_that_is_read_often_enough_is_worth_its_copy() {
    // A copy costs 3.2 / 32 + 0; each read saves 0.9.
    let tiers = [tier(0.1, 3.2, 0.0, Some(1)), tier(1.0, 1.0, 0.0, None)];
    let of = |requests: &[(u64, u8)]| dynamic(&tiers, requests, 2, 400);
    // The block may be on the fast device from the start.
    let once = of(&[(0, 0)]);
    assert!((once - 0.1).abs() < 1e-9, "{once}");
    // Two blocks, read twice each: one is there from the start, the other is copied in its place.
    let twice = of(&[(0, 0), (0, 0), (1, 0), (1, 0)]);
    assert!((twice - (0.2 + 0.1 + 0.2)).abs() < 0.01, "{twice}");
    // With alternating reads, one block is always missing.
    let in_turn = of(&[(0, 0), (1, 0), (0, 0), (1, 0)]);
    assert!((in_turn - (0.4 + 3.0 * 0.1)).abs() < 0.01, "{in_turn}");
}

#[test]
fn no_policy_beats_its_bounds() {
    for words in [
        "zipf theta=1.2 reads=70% size=4KiB over=32MiB rate=300",
        "zipf theta=1.0 reads=30% size=16KiB over=16MiB rate=99 for=9s / scan size=64KiB over=16MiB for=10s",
    ] {
        let load = || {
            let time = |text: &str| text.strip_suffix('s')?.parse().ok().map(Nanos::secs);
            let time = |text: &str| time(text).ok_or_else(|| text.to_owned());
            crate::load::parse(words, 7, crate::units::size, time).expect("words that make sense")
        };
        let pool = pool(("ssd-sata", 0.1), ("hdd-7200", 1.3));
        let plan = Plan {
            mode: Mode::Open,
            duration: Nanos::secs(20),
            requests: u64::MAX,
            warm_up: None,
            windows: 1,
            seed: Seed(3),
        };
        let spaces = load().volumes(EXTENT);
        let mut asked = Vec::new();
        let stripe = by_name("stripe").expect("a policy");
        let one = place_and_record(&pool, stripe, &mut *load(), &plan, Some(&mut asked)).expect("a run");
        let bounds = Hindsight::of(&pool, &spaces, &asked).expect("bounds");
        let dynamic = bounds.dynamic_bound.expect("few devices");
        assert!(0.0 < dynamic && dynamic <= bounds.static_cost, "{dynamic}, {}", bounds.static_cost);
        assert!(cost(&pool, &spaces, &one).expect("a cost") >= bounds.static_cost, "stripe never moves");
        let replayed =
            place_and_record(&pool, bounds.static_policy(), &mut *load(), &plan, None).expect("a run");
        let replayed = cost(&pool, &spaces, &replayed).expect("a cost");
        assert!(
            replayed >= 0.999 * bounds.static_cost && replayed < 1.3 * bounds.static_cost,
            "{replayed}, {}",
            bounds.static_cost
        );
        for policy in ALL {
            let policy = by_name(policy.name).expect("a policy");
            let name = policy.name().to_owned();
            let outcome = place_and_record(&pool, policy, &mut *load(), &plan, None).expect("a run");
            assert_eq!(outcome.unanswered, 0, "{name}");
            let cost = cost(&pool, &spaces, &outcome).expect("a cost");
            assert!(cost >= dynamic, "{name}: {cost} below {dynamic}");
        }
    }
}

/// Returns the length of a block, and for each event its block, access, the number of blocks of its command,
/// and its bytes.
fn events_of(op: Op, offset: u64, len: u64) -> (u64, Vec<(u64, Access, u16, u32)>) {
    let (offset, len) = (VolumeOffset(offset), Bytes(len));
    let asked = [Arrival { at: Nanos(0), volume: 0, op, offset, len, hint: Hint::None }];
    let events = Events::of(&asked, EXTENT);
    (events.block.0, events.all.iter().map(|e| (e.id.block, e.access, e.blocks, e.bytes)).collect())
}

#[test]
fn events_cover_the_touched_blocks() {
    let both = vec![(1, Access::Write, 2, 16_384), (2, Access::Write, 2, 16_384)];
    assert_eq!(events_of(Op::Write, 16_384, 32_768), (16_384, both));
    assert_eq!(events_of(Op::Read, 4096, 16_384).0, 4096);
    assert_eq!(events_of(Op::Read, 512, 4096).1, [(0, Access::Read, 2, 3584), (1, Access::Read, 2, 512)]);
    assert_eq!(events_of(Op::Trim, 512, 8192).1, [(1, Access::Clear, 3, 4096)]);
    assert_eq!(events_of(Op::WriteZeroes { no_hole: false }, 0, 4096).1, [(0, Access::Clear, 1, 4096)]);
}

#[test]
fn reads_without_data_reach_no_device() {
    for (filled, heard) in [(0, vec![1, 2, 5]), (1, vec![0, 1, 2, 5])] {
        let events = Events::of(&arrivals(&[(0, 0), (0, 4), (0, 0), (0, 7), (0, 0), (0, 4)]), EXTENT);
        let spaces = spaces(filled);
        let filled = FilledBlocks { spaces: &spaces, extent: EXTENT, block: events.block };
        let found: Vec<_> = filled.device_events(&events.all).map(|event| event.at).collect();
        assert_eq!(found, heard);
    }
}

#[test]
fn extents_that_never_hold_data_need_no_space() {
    let events = Events::of(&arrivals(&[(1, 0), (2, 7), (3, 4), (3, 0)]), EXTENT);
    let spaces = spaces(1);
    let filled = FilledBlocks { spaces: &spaces, extent: EXTENT, block: events.block };
    assert_eq!(filled.extents_with(&events), [(0, ExtentIndex(0)), (0, ExtentIndex(3))]);
}

#[test]
fn filled_blocks_are_found_for_any_block_length() {
    let spaces = spaces(2);
    for block in [BLOCK, 4 * BLOCK] {
        let filled = FilledBlocks { spaces: &spaces, extent: EXTENT, block: Bytes(block) };
        let of = EXTENT.bytes().0 / block;
        let holds = [0, 2 * of - 1, 2 * of].map(|block| filled.contains(BlockId { volume: 0, block }));
        assert_eq!(holds, [true, true, false]);
    }
}

#[test]
fn a_copy_pays_its_share_of_a_command() {
    let tiers = [tier(0.1, 3.2, 0.0, Some(1)), tier(1.0, 1.0, 0.0, None)];
    let len = EXTENT.bytes().0 / 2;
    let read =
        |block: u64| Arrival { len: Bytes(len), offset: VolumeOffset(block * len), ..arrival(0, Op::Read) };
    let asked = [0, 0, 0, 0, 1, 1, 1, 1].map(read);
    let (events, spaces) = (Events::of(&asked, EXTENT), spaces(1));
    let filled = FilledBlocks { spaces: &spaces, extent: EXTENT, block: events.block };
    let bound = bound(&events, &filled, &tiers, Effort { periods: 8, rounds: 400 });
    assert!((bound - (8.0 * 0.1 + 1.6)).abs() < 0.02, "{bound}");
}

#[test]
fn reads_and_writes_have_costs_of_their_own() {
    let (ssd, size) = (weir_timing::drives::drive("ssd-sata").expect("a drive"), Bytes::gib(64));
    let cost = DeviceCost::of(ssd, size);
    for (cost, kind) in [(cost.read, IoKind::Read), (cost.write, IoKind::Write { fua: false })] {
        let mut timing = ssd.timing(size, ssd.cache, flash_log);
        let tried = weir_timing::occupancy(&mut *timing, size, kind, Bytes::kib(64)).as_secs_f64();
        assert!((cost.of_all(1, Bytes::kib(64)) / tried - 1.0).abs() < 0.1, "{kind:?}");
    }
}

#[test]
fn commands_are_those_for_data() {
    use crate::place::{meter::Meter, outcome::Commands};
    let (mut meter, write) = (Meter::default(), IoKind::Write { fua: false });
    let ended = [(IoKind::Read, 4, false), (IoKind::Read, 8, true), (write, 16, false), (write, 32, true)];
    for (kind, len, is_metadata) in ended {
        meter.begin(Nanos(0));
        meter.end(Nanos(1), kind, Bytes::kib(len), Nanos(1), is_metadata);
    }
    let expected = Commands { reads: 1, read: Bytes::kib(4), writes: 1, written: Bytes::kib(16) };
    assert_eq!(Commands::of(&meter), expected);
}

#[test]
fn devices_that_fit_all_blocks_are_not_scarce() {
    let pool = pool(("nvm", 0.5), ("ssd-sata", 1.0));
    let spaces = [VolumeData { size: Bytes::mib(16), ..VolumeData::filled(Bytes::mib(16), EXTENT) }];
    let layout = pool.layout(&spaces).expect("a pool");
    let blocks =
        |extents| super::tiers(&layout, extents, 32).iter().map(|tier| tier.capacity).collect::<Vec<_>>();
    assert_eq!(blocks(128), [Some(64 * 32), None]);
    assert_eq!(blocks(129), [Some(64 * 32), Some(128 * 32)]);
    assert_eq!(blocks(64), [None, None]);
}
