//! What a load's blocks cost the pool, and how well metrics of their accesses tell the costly ones.
//!
//! Source: Hystor, section 3.2 and figure 2: blocks are ranked by a metric, and the latency that they
//! accumulate in this order is compared with the order by latency itself.

use super::{Client, ClientAction};
use crate::Arrival;
use rustc_hash::FxHashMap;
use weir_model::{BLOCK, Nanos, Op};
use weir_policy::block_table::inverse_bitmap;

/// By what blocks are ranked, the costly ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRank {
    /// By the latency of their requests, of which each block of a request has an equal part: the ideal order.
    Latency,
    /// By the inverse bitmap of their requests, which stands for frequency/request size.
    InverseBitmap,
    /// By the number of their requests, most first.
    Frequency,
    /// By the mean length of their requests, shortest first.
    RequestSize,
    /// By the mean distance of their requests from the end of the request before, longest first.
    SeekDistance,
    /// By the mean number of requests between two of theirs, lowest first; blocks with one are last.
    ReuseDistance,
    /// By the sum of the distances, longest first: frequency and seek distance combined.
    TotalSeekDistance,
}

/// What is known about the accesses to a block.
#[derive(Clone, Copy, Debug, Default)]
struct BlockCost {
    latency_ns: f64,
    inverse_bitmap: f64,
    accesses: f64,
    bytes: f64,
    distance: f64,
    /// Sum of the numbers of requests between two accesses.
    reuse: f64,
    /// Number of the last request that accessed it.
    last: u64,
}

impl BlockCost {
    /// Returns what blocks are sorted by; the highest is the most costly.
    fn rank(&self, rank: BlockRank) -> f64 {
        match rank {
            BlockRank::Latency => self.latency_ns,
            BlockRank::InverseBitmap => self.inverse_bitmap,
            BlockRank::Frequency => self.accesses,
            BlockRank::RequestSize => -self.bytes / self.accesses,
            BlockRank::SeekDistance => self.distance / self.accesses,
            BlockRank::ReuseDistance if self.accesses < 2.0 => f64::NEG_INFINITY,
            BlockRank::ReuseDistance => -self.reuse / (self.accesses - 1.0),
            BlockRank::TotalSeekDistance => self.distance,
        }
    }
}

/// What the blocks of 4 KiB of a load in a closed loop cost, by reads and writes alike.
#[derive(Debug, Default)]
pub struct BlockCosts {
    /// The request that each client waits for.
    in_flight: Vec<Option<Arrival>>,
    blocks: FxHashMap<(usize, u64), BlockCost>,
    requests: u64,
    /// Volume and end of the last request.
    head: (usize, u64),
}

impl BlockCosts {
    /// Notes the next action of a client at `now`, when the request before has been answered.
    pub(crate) fn note_action(&mut self, client: Client, now: Nanos, action: &ClientAction) {
        if self.in_flight.len() <= client.0 {
            self.in_flight.resize(client.0 + 1, None);
        }
        if let Some(request) = self.in_flight[client.0].take() {
            self.note_reply(&request, now.since(request.at));
        }
        if let ClientAction::Send(request) = action
            && matches!(request.op, Op::Read | Op::Write)
        {
            self.note_request(request);
            self.in_flight[client.0] = Some(*request);
        }
    }

    /// Counts an access, before its latency is known.
    fn note_request(&mut self, request: &Arrival) {
        self.requests += 1;
        let distance = match self.head.0 == request.volume {
            true => request.offset.0.abs_diff(self.head.1),
            // Nothing is known about the distance between volumes.
            false => 0,
        };
        self.head = (request.volume, request.offset.0 + request.len.0);
        let number = self.requests;
        self.for_blocks(request, |cost| {
            if cost.accesses > 0.0 {
                cost.reuse += (number - cost.last) as f64;
            }
            cost.last = number;
            cost.accesses += 1.0;
            cost.bytes += request.len.0 as f64;
            cost.distance += distance as f64;
            cost.inverse_bitmap += f64::from(inverse_bitmap(request.len));
        });
    }

    fn note_reply(&mut self, request: &Arrival, latency: Nanos) {
        let blocks = blocks(request).count() as f64;
        self.for_blocks(request, |cost| cost.latency_ns += latency.0 as f64 / blocks);
    }

    fn for_blocks(&mut self, request: &Arrival, mut change: impl FnMut(&mut BlockCost)) {
        for block in blocks(request) {
            change(self.blocks.entry((request.volume, block)).or_default());
        }
    }

