//! A lower bound on the cost of any policy, including one that knows all requests in advance and copies and
//! moves blocks at any time.
//!
//! A block is on one or several devices. A read costs as much as on the cheapest of them; a write costs the
//! sum over all devices that hold the block afterwards. Copying a block that was just read or written costs a
//! write as part of its extent; copying any other block also costs a read of its bytes. Dropping a copy costs
//! nothing.
//!
//! On a scarce device, a block pays a price for the time it stays there (Lagrange multipliers). Then the
//! blocks are independent of each other, and dynamic programming finds the cheapest course of each. For any
//! prices, the sum of these costs minus the price of all available space is a lower bound on the cost of
//! feasible courses. Prices rise where demand exceeds the space, and fall where it does not. With one scarce
//! device and one price per request, the best prices give the cost of the optimum, because the underlying
//! linear program has an integral solution: Belady's rule, with costs.

use super::cost::DeviceCost;
use super::events::{Access, Event, Events, FilledBlocks};

/// Maximum number of devices.
pub(super) const DEVICES_MAX: usize = 4;
/// Number of sets of devices; a set has one bit for each device.
const SETS: usize = 1 << DEVICES_MAX;
/// Exponent of the price adjustment in the first round; it decreases in later rounds.
const STEP: f64 = 0.7;

/// A device: its command costs and its capacity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tier {
    pub(super) cost: DeviceCost,
    /// Capacity in blocks; `None` if all blocks fit.
    pub(super) capacity: Option<u64>,
}

impl Tier {
    /// Returns the block's share of the cost of a command on this device.
    pub(super) fn share(&self, event: &Event) -> f64 {
        let of = match event.access {
            Access::Read => self.cost.read,
            Access::Write => self.cost.write,
            Access::Clear => return 0.0,
        };
        of.per_command / f64::from(event.blocks) + of.per_byte * f64::from(event.bytes)
    }
}

/// Precision of the search for prices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Number of periods of equally many requests; each period has its own prices.
    pub(super) periods: u32,
    pub(super) rounds: u32,
}

/// Returns the bound, in seconds.
pub(super) fn bound(events: &Events, filled: &FilledBlocks<'_>, tiers: &[Tier], effort: Effort) -> f64 {
    if events.requests == 0 {
        return 0.0;
    }
    let periods = Periods::new(effort.periods, events.requests);
    let courses = PathSearch::new(tiers, filled, periods);
    let mut prices = Prices::new(tiers.len(), periods);
    let (mut best, mut used) = courses.cheapest_paths(events, filled, &prices);
    let first = first_price(events, tiers);
    prices.set_all(tiers, first);
    for round in 0..effort.rounds {
        if round > 0 {
            prices.adjust(tiers, &used, STEP / (1.0 + f64::from(round) / 4.0));
        }
        let cost;
        (cost, used) = courses.cheapest_paths(events, filled, &prices);
        best = best.max(cost - prices.of_space(tiers));
    }
    best
}

/// Returns the initial price: the gain per request of the last block that fits on the best device.
fn first_price(events: &Events, tiers: &[Tier]) -> f64 {
    let gain = |event: &Event| {
        let shares = tiers.iter().map(|tier| tier.share(event));
        shares.clone().fold(0.0, f64::max) - shares.fold(f64::INFINITY, f64::min)
    };
    let mut gains: Vec<f64> = events.by_block().map(|block| block.iter().map(gain).sum()).collect();
    gains.sort_unstable_by(|a, b| b.total_cmp(a));
    let capacity: u64 = tiers.iter().filter_map(|tier| tier.capacity).sum();
    let last = gains.get(capacity as usize).or(gains.last()).copied().unwrap_or(0.0);
    let most = gains.first().copied().unwrap_or(0.0);
    last.max(most * 1e-3) / f64::from(events.requests.max(1))
}

/// All requests, divided into periods whose length is a power of two.
#[derive(Clone, Copy, Debug)]
struct Periods {
    shift: u32,
    count: u32,
    requests: u32,
}

