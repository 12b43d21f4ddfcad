//! Draws the history of a served pool and its clients from a seed.

use super::{Act, Character, ClientRequest, Front, Leave, Order, Stranger, Wire, Wrong};
use crate::campaign::faults::{astray, breaking, leap};
use crate::campaign::{History, HistoryKind, between, copies, pick, setup, weighted};
use crate::driver::{Again, Ask, Crash, HistoryStep, Setup};
use crate::{Pace, Rng, Seed, Stop};
use weir_map::Hardening;
use weir_model::{BLOCK, Bytes, Nanos, Op, SECTOR, VolumeOffset};
use weir_session::Limits;

/// Number of crashes per history, and of client requests before each.
const CRASHES: u64 = 12;
const REQUESTS: u64 = 160;

/// Number of crashes of copies of the pool for each of those, on average.
const COPIES: u64 = 3;

/// Returns the history of a served pool for a seed.
#[must_use]
pub fn history(seed: Seed) -> History {
    let mut rng = Rng::new(Seed(seed.0.rotate_left(8))).fork();
    let kind = HistoryKind { devices_min: 2, volumes_min: 1, ..HistoryKind::calm(0) };
    let mut setup = setup(&mut rng, seed, &kind);
    enlarge(&mut rng, &mut setup);
    let front = front(&mut rng, &setup);
    setup.memory = memory(&mut rng, &front.limits) + setup.extent_cache;
    let clients = front.clients.clone();
    setup.served = Some(front);
    let maker = Maker { clients: &clients, volumes: &setup };
    let mut steps = Vec::new();
    for _ in 0..CRASHES {
        for _ in 0..REQUESTS / 2 + rng.below(REQUESTS) {
            steps.push(HistoryStep::Net(maker.ask(&mut rng)));
            while rng.below(5) == 0 {
                steps.push(maker.interlude(&mut rng));
            }
            if rng.below(40) == 0 {
                maker.come_back(&mut rng, &mut steps);
            }
        }
        maker.crash(&mut rng, &mut steps);
        if rng.chance(0.4) {
            steps.push(HistoryStep::Check);
        }
    }
    copies::among(&mut steps, seed, COPIES as f64 / REQUESTS as f64);
    let steps = trouble(seed, steps);
    let mut history = History { setup, steps };
    limit(seed, &mut history);
    deceive(seed, &mut history);
    history.steps = bursts(seed, &history);
    history
}

/// Makes devices damage data silently in half of the histories with a mirrored map in which no device fails.
/// It has a random stream of its own.
fn deceive(seed: Seed, history: &mut History) {
    let mut rng = Rng::new(Seed(seed.0.rotate_left(24) ^ 8));
    let is_failing = history.steps.iter().any(|step| matches!(step, HistoryStep::Break(..)));
    if !history.setup.mirrored || is_failing || !rng.chance(0.5) {
        return;
    }
    // Superblocks that rot or are misdirected must not cause a device to be given up.
    history.setup.verified = false;
    for mut step in std::mem::take(&mut history.steps) {
        if let HistoryStep::Crash(Crash { how: Stop::PowerCut, rot, .. }) = &mut step {
            *rot = rng.chance(0.5).then(|| rng.word());
        }
        if rng.chance(0.006) {
            history.steps.push(HistoryStep::Break(rng.below(4) as usize, astray(&mut rng)));
        }
        history.steps.push(step);
    }
}

/// Limits the number of clients in one history in four, so that some are refused. It has a random stream of
/// its own.
fn limit(seed: Seed, history: &mut History) {
    let mut rng = Rng::new(Seed(seed.0.rotate_left(24) ^ 6));
    let Some(front) = history.setup.served.as_mut().filter(|_| rng.chance(0.25)) else { return };
    let (volumes, clients) = (history.setup.volumes.len() as u64, front.clients.len() as u64);
    // Each volume needs a client that reads all of it.
    front.limits.clients = between(&mut rng, volumes, clients) as u16;
    front.limits.clients_per_address = between(&mut rng, volumes, clients) as u16;
    for _ in 0..4 {
        let at = rng.below(history.steps.len() as u64) as usize;
        history
            .steps
            .insert(at, HistoryStep::Net(Act::Stranger(Stranger::Control(between(&mut rng, 12, 40) as u16))));
    }
}

