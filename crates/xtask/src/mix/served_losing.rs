//! Histories in which devices behind a server lose writes again and again.

use super::transforms::{between, power_loss};
use weir_model::{BLOCK, Bytes, Errno, Nanos, Op, Rng, Seed, VolumeOffset};
use weir_world::campaign::History;
use weir_world::driver::{HistoryStep, RequestSpec};
use weir_world::net::{ClientProfile, ClientRequest, NetAction};
use weir_world::{Fault, Kinds};

/// Makes flushes and writes of devices behind a server fail again and again while clients write to a few
/// blocks and flush them over several connections, mostly of one volume.
pub(super) fn add_served_failures(mut history: History) -> History {
    let mut rng = Rng::new(Seed(!history.setup.seed.0));
    let Some(front) = &history.setup.served else { return history };
    let failures = ServedFailures::draw(&mut rng, &history, &front.clients);
    history.setup.devices.iter_mut().for_each(|device| device.write_cache = true);
    // What matters is added: the rest only takes time.
    let mut left = history.steps.iter().filter(|step| !step.crashes_copy()).count() / 3;
    let mut steps = Vec::with_capacity(history.steps.len() * 2);
    for step in history.steps.drain(..) {
        left -= usize::from(!step.crashes_copy());
        if left == 0 {
            break;
        }
        let asks = matches!(step, HistoryStep::Net(NetAction::Request(..)));
        steps.push(step);
        if asks && rng.below(failures.every) == 0 {
            failures.add(&mut rng, &mut steps);
        }
    }
    history.steps = steps;
    history
}

/// Parameters of a history of [`add_served_failures`].
struct ServedFailures {
    /// Mean number of requests between two failures.
    every: u64,
    /// The devices that fail.
    devices: std::ops::Range<u64>,
    extent: u64,
    /// The volume of each client, and its longest write.
    clients: Vec<(usize, Bytes)>,
    /// The clients of the volume that has most of them.
    beside: Vec<usize>,
}

impl ServedFailures {
    fn draw(rng: &mut Rng, history: &History, clients: &[ClientProfile]) -> Self {
        let (members, devices) =
            (if history.setup.mirrored { 2 } else { 1 }, history.setup.devices.len() as u64);
        let first = if members < devices && rng.chance(0.8) { members } else { 0 };
        let of = |volume: usize| {
            clients
                .iter()
                .enumerate()
                .filter(|(_, client)| client.volume == volume)
                .map(|(at, _)| at)
                .collect()
        };
        let longest = |client: &ClientProfile| client.len_max.min(history.setup.volumes[client.volume].size);
        let all: Vec<Vec<usize>> = (0..history.setup.volumes.len()).map(of).collect();
        Self {
            every: between(rng, 4, 16),
            devices: first..devices,
            extent: history.setup.extent.bytes().0,
            clients: clients.iter().map(|client| (client.volume, longest(client))).collect(),
            beside: all.into_iter().max_by_key(Vec::len).unwrap_or_default(),
        }
    }

    fn client(&self, rng: &mut Rng) -> usize {
        match rng.below(self.beside.len() as u64 * 2) as usize {
            at if at < self.beside.len() => self.beside[at],
            _ => rng.below(self.clients.len() as u64) as usize,
        }
    }

    fn ask(&self, rng: &mut Rng, client: usize, op: Op) -> HistoryStep {
        let len = Bytes(if op == Op::Flush { 0 } else { BLOCK });
        self.ask_at(client, op, VolumeOffset(rng.below(8) * BLOCK), len)
    }

    fn ask_at(&self, client: usize, op: Op, offset: VolumeOffset, len: Bytes) -> HistoryStep {
        let ask = RequestSpec { volume: self.clients[client].0, op, offset, len, fua: false };
        HistoryStep::Net(NetAction::Request(client, ClientRequest::Request(ask)))
    }

    /// Adds a failure between writes and flushes of several clients, or in the middle of a long write of one
    /// that flushes at the same time; then everything is flushed, and copies crash.
    fn add(&self, rng: &mut Rng, steps: &mut Vec<HistoryStep>) {
        for _ in 0..between(rng, 1, 8) {
            let client = self.client(rng);
            steps.push(self.ask(rng, client, Op::Write));
        }
        if rng.chance(0.5) {
            steps.push(HistoryStep::Wait(usize::MAX));
        }
        let device = (self.devices.start + rng.below(self.devices.end - self.devices.start)) as usize;
        steps.push(HistoryStep::Break(device, Self::fault(rng)));
        let client = self.client(rng);
        if rng.chance(0.3) {
            let (_, longest) = self.clients[client];
            let len = longest.min(Bytes(between(rng, 2, 5) * self.extent));
            steps.push(self.ask_at(client, Op::Write, VolumeOffset(0), len));
            for _ in 0..between(rng, 1, 3) {
                steps.push(HistoryStep::Pass(Nanos::micros(rng.below(600))));
                let flushes = if rng.chance(0.7) { client } else { self.client(rng) };
                steps.push(self.ask(rng, flushes, Op::Flush));
            }
        } else {
            for _ in 0..between(rng, 1, 6) {
                let op = [Op::Flush, Op::Flush, Op::Read, Op::Write][rng.below(4) as usize];
                let client = self.client(rng);
                steps.push(self.ask(rng, client, op));
            }
        }
        if rng.chance(0.6) {
            steps.push(HistoryStep::Wait(usize::MAX));
            let client = if rng.chance(0.5) { client } else { self.client(rng) };
            steps.push(self.ask(rng, client, Op::Flush));
            steps.push(HistoryStep::Wait(usize::MAX));
            steps.push(HistoryStep::CrashCopy(power_loss(0)));
        }
        steps.push(HistoryStep::CrashCopy(power_loss(rng.below(60))));
    }

    fn fault(rng: &mut Rng) -> Fault {
        let writes = rng.chance(0.3);
        Fault::Errors {
            kinds: Kinds { writes, flushes: !writes || rng.chance(0.5), reads: false },
            range: weir_model::DeviceOffset(0)..weir_model::DeviceOffset(u64::MAX),
            chance: 1.0,
            times: [1, 1, 2, 6][rng.below(4) as usize],
            error: [Errno::EIO, Errno::EIO, Errno::ENOSPC][rng.below(3) as usize],
        }
    }
}