impl Periods {
    /// Divides `requests`, at least one, into at most `most` periods.
    fn new(most: u32, requests: u32) -> Self {
        let shift = requests.div_ceil(most.max(1)).next_power_of_two().trailing_zeros();
        Self { shift, count: (u64::from(requests)).div_ceil(1 << shift) as u32, requests }
    }

    /// Returns the first request of a period; for the period after the last one, the end.
    fn start(self, period: u32) -> u32 {
        (u64::from(period) << self.shift).min(self.requests.into()) as u32
    }

    /// Returns the period of a request; the end belongs to the last period.
    fn period_of(self, at: u32) -> u32 {
        (at >> self.shift).min(self.count - 1)
    }
}

/// Price of a block per request, by device and period.
struct Prices {
    periods: Periods,
    by_device: Vec<Vec<f64>>,
    /// Sum of the prices over all requests before each period.
    prefix_sums: Vec<Vec<f64>>,
}

impl Prices {
    fn new(devices: usize, periods: Periods) -> Self {
        let none = vec![vec![0.0; periods.count as usize + 1]; devices];
        Self { periods, by_device: none.clone(), prefix_sums: none }
    }

    fn set_all(&mut self, tiers: &[Tier], price: f64) {
        for (prices, _) in self.by_device.iter_mut().zip(tiers).filter(|(_, tier)| tier.capacity.is_some()) {
            prices.fill(price);
        }
        self.sum_up();
    }

    fn sum_up(&mut self) {
        for (prices, before) in self.by_device.iter().zip(&mut self.prefix_sums) {
            for period in 0..self.periods.count {
                let len = f64::from(self.periods.start(period + 1) - self.periods.start(period));
                before[period as usize + 1] = before[period as usize] + prices[period as usize] * len;
            }
        }
    }

    /// Returns the sum of the prices up to a request.
    fn sum_until(&self, device: usize, at: u32) -> f64 {
        let period = self.periods.period_of(at);
        let within = f64::from(at - self.periods.start(period));
        self.prefix_sums[device][period as usize] + within * self.by_device[device][period as usize]
    }

    /// Returns the price of all available space.
    fn of_space(&self, tiers: &[Tier]) -> f64 {
        let of = |(before, tier): (&Vec<f64>, &Tier)| {
            tier.capacity.map_or(0.0, |blocks| blocks as f64 * before.last().copied().unwrap_or(0.0))
        };
        self.prefix_sums.iter().zip(tiers).map(of).sum()
    }

    /// Raises prices where demand exceeds the space and lowers them elsewhere.
    fn adjust(&mut self, tiers: &[Tier], used: &Used, step: f64) {
        for (device, tier) in tiers.iter().enumerate() {
            let Some(blocks) = tier.capacity else { continue };
            for (period, used) in (0..).zip(used.of(device)) {
                let len = f64::from(self.periods.start(period + 1) - self.periods.start(period));
                let there_is = (blocks as f64 * len).max(f64::MIN_POSITIVE);
                let over = used / there_is - 1.0;
                self.by_device[device][period as usize] *= (step * over.clamp(-1.0, 1.0)).exp();
            }
        }
        self.sum_up();
    }
}

/// Space used on each device, in blocks times requests, by period.
struct Used {
    periods: Periods,
    /// Contributions of stays that begin or end within a period, by device and period.
    partial_stays: Vec<Vec<f64>>,
    /// Stays that cover whole periods: the difference to the number in the period before.
    stay_changes: Vec<Vec<i64>>,
}

impl Used {
    fn new(devices: usize, periods: Periods) -> Self {
        let count = periods.count as usize + 1;
        Self {
            periods,
            partial_stays: vec![vec![0.0; count]; devices],
            stay_changes: vec![vec![0; count]; devices],
        }
    }

    /// Returns the used space by period.
    fn of(&self, device: usize) -> impl Iterator<Item = f64> {
        let whole = self.stay_changes[device].iter().scan(0, |count, more| {
            *count += more;
            Some(*count as f64)
        });
        (0..self.periods.count).zip(whole).zip(&self.partial_stays[device]).map(|((period, whole), part)| {
            whole * f64::from(self.periods.start(period + 1) - self.periods.start(period)) + part
        })
    }

