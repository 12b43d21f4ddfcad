//! The best static placement: the cheapest of all placements that never change.
//!
//! Each extent stays on one device. At first all extents are where they cost least. While a device has more
//! extents than it has room for, one extent moves from it to a device with room, along the cheapest path: it
//! may take the place of another extent, which moves on. By successive shortest paths, as in Ahuja, Magnanti
//! and Orlin's *Network Flows* (section 9.7), the result is optimal.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Costs of extents on each device, in picoseconds. They are integers, because rounding errors of sums could
/// make a cyclic path look cheap.
pub(super) struct Costs {
    pub(super) devices: usize,
    /// Costs by extent and device.
    pub(super) by_extent: Vec<i64>,
}

impl Costs {
    fn of_extent(&self, extent: usize) -> &[i64] {
        &self.by_extent[extent * self.devices..][..self.devices]
    }

    fn extents(&self) -> usize {
        self.by_extent.len() / self.devices.max(1)
    }
}

/// Returns the device of each extent, for devices of these capacities; `None` if the extents do not fit.
pub(super) fn best(costs: &Costs, capacity: &[u64]) -> Option<Vec<u8>> {
    if capacity.iter().sum::<u64>() < costs.extents() as u64 {
        return None;
    }
    let mut flow = Flow::new(costs);
    while let Some(over) = (0..costs.devices).find(|device| flow.count[*device] > capacity[*device]) {
        let way = flow.cheapest_path(over, capacity)?;
        for pair in way.windows(2) {
            flow.move_cheapest(pair[0], pair[1]);
        }
    }
    Some(flow.device_of)
}

struct Flow<'a> {
    costs: &'a Costs,
    device_of: Vec<u8>,
    count: Vec<u64>,
    /// Cost of moving an extent from one device to another, cheapest first; some of the extents have already
    /// moved.
    move_costs: Vec<BinaryHeap<Reverse<(i64, u32)>>>,
}

impl<'a> Flow<'a> {
    fn new(costs: &'a Costs) -> Self {
        let devices = costs.devices;
        let mut flow = Self {
            costs,
            device_of: vec![0; costs.extents()],
            count: vec![0; devices],
            move_costs: vec![BinaryHeap::new(); devices * devices],
        };
        for extent in 0..costs.extents() {
            let here = costs.of_extent(extent);
            let least = (0..devices).min_by_key(|device| here[*device]).unwrap_or(0);
            flow.add(extent as u32, least);
        }
        flow
    }

    fn add(&mut self, extent: u32, device: usize) {
        self.device_of[extent as usize] = device as u8;
        self.count[device] += 1;
        let of = self.costs.of_extent(extent as usize);
        for to in (0..self.costs.devices).filter(|to| *to != device) {
            self.move_costs[device * self.costs.devices + to].push(Reverse((of[to] - of[device], extent)));
        }
    }

    /// Returns the cheapest extent to move from one device to another, with its cost.
    fn cheapest_move(&mut self, from: usize, to: usize) -> Option<(i64, u32)> {
        let heap = &mut self.move_costs[from * self.costs.devices + to];
        while let Some(Reverse((cost, extent))) = heap.peek() {
            if usize::from(self.device_of[*extent as usize]) == from {
                return Some((*cost, *extent));
            }
            heap.pop();
        }
        None
    }

    fn move_cheapest(&mut self, from: usize, to: usize) {
        if let Some((_, extent)) = self.cheapest_move(from, to) {
            self.count[from] -= 1;
            self.add(extent, to);
        }
    }

    /// Returns the devices on the cheapest path to one that is not full (Bellman and Ford).
    fn cheapest_path(&mut self, from: usize, capacity: &[u64]) -> Option<Vec<usize>> {
        let devices = self.costs.devices;
        let mut cost = vec![None; devices];
        let mut before = vec![from; devices];
        cost[from] = Some(0);
        for _ in 1..devices {
            for (a, b) in (0..devices * devices).map(|pair| (pair / devices, pair % devices)) {
                let Some(so_far) = cost[a].filter(|_| a != b && b != from) else { continue };
                let Some((more, _)) = self.cheapest_move(a, b) else { continue };
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