/// Before one crash in four, clients write much at once with FUA, and power is lost as soon as that is
/// answered: no flush hides a write that failed to become durable. It has a random stream of its own.
fn bursts(seed: Seed, history: &History) -> Vec<HistoryStep> {
    let mut rng = Rng::new(Seed(seed.0.rotate_left(24) ^ 7));
    let mut all = Vec::with_capacity(history.steps.len() + 100);
    for step in &history.steps {
        if matches!(step, HistoryStep::Crash(_)) && rng.chance(0.25) {
            all.push(HistoryStep::Wait(usize::MAX));
            // The first clients are those that may request much at once, one for each volume.
            for (volume, spec) in history.setup.volumes.iter().enumerate() {
                let offset = VolumeOffset(rng.below(64) * BLOCK);
                let ask = Ask { volume, op: Op::Write, offset, len: spec.size, fua: true };
                all.push(HistoryStep::Net(Act::Ask(volume, ClientRequest::Ask(ask))));
            }
            all.push(HistoryStep::Wait(usize::MAX));
            all.push(HistoryStep::Crash(Crash::at_once()));
            all.push(HistoryStep::Check);
        }
        all.push(step.clone());
    }
    all
}

/// Inserts device failures or clock jumps between the steps of three histories in five. It has a random
/// stream of its own.
fn trouble(seed: Seed, steps: Vec<HistoryStep>) -> Vec<HistoryStep> {
    let mut rng = Rng::new(Seed(seed.0.rotate_left(24) ^ 5));
    let (fails, jumps) =
        pick(&mut rng, &[(false, false), (false, false), (true, false), (true, true), (false, true)]);
    // Much has to be tested with healthy devices, too.
    let mut all = Vec::with_capacity(steps.len() + 100);
    for step in steps {
        let is_crash = matches!(step, HistoryStep::Crash(_));
        let order = match rng.below(150) {
            0 => Some(Order::Record),
            1 | 2 => Some(Order::Churn(rng.below(2) as usize)),
            _ => None,
        };
        all.extend(order.map(|order| HistoryStep::Net(Act::Order(order))));
        if fails && rng.chance(if is_crash { 0.2 } else { 0.005 }) {
            all.push(breaking(&mut rng));
        }
        if jumps && rng.chance(0.005) {
            let after = pick(&mut rng, &[0, 0, 1, 5, 30]);
            all.push(HistoryStep::Jump { after, time: leap(&mut rng) });
        }
        all.push(step);
    }
    all
}

/// Enlarges the devices for reads of several MiB; often one device is far slower than another, so that the
/// parts of a reply complete at different times.
fn enlarge(rng: &mut Rng, setup: &mut Setup) {
    let extent = setup.extent.bytes().0;
    for device in &mut setup.devices {
        device.size += Bytes(between(rng, 4, 40) * extent);
        if let Pace::Random(usual) = &mut device.pace {
            *usual = Nanos::micros(pick(rng, &[2, 20, 200, 2000]));
        }
    }
    for volume in &mut setup.volumes {
        volume.size = Bytes(pick(rng, &[256, 1024, 3072, 6144]) << 10) + Bytes(rng.below(8) * BLOCK);
    }
}

fn front(rng: &mut Rng, setup: &Setup) -> Front {
    let volumes = setup.volumes.len();
    let others = between(rng, 1, 4) as usize;
    // For each volume, a client with long reads.
    let first =
        (0..volumes).map(|volume| (volume, pick(rng, &[1 << 15, 1 << 18, 1 << 20]))).collect::<Vec<_>>();
    let room = |rng: &mut Rng| match weighted(rng, &[(1, 0), (3, 6), (5, 12), (5, 16)]) {
        0 => 1 + rng.below(16) as usize,
        bits => 1 << (bits + rng.below(6)),
    };
    let more = (0..others).map(|_| (rng.below(volumes as u64) as usize, room(rng)));
    let mut all = first;
    all.extend(more);
    let clients = all.into_iter().map(|(volume, room)| character(rng, volume, room)).collect();
    let limits = Limits {
        clients: 64,
        clients_per_address: 64,
        each: Bytes::kib(pick(rng, &[256, 1024, 4096, 16384])),
        reserve: Bytes::mib(2),
        handshake: Nanos::secs(30),
        control: Nanos::secs(60),
        rest: Nanos::micros(pick(rng, &[500, 20_000, 2_000_000])),
    };
    Front { limits, clients }
}