    fn add(&mut self, set: usize, from: u32, to: u32) {
        if from >= to {
            return;
        }
        let (first, last) = (self.periods.period_of(from), self.periods.period_of(to));
        for device in (0..self.partial_stays.len()).filter(|device| set >> device & 1 == 1) {
            let (parts, more) = (&mut self.partial_stays[device], &mut self.stay_changes[device]);
            if first == last {
                parts[first as usize] += f64::from(to - from);
                continue;
            }
            parts[first as usize] += f64::from(self.periods.start(first + 1) - from);
            parts[last as usize] += f64::from(to - self.periods.start(last));
            more[first as usize + 1] += 1;
            more[last as usize] -= 1;
        }
    }
}

/// Costs of moves, and the conditions under which they can pay.
struct PathSearch<'a> {
    tiers: &'a [Tier],
    periods: Periods,
    /// Number of sets of devices.
    sets: usize,
    /// Cost of the write of a copy made as part of its extent, by device.
    copy_to: Vec<f64>,
    /// Cost of the read for a copy, by the set it is read from.
    copy_from: [f64; SETS],
    /// True with several scarce devices: a block may then move between two of its accesses, when prices
    /// change.
    moves_while_idle: bool,
}

/// Previous set of a block, by its current set.
type PreviousSets = [u8; SETS];

impl<'a> PathSearch<'a> {
    fn new(tiers: &'a [Tier], filled: &FilledBlocks<'_>, periods: Periods) -> Self {
        let sets = 1 << tiers.len();
        let (extent, block) = (filled.extent.bytes().0 as f64, filled.block.0 as f64);
        let write =
            |tier: &Tier| tier.cost.write.per_command * block / extent + tier.cost.write.per_byte * block;
        let mut copy_from = [f64::INFINITY; SETS];
        for (set, least) in copy_from.iter_mut().enumerate().take(sets).skip(1) {
            let bytes = |(_, tier): (usize, &Tier)| tier.cost.read.per_byte * block;
            *least = members(tiers, set).map(bytes).fold(f64::INFINITY, f64::min);
        }
        Self {
            tiers,
            periods,
            sets,
            copy_to: tiers.iter().map(write).collect(),
            copy_from,
            moves_while_idle: tiers.iter().filter(|tier| tier.capacity.is_some()).count() > 1,
        }
    }

    /// Returns the cost of the cheapest courses, including prices, and the space they use.
    fn cheapest_paths(&self, events: &Events, filled: &FilledBlocks<'_>, prices: &Prices) -> (f64, Used) {
        let mut used = Used::new(self.tiers.len(), self.periods);
        let mut cost = 0.0;
        let mut trail = Vec::new();
        for block in events.by_block() {
            let holds = block.first().is_some_and(|event| filled.contains(event.id));
            cost += self.cheapest_path(block, holds, prices, &mut trail, &mut used);
        }
        (cost, used)
    }

    /// Finds the cheapest course of one block.
    fn cheapest_path(
        &self,
        events: &[Event],
        holds_data: bool,
        prices: &Prices,
        trail: &mut Vec<(u32, PreviousSets)>,
        used: &mut Used,
    ) -> f64 {
        trail.clear();
        // Costs by the set of devices that hold the block; the empty set while it holds no data. The initial
        // placement costs nothing.
        let mut costs = [f64::INFINITY; SETS];
        if holds_data {
            costs[1..self.sets].fill(0.0);
        } else {
            costs[0] = 0.0;
        }
        let mut now = 0;
        for event in events {
            self.advance(&mut costs, &mut now, event.at, prices, trail);
            trail.push((now, self.serve(&mut costs, event)));
            self.advance(&mut costs, &mut now, event.at + 1, prices, trail);
            let mut from = identity();
            self.copy_and_drop(&mut costs, &mut from, &[0.0; SETS]);
            trail.push((now, from));
        }
        self.advance(&mut costs, &mut now, self.periods.requests, prices, trail);
        let least = |a: &usize, b: &usize| costs[*a].total_cmp(&costs[*b]);
        let last = (0..self.sets).min_by(least).unwrap_or(0);
        let (mut set, mut end) = (last, now);
        for (at, from) in trail.iter().rev() {
            used.add(set, *at, end);
            (set, end) = (usize::from(from[set]), *at);
        }
        used.add(set, 0, end);
        costs[last]
    }

