//! Of all placements that never change, the one that costs least.
//!
//! Each extent is on one device for good. At first all are where they cost least; while a device has more
//! than it has room for, one extent goes from it to one that has room, by the cheapest way: it may go in the
//! place of another, which goes on. By successive shortest paths, as in Ahuja, Magnanti and Orlin's *Network
//! Flows* (section 9.7), this ends with an optimum.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What extents cost on each device, in seconds.
pub(super) struct Costs {
    pub(super) devices: usize,
    /// Extent by extent, each device's.
    pub(super) of: Vec<f64>,
}

impl Costs {
    fn of_extent(&self, extent: usize) -> &[f64] {
        &self.of[extent * self.devices..][..self.devices]
    }

    fn extents(&self) -> usize {
        self.of.len() / self.devices.max(1)
    }
}

/// A number that can be compared.
#[derive(Clone, Copy, PartialEq)]
struct Cost(f64);

impl Eq for Cost {}

impl Ord for Cost {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Cost {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The device of each extent, for devices with room for so many; `None` if there is not enough room.
pub(super) fn best(costs: &Costs, room: &[u64]) -> Option<Vec<u8>> {
    if room.iter().sum::<u64>() < costs.extents() as u64 {
        return None;
    }
    let mut flow = Flow::new(costs);
    while let Some(over) = (0..costs.devices).find(|device| flow.count[*device] > room[*device]) {
        let way = flow.cheapest_way(over, room)?;
        for pair in way.windows(2) {
            flow.go(pair[0], pair[1]);
        }
    }
    Some(flow.at)
}

struct Flow<'a> {
    costs: &'a Costs,
    at: Vec<u8>,
    count: Vec<u64>,
    /// What it costs an extent to go from one device to another, the cheapest first; some have left.
    leaving: Vec<BinaryHeap<Reverse<(Cost, u32)>>>,
}

impl<'a> Flow<'a> {
    fn new(costs: &'a Costs) -> Self {
        let devices = costs.devices;
        let mut flow = Self {
            costs,
            at: vec![0; costs.extents()],
            count: vec![0; devices],
            leaving: vec![BinaryHeap::new(); devices * devices],
        };
        for extent in 0..costs.extents() {
            let here = costs.of_extent(extent);
            let least = (0..devices).min_by(|a, b| here[*a].total_cmp(&here[*b])).unwrap_or(0);
            flow.arrive(extent as u32, least);
        }
        flow
    }

    fn arrive(&mut self, extent: u32, device: usize) {
        self.at[extent as usize] = device as u8;
        self.count[device] += 1;
        let of = self.costs.of_extent(extent as usize);
        for to in (0..self.costs.devices).filter(|to| *to != device) {
            let more = Cost(of[to] - of[device]);
            self.leaving[device * self.costs.devices + to].push(Reverse((more, extent)));
        }
    }

    /// Who would go from one device to another, at which cost.
    fn next(&mut self, from: usize, to: usize) -> Option<(f64, u32)> {
        let heap = &mut self.leaving[from * self.costs.devices + to];
        while let Some(Reverse((cost, extent))) = heap.peek() {
            if usize::from(self.at[*extent as usize]) == from {
                return Some((cost.0, *extent));
            }
            heap.pop();
        }
        None
    }

    fn go(&mut self, from: usize, to: usize) {
        if let Some((_, extent)) = self.next(from, to) {
            self.count[from] -= 1;
            self.arrive(extent, to);
        }
    }

    /// The devices on the cheapest way to one that has room left (Bellman and Ford).
    fn cheapest_way(&mut self, from: usize, room: &[u64]) -> Option<Vec<usize>> {
        let devices = self.costs.devices;
        let mut cost = vec![f64::INFINITY; devices];
        let mut before = vec![from; devices];
        cost[from] = 0.0;
        for _ in 1..devices {
            for (a, b) in (0..devices * devices).map(|pair| (pair / devices, pair % devices)) {
                let Some((more, _)) = self.next(a, b).filter(|_| a != b && b != from) else { continue };
                if cost[a] + more < cost[b] {
                    (cost[b], before[b]) = (cost[a] + more, a);
                }
            }
        }
        let free = (0..devices).filter(|d| cost[*d].is_finite() && self.count[*d] < room[*d]);
        let to = free.min_by(|a, b| cost[*a].total_cmp(&cost[*b]))?;
        let mut way: Vec<_> = std::iter::successors(Some(to), |d| (*d != from).then(|| before[*d])).collect();
        way.reverse();
        Some(way)
    }
}