    /// Returns the share of all latency that the first blocks in this order accumulate, as the mean over how
    /// many they are: 0.5 for an order that knows nothing, more the better it knows. Blocks that rank equal
    /// are in no order. Not a number if no latency is known.
    pub fn accumulated(&self, rank: BlockRank) -> f64 {
        let mut all: Vec<(f64, f64)> =
            self.blocks.values().map(|cost| (cost.rank(rank), cost.latency_ns)).collect();
        all.sort_unstable_by(|(a, _), (b, _)| b.total_cmp(a));
        let (mut before, mut area) = (0.0, 0.0);
        for equal in all.chunk_by(|(a, _), (b, _)| a == b) {
            let here: f64 = equal.iter().map(|(_, latency)| latency).sum();
            area += (before + here / 2.0) * equal.len() as f64;
            before += here;
        }
        area / before / all.len() as f64
    }
}

/// Returns the blocks that a request accesses.
fn blocks(request: &Arrival) -> std::ops::Range<u64> {
    let end = (request.offset.0 + request.len.0).div_ceil(BLOCK);
    request.offset.0 / BLOCK..end
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, Hint, VolumeOffset};

    fn read(block: u64, blocks: u64) -> Arrival {
        Arrival {
            at: Nanos(0),
            volume: 0,
            op: Op::Read,
            offset: VolumeOffset(block * BLOCK),
            len: Bytes(blocks * BLOCK),
            hint: Hint::default(),
        }
    }

    fn costs(requests: &[(Arrival, u64)]) -> BlockCosts {
        let mut costs = BlockCosts::default();
        for (request, latency) in requests {
            costs.note_request(request);
            costs.note_reply(request, Nanos(*latency));
        }
        costs
    }

    #[test]
    fn latency_is_accumulated_in_the_order_of_the_metric() {
        // Block 0: two short requests, 12 ns. Blocks 1 to 4: three long requests, 1 ns each.
        let long = (read(1, 4), 4);
        let all = costs(&[(read(0, 1), 6), long, (read(0, 1), 6), long, long]);
        let (costly_first, costly_last) =
            ((12.0 / 2.0 + 4.0 * (12.0 + 6.0)) / 120.0, (4.0 * 6.0 + 18.0) / 120.0);
        for (rank, expected) in [
            (BlockRank::Latency, costly_first),
            (BlockRank::InverseBitmap, costly_first),
            (BlockRank::RequestSize, costly_first),
            (BlockRank::Frequency, costly_last),
            // Two requests between accesses of block 0; 1.5 for the others.
            (BlockRank::ReuseDistance, costly_last),
        ] {
            let found = all.accumulated(rank);
            assert!((found - expected).abs() < 1e-12, "{rank:?}: {found}, not {expected}");
        }
    }

    #[test]
    fn distances_are_between_requests_and_blocks_accessed_once_are_last() {
        // Block 100 is far from the requests before it; blocks 0 and 1 follow each other.
        let all = costs(&[(read(0, 1), 1), (read(1, 1), 1), (read(100, 1), 10), (read(0, 1), 3)]);
        assert_eq!(all.blocks[&(0, 1)].distance, 0.0);
        assert_eq!(all.blocks[&(0, 100)].distance, 98.0 * BLOCK as f64);
        assert_eq!(all.blocks[&(0, 0)].distance, 101.0 * BLOCK as f64);
        // By the mean of the distances block 100 is first, by their sum block 0.
        let area = |order: [f64; 3]| (order[0] * 2.5 + order[1] * 1.5 + order[2] * 0.5) / 15.0 / 3.0;
        assert!((all.accumulated(BlockRank::SeekDistance) - area([10.0, 4.0, 1.0])).abs() < 1e-12);
        assert!((all.accumulated(BlockRank::TotalSeekDistance) - area([4.0, 10.0, 1.0])).abs() < 1e-12);
        // Only block 0 was accessed again; the others are in no order.
        assert!((all.accumulated(BlockRank::ReuseDistance) - area([4.0, 5.5, 5.5])).abs() < 1e-12);
    }

    #[test]
    fn the_latency_is_the_time_until_the_client_is_asked_again() {
        let mut costs = BlockCosts::default();
        let send = |block, at| ClientAction::Send(Arrival { at: Nanos(at), ..read(block, 2) });
        costs.note_action(Client(1), Nanos(10), &send(1, 15));
        costs.note_action(Client(0), Nanos(10), &send(2, 15));
        costs.note_action(Client(1), Nanos(25), &ClientAction::Wait(Nanos(30)));
        costs.note_action(Client(1), Nanos(30), &send(3, 35));
        let latency = |block| costs.blocks[&(0, block)].latency_ns;
        assert_eq!([latency(1), latency(2), latency(3)], [5.0, 5.0, 0.0], "10 ns for two blocks, sent at 15");
    }
}