    /// Lets the time pass until a request.
    fn advance(
        &self,
        costs: &mut [f64; SETS],
        now: &mut u32,
        to: u32,
        prices: &Prices,
        trail: &mut Vec<(u32, PreviousSets)>,
    ) {
        while self.moves_while_idle && self.periods.start(self.periods.period_of(*now) + 1) < to {
            let border = self.periods.start(self.periods.period_of(*now) + 1);
            self.add_space_price(costs, *now, border, prices);
            let mut from = identity();
            self.copy_and_drop(costs, &mut from, &self.copy_from);
            trail.push((border, from));
            *now = border;
        }
        if *now < to {
            self.add_space_price(costs, *now, to, prices);
            *now = to;
        }
    }

    fn add_space_price(&self, costs: &mut [f64; SETS], from: u32, to: u32, prices: &Prices) {
        for (device, _) in self.tiers.iter().enumerate().filter(|(_, tier)| tier.capacity.is_some()) {
            let price = prices.sum_until(device, to) - prices.sum_until(device, from);
            (1..self.sets).filter(|set| set >> device & 1 == 1).for_each(|set| costs[set] += price);
        }
    }

    /// Serves a request from the block's set until the request ends.
    fn serve(&self, costs: &mut [f64; SETS], event: &Event) -> PreviousSets {
        let mut from = identity();
        match event.access {
            Access::Read => {
                self.copy_and_drop(costs, &mut from, &self.copy_from);
                for (set, cost) in costs.iter_mut().enumerate().take(self.sets).skip(1) {
                    let shares = members(self.tiers, set).map(|(_, tier)| tier.share(event));
                    *cost += shares.fold(f64::INFINITY, f64::min);
                }
            }
            Access::Write | Access::Clear => {
                let least = |a: &usize, b: &usize| costs[*a].total_cmp(&costs[*b]);
                let before = (0..self.sets).min_by(least).unwrap_or(0);
                let cost = costs[before];
                from = [before as u8; SETS];
                costs.fill(f64::INFINITY);
                if event.access == Access::Clear {
                    costs[0] = cost;
                } else {
                    for (set, after) in costs.iter_mut().enumerate().take(self.sets).skip(1) {
                        let shares = members(self.tiers, set).map(|(_, tier)| tier.share(event));
                        *after = cost + shares.sum::<f64>();
                    }
                }
            }
        }
        from
    }

    /// Copies and drops where that pays; `read` is the cost of reading a copy's source.
    fn copy_and_drop(&self, costs: &mut [f64; SETS], from: &mut PreviousSets, read: &[f64; SETS]) {
        // A second copy may be made of the first.
        for _ in 2..self.tiers.len() + 1 {
            for (device, write) in self.copy_to.iter().enumerate() {
                for set in (1..self.sets).filter(|set| set >> device & 1 == 0) {
                    relax(costs, from, set, set | 1 << device, read[set] + write);
                }
            }
        }
        for device in 0..self.tiers.len() {
            for set in (1..self.sets).filter(|set| set >> device & 1 == 1 && *set != 1 << device) {
                relax(costs, from, set, set ^ (1 << device), 0.0);
            }
        }
    }
}

/// Moves from one set to another if that is cheaper than the known cost.
fn relax(costs: &mut [f64; SETS], from: &mut PreviousSets, a: usize, b: usize, cost: f64) {
    if costs[a] + cost < costs[b] {
        costs[b] = costs[a] + cost;
        from[b] = from[a];
    }
}

const fn identity() -> PreviousSets {
    let mut from = [0; SETS];
    let mut set = 0;
    while set < SETS {
        from[set] = set as u8;
        set += 1;
    }
    from
}

fn members(tiers: &[Tier], set: usize) -> impl Iterator<Item = (usize, &Tier)> {
    tiers.iter().enumerate().filter(move |(device, _)| set >> device & 1 == 1)
}
