//! The best static placement: of all placements that never change, the one that costs least.
//!
//! Each extent is on one device for good. At first all are where they cost least; while a device has more
//! than it has room for, one extent goes from it to one that has room, by the cheapest way: it may go in the
//! place of another, which goes on. By successive shortest paths, as in Ahuja, Magnanti and Orlin's *Network
//! Flows* (section 9.7), this ends with an optimum.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What extents cost on each device, in picoseconds: whole numbers, since sums that are not exact could make
/// a way that leads in a circle look cheap.
pub(super) struct Costs {
    pub(super) devices: usize,
    /// Extent by extent, each device's.
    pub(super) of: Vec<i64>,
}

impl Costs {
    fn of_extent(&self, extent: usize) -> &[i64] {
        &self.of[extent * self.devices..][..self.devices]
    }

    fn extents(&self) -> usize {
        self.of.len() / self.devices.max(1)
    }
}

/// The device of each extent, for devices that hold so many; `None` if they do not hold all.
pub(super) fn best(costs: &Costs, capacity: &[u64]) -> Option<Vec<u8>> {
    if capacity.iter().sum::<u64>() < costs.extents() as u64 {
        return None;
    }
    let mut flow = Flow::new(costs);
    while let Some(over) = (0..costs.devices).find(|device| flow.count[*device] > capacity[*device]) {
        let way = flow.cheapest_way(over, capacity)?;
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
    leaving: Vec<BinaryHeap<Reverse<(i64, u32)>>>,
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
            let least = (0..devices).min_by_key(|device| here[*device]).unwrap_or(0);
            flow.arrive(extent as u32, least);
        }
        flow
    }

    fn arrive(&mut self, extent: u32, device: usize) {
        self.at[extent as usize] = device as u8;
        self.count[device] += 1;
        let of = self.costs.of_extent(extent as usize);
        for to in (0..self.costs.devices).filter(|to| *to != device) {
            self.leaving[device * self.costs.devices + to].push(Reverse((of[to] - of[device], extent)));
        }
    }

    /// Who would go from one device to another, at which cost.
    fn next(&mut self, from: usize, to: usize) -> Option<(i64, u32)> {
        let heap = &mut self.leaving[from * self.costs.devices + to];
        while let Some(Reverse((cost, extent))) = heap.peek() {
            if usize::from(self.at[*extent as usize]) == from {
                return Some((*cost, *extent));
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

    /// The devices on the cheapest way to one that is not full (Bellman and Ford).
    fn cheapest_way(&mut self, from: usize, capacity: &[u64]) -> Option<Vec<usize>> {
        let devices = self.costs.devices;
        let mut cost = vec![None; devices];
        let mut before = vec![from; devices];
        cost[from] = Some(0);
        for _ in 1..devices {
            for (a, b) in (0..devices * devices).map(|pair| (pair / devices, pair % devices)) {
                let Some(so_far) = cost[a].filter(|_| a != b && b != from) else { continue };
                let Some((more, _)) = self.next(a, b) else { continue };
                if cost[b].is_none_or(|known| so_far + more < known) {
                    (cost[b], before[b]) = (Some(so_far + more), a);
                }
            }
        }
        let free = (0..devices).filter(|d| self.count[*d] < capacity[*d]);
        let (_, to) = free.filter_map(|device| Some((cost[device]?, device))).min()?;
        let mut way: Vec<_> = std::iter::successors(Some(to), |d| (*d != from).then(|| before[*d])).collect();
        way.reverse();
        Some(way)
    }
}