/// Draws the memory: enough for every client's entitlement; the default amount, or little more than needed.
fn memory(rng: &mut Rng, limits: &Limits) -> Bytes {
    let usual = limits.memory();
    let scarce = limits.reserve + limits.each + Bytes(40 * (340 << 10)) + Bytes(rng.below(16) << 20);
    if rng.chance(0.5) { usual } else { Bytes(scarce.0.min(usual.0)) }
}

fn character(rng: &mut Rng, volume: usize, room: usize) -> Character {
    let is_structured = rng.chance(0.5);
    // This bounds the number of events of each request.
    let longest = Bytes(((room * 64) as u64).clamp(1024, pick(rng, &[1 << 20, 4 << 20])));
    let to_server = (room << rng.below(3)).clamp(1, 4 << 20);
    Character {
        volume,
        wire: Wire {
            to_server,
            to_client: room,
            delay: Nanos::micros(pick(rng, &[0, 0, 5, 100])),
            part: (room / 3).max(1),
        },
        is_structured,
        has_context: is_structured && rng.chance(0.5),
        longest,
        depth: pick(rng, &[1, 2, 4, 16, 64]),
        pause: Nanos::micros(pick(rng, &[0, 0, 0, 10, 300])),
        sip: pick(rng, &[room, room, 1 << 18, 1000]).max(longest.0 as usize / 200),
    }
}

struct Maker<'a> {
    clients: &'a [Character],
    volumes: &'a Setup,
}

impl Maker<'_> {
    fn ask(&self, rng: &mut Rng) -> Act {
        let client = rng.below(self.clients.len() as u64) as usize;
        let character = &self.clients[client];
        let size = self.volumes.volumes[character.volume].size;
        let (offset, len) = span(rng, character, size);
        let rarely = rng.chance(0.1);
        let ask = |op| Ask { volume: character.volume, op, offset, len, fua: rarely };
        let clear =
            pick(rng, &[Op::Trim, Op::WriteZeroes { no_hole: false }, Op::WriteZeroes { no_hole: true }]);
        let request = match weighted(rng, &[(34, 0), (38, 1), (7, 2), (8, 3), (4, 4), (4, 5), (2, 6), (4, 7)])
        {
            0 => ClientRequest::Ask(ask(Op::Read)),
            1 => ClientRequest::Ask(ask(Op::Write)),
            2 => ClientRequest::Ask(ask(clear)),
            3 => ClientRequest::Ask(ask(Op::Flush)),
            4 => ClientRequest::Whole(ask(Op::Read)),
            7 => ClientRequest::Askew(ask(Op::Read), rng.below(512) as u16, rng.below(512) as u16),
            5 => ClientRequest::Status(offset, len, rarely),
            _ => ClientRequest::Wrong(wrong(rng)),
        };
        Act::Ask(client, request)
    }

    /// Draws a step between requests.
    fn interlude(&self, rng: &mut Rng) -> HistoryStep {
        let client = rng.below(self.clients.len() as u64) as usize;
        let choices = [(60, 0), (40, 1), (8, 2), (6, 3), (8, 4), (2, 5), (1, 6), (1, 7)];
        HistoryStep::Net(match weighted(rng, &choices) {
            0 => return HistoryStep::Wait(between(rng, 1, 8) as usize),
            1 => return HistoryStep::Pass(Nanos::micros(between(rng, 1, 3000))),
            2 => {
                let how = [Leave::Politely, Leave::HalfClosed, Leave::AtOnce, Leave::AtOnce, Leave::Midway];
                Act::Leave(client, pick(rng, &how))
            }
            3 => Act::Stall(client, Nanos::micros(pick(rng, &[1_000, 50_000, 3_000_000]))),
            4 => Act::Order(self.order(rng)),
            5 => Act::Stranger(stranger(rng)),
            6 => return HistoryStep::Restart,
            _ => Act::Empty,
        })
    }

    /// A client writes much, and then to a few blocks; it loses its connection meanwhile, and writes to them
    /// again over a new one.
    fn come_back(&self, rng: &mut Rng, steps: &mut Vec<HistoryStep>) {
        let client = rng.below(self.clients.len() as u64) as usize;
        let volume = self.clients[client].volume;
        let size = self.volumes.volumes[volume].size;
        let at = rng.below(16) * BLOCK;
        let ask = |op, at, len| {
            HistoryStep::Net(Act::Ask(
                client,
                ClientRequest::Ask(Ask { volume, op, offset: VolumeOffset(at), len, fua: false }),
            ))
        };
        let few = |op, rng: &mut Rng| ask(op, at + rng.below(2) * BLOCK, Bytes(BLOCK));
        let far = size.0 / 4 / BLOCK * BLOCK;
        steps.extend((0..between(rng, 1, 3)).map(|_| ask(Op::Write, far, Bytes(size.0 / 2))));
        steps.extend((0..between(rng, 1, 12)).map(|_| few(Op::Write, rng)));
        steps.push(match rng.below(3) {
            0 => HistoryStep::Wait(1),
            1 => HistoryStep::Pass(Nanos::micros(pick(rng, &[1, 20, 200, 2000]))),
            _ => HistoryStep::Pass(Nanos(0)),
        });
        steps.push(HistoryStep::Net(Act::Leave(client, pick(rng, &[Leave::AtOnce, Leave::Midway]))));
        steps.extend((0..3).map(|_| few(Op::Write, rng)));
        steps.push(HistoryStep::Wait(usize::MAX));
        steps.extend((0..3).map(|_| few(Op::Read, rng)));
    }

    fn order(&self, rng: &mut Rng) -> Order {
        let volume = rng.below(self.volumes.volumes.len() as u64) as usize;
        let policy = pick(rng, weir_policy::placement::ALL).name;
        match weighted(rng, &[(4, 0), (3, 1), (2, 2), (1, 3), (1, 4), (3, 5), (2, 6), (1, 7)]) {
            0 => Order::Status,
            1 => Order::Explain(volume, VolumeOffset(rng.below(1 << 22))),
            2 => Order::Harden(volume, pick(rng, &[Hardening::Flush, Hardening::Write])),
            3 => Order::Policy(policy),
            4 => Order::OwnPolicy(volume, pick(rng, &[None, Some(policy)])),
            5 => Order::Replace(volume),
            6 => Order::RemoveUsed(volume),
            _ => Order::Garbage,
        }
    }

    fn crash(&self, rng: &mut Rng, steps: &mut Vec<HistoryStep>) {
        let most = weighted(rng, &[(1, 0), (4, 60), (3, 600)]);
        let after = rng.below(most + 1);
        let how = weighted(rng, &[(3, Stop::PowerCut), (1, Stop::Kill)]);
        let times = weighted(rng, &[(14, 0), (4, 1), (1, 2)]);
        let again = (0..times).map(|_| Again { write: between(rng, 1, 12), how: Stop::PowerCut }).collect();
        if rng.chance(0.05) {
            steps.push(HistoryStep::Wait(usize::MAX));
        }
        steps.push(HistoryStep::Crash(Crash { after, how, rot: None, again }));
    }
}

/// Draws the range of a request: often in the same few blocks; often in whole blocks, but not always; some as
/// long as the client's may be.
fn span(rng: &mut Rng, character: &Character, size: Bytes) -> (VolumeOffset, Bytes) {
    let sectors = size.0 / SECTOR;
    let at = match rng.below(3) {
        0 => rng.below(64),
        1 => rng.below(512).min(sectors - 1),
        _ => rng.below(sectors),
    };
    let longest = character.longest.0 / SECTOR;
    let len = match weighted(rng, &[(5, 0), (3, 1), (1, 2), (1, 3)]) {
        0 => between(rng, 1, 16),
        1 => between(rng, 8, 128),
        2 => rng.below(longest) + 1,
        _ => longest,
    };
    let odd = rng.chance(0.3);
    let round = |sectors: u64| if odd { sectors } else { sectors / 8 * 8 };
    (VolumeOffset(round(at) * SECTOR), Bytes(round(len).max(if odd { 1 } else { 8 }) * SECTOR))
}

fn wrong(rng: &mut Rng) -> Wrong {
    let len = pick(rng, &[512, 4096, 70_000]);
    let all = [
        Wrong::ReadBehindEnd,
        Wrong::WriteBehindEnd(len),
        Wrong::Unknown,
        Wrong::Cache,
        Wrong::Flags,
        Wrong::Status,
    ];
    pick(rng, &all)
}

fn stranger(rng: &mut Rng) -> Stranger {
    let few = between(rng, 1, 6) as u16;
    let all = [
        Stranger::Silent(few),
        Stranger::HalfOpen(few),
        Stranger::Garbage(few),
        Stranger::Lists(few),
        Stranger::Flushes(few),
        Stranger::Reads(few),
        Stranger::Stuck(few),
        Stranger::Control(few),
    ];
    pick(rng, &all)
}
