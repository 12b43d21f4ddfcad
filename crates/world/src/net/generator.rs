//! Draws the history of a served pool and its clients from a seed.

use super::{
    ClientProfile, ClientRequest, Disconnect, HostileClient, InvalidRequest, NetAction, OperatorRequest,
    ServerSetup, SocketProfile,
};
use crate::campaign::faults::{draw_clock_jump, draw_device_failure, draw_misdirection};
use crate::campaign::{History, HistoryKind, between, copies, pick, setup, weighted};
use crate::driver::{Crash, HistoryStep, RecoveryCrash, RequestSpec, Setup};
use crate::{Pace, Rng, Seed, StopKind};
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
    let kind = HistoryKind { devices_min: 2, volumes_min: 1, ..HistoryKind::fault_free(0) };
    let mut setup = setup(&mut rng, seed, &kind);
    enlarge_devices(&mut rng, &mut setup);
    let front = front(&mut rng, &setup);
    setup.memory = memory(&mut rng, &front.limits) + setup.extent_cache;
    let clients = front.clients.clone();
    setup.served = Some(front);
    let maker = StepGenerator { clients: &clients, volumes: &setup };
    let mut steps = Vec::new();
    for _ in 0..CRASHES {
        for _ in 0..REQUESTS / 2 + rng.below(REQUESTS) {
            steps.push(HistoryStep::Net(maker.draw_request(&mut rng)));
            while rng.below(5) == 0 {
                steps.push(maker.draw_step(&mut rng));
            }
            if rng.below(40) == 0 {
                maker.add_reconnect(&mut rng, &mut steps);
            }
        }
        maker.crash(&mut rng, &mut steps);
        if rng.chance(0.4) {
            steps.push(HistoryStep::Check);
        }
    }
    copies::insert_copy_crashes(&mut steps, seed, COPIES as f64 / REQUESTS as f64);
    let steps = add_faults(seed, steps);
    let mut history = History { setup, steps };
    limit(seed, &mut history);
    add_silent_faults(seed, &mut history);
    history.steps = bursts(seed, &history);
    history
}

/// Makes devices damage data silently in half of the histories with a mirrored map in which no device fails.
/// It has a random stream of its own.
fn add_silent_faults(seed: Seed, history: &mut History) {
    let mut rng = Rng::new(Seed(seed.0.rotate_left(24) ^ 8));
    let is_failing = history.steps.iter().any(|step| matches!(step, HistoryStep::Break(..)));
    if !history.setup.mirrored || is_failing || !rng.chance(0.5) {
        return;
    }
    // Superblocks that rot or are misdirected must not cause a device to be given up.
    history.setup.verified = false;
    for mut step in std::mem::take(&mut history.steps) {
        if let HistoryStep::Crash(Crash { kind: StopKind::PowerLoss, rot, .. }) = &mut step {
            *rot = rng.chance(0.5).then(|| rng.word());
        }
        if rng.chance(0.006) {
            history.steps.push(HistoryStep::Break(rng.below(4) as usize, draw_misdirection(&mut rng)));
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
        history.steps.insert(
            at,
            HistoryStep::Net(NetAction::HostileClient(HostileClient::Control(
                between(&mut rng, 12, 40) as u16
            ))),
        );
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
                let ask = RequestSpec { volume, op: Op::Write, offset, len: spec.size, fua: true };
                all.push(HistoryStep::Net(NetAction::Request(volume, ClientRequest::Request(ask))));
            }
            all.push(HistoryStep::Wait(usize::MAX));
            all.push(HistoryStep::Crash(Crash::power_loss_now()));
            all.push(HistoryStep::Check);
        }
        all.push(step.clone());
    }
    all
}

/// Inserts device failures or clock jumps between the steps of three histories in five. It has a random
/// stream of its own.
fn add_faults(seed: Seed, steps: Vec<HistoryStep>) -> Vec<HistoryStep> {
    let mut rng = Rng::new(Seed(seed.0.rotate_left(24) ^ 5));
    let (fails, jumps) =
        pick(&mut rng, &[(false, false), (false, false), (true, false), (true, true), (false, true)]);
    // Much has to be tested with healthy devices, too.
    let mut all = Vec::with_capacity(steps.len() + 100);
    for step in steps {
        let is_crash = matches!(step, HistoryStep::Crash(_));
        let order = match rng.below(150) {
            0 => Some(OperatorRequest::Record),
            1 | 2 => Some(OperatorRequest::Churn(rng.below(2) as usize)),
            _ => None,
        };
        all.extend(order.map(|order| HistoryStep::Net(NetAction::Order(order))));
        if fails && rng.chance(if is_crash { 0.2 } else { 0.005 }) {
            all.push(draw_device_failure(&mut rng));
        }
        if jumps && rng.chance(0.005) {
            let after = pick(&mut rng, &[0, 0, 1, 5, 30]);
            all.push(HistoryStep::Jump { after, time: draw_clock_jump(&mut rng) });
        }
        all.push(step);
    }
    all
}

/// Enlarges the devices for reads of several MiB; often one device is far slower than another, so that the
/// parts of a reply complete at different times.
fn enlarge_devices(rng: &mut Rng, setup: &mut Setup) {
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

fn front(rng: &mut Rng, setup: &Setup) -> ServerSetup {
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
        memory_per_client: Bytes::kib(pick(rng, &[256, 1024, 4096, 16384])),
        reserve: Bytes::mib(2),
        handshake_timeout: Nanos::secs(30),
        control_timeout: Nanos::secs(60),
        idle_timeout: Nanos::micros(pick(rng, &[500, 20_000, 2_000_000])),
    };
    ServerSetup { limits, clients }
}

/// Draws the memory: enough for every client's entitlement; the default amount, or little more than needed.
fn memory(rng: &mut Rng, limits: &Limits) -> Bytes {
    let usual = limits.memory();
    let scarce =
        limits.reserve + limits.memory_per_client + Bytes(40 * (340 << 10)) + Bytes(rng.below(16) << 20);
    if rng.chance(0.5) { usual } else { Bytes(scarce.0.min(usual.0)) }
}

fn character(rng: &mut Rng, volume: usize, room: usize) -> ClientProfile {
    let is_structured = rng.chance(0.5);
    // This bounds the number of events of each request.
    let longest = Bytes(((room * 64) as u64).clamp(1024, pick(rng, &[1 << 20, 4 << 20])));
    let to_server = (room << rng.below(3)).clamp(1, 4 << 20);
    ClientProfile {
        volume,
        wire: SocketProfile {
            to_server,
            to_client: room,
            delay: Nanos::micros(pick(rng, &[0, 0, 5, 100])),
            transfer_max: (room / 3).max(1),
        },
        is_structured,
        has_context: is_structured && rng.chance(0.5),
        len_max: longest,
        depth: pick(rng, &[1, 2, 4, 16, 64]),
        pause: Nanos::micros(pick(rng, &[0, 0, 0, 10, 300])),
        receive_max: pick(rng, &[room, room, 1 << 18, 1000]).max(longest.0 as usize / 200),
    }
}

struct StepGenerator<'a> {
    clients: &'a [ClientProfile],
    volumes: &'a Setup,
}

impl StepGenerator<'_> {
    fn draw_request(&self, rng: &mut Rng) -> NetAction {
        let client = rng.below(self.clients.len() as u64) as usize;
        let character = &self.clients[client];
        let size = self.volumes.volumes[character.volume].size;
        let (offset, len) = span(rng, character, size);
        let rarely = rng.chance(0.1);
        let ask = |op| RequestSpec { volume: character.volume, op, offset, len, fua: rarely };
        let clear =
            pick(rng, &[Op::Trim, Op::WriteZeroes { no_hole: false }, Op::WriteZeroes { no_hole: true }]);
        let request = match weighted(rng, &[(34, 0), (38, 1), (7, 2), (8, 3), (4, 4), (4, 5), (2, 6), (4, 7)])
        {
            0 => ClientRequest::Request(ask(Op::Read)),
            1 => ClientRequest::Request(ask(Op::Write)),
            2 => ClientRequest::Request(ask(clear)),
            3 => ClientRequest::Request(ask(Op::Flush)),
            4 => ClientRequest::Whole(ask(Op::Read)),
            7 => ClientRequest::Unaligned(ask(Op::Read), rng.below(512) as u16, rng.below(512) as u16),
            5 => ClientRequest::Status(offset, len, rarely),
            _ => ClientRequest::Invalid(draw_invalid(rng)),
        };
        NetAction::Request(client, request)
    }

    /// Draws a step between requests.
    fn draw_step(&self, rng: &mut Rng) -> HistoryStep {
        let client = rng.below(self.clients.len() as u64) as usize;
        let choices = [(60, 0), (40, 1), (8, 2), (6, 3), (8, 4), (2, 5), (1, 6), (1, 7)];
        HistoryStep::Net(match weighted(rng, &choices) {
            0 => return HistoryStep::Wait(between(rng, 1, 8) as usize),
            1 => return HistoryStep::Pass(Nanos::micros(between(rng, 1, 3000))),
            2 => {
                let how = [
                    Disconnect::Graceful,
                    Disconnect::HalfClosed,
                    Disconnect::Immediate,
                    Disconnect::Immediate,
                    Disconnect::MidMessage,
                ];
                NetAction::Disconnect(client, pick(rng, &how))
            }
            3 => NetAction::Stall(client, Nanos::micros(pick(rng, &[1_000, 50_000, 3_000_000]))),
            4 => NetAction::Order(self.order(rng)),
            5 => NetAction::HostileClient(draw_hostile_client(rng)),
            6 => return HistoryStep::Restart,
            _ => NetAction::DisconnectAll,
        })
    }

    /// A client writes much, and then to a few blocks; it loses its connection meanwhile, and writes to them
    /// again over a new one.
    fn add_reconnect(&self, rng: &mut Rng, steps: &mut Vec<HistoryStep>) {
        let client = rng.below(self.clients.len() as u64) as usize;
        let volume = self.clients[client].volume;
        let size = self.volumes.volumes[volume].size;
        let at = rng.below(16) * BLOCK;
        let ask = |op, at, len| {
            HistoryStep::Net(NetAction::Request(
                client,
                ClientRequest::Request(RequestSpec { volume, op, offset: VolumeOffset(at), len, fua: false }),
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
        steps.push(HistoryStep::Net(NetAction::Disconnect(
            client,
            pick(rng, &[Disconnect::Immediate, Disconnect::MidMessage]),
        )));
        steps.extend((0..3).map(|_| few(Op::Write, rng)));
        steps.push(HistoryStep::Wait(usize::MAX));
        steps.extend((0..3).map(|_| few(Op::Read, rng)));
    }

    fn order(&self, rng: &mut Rng) -> OperatorRequest {
        let volume = rng.below(self.volumes.volumes.len() as u64) as usize;
        let policy = pick(rng, weir_policy::placement::ALL).name;
        match weighted(rng, &[(4, 0), (3, 1), (2, 2), (1, 3), (1, 4), (3, 5), (2, 6), (1, 7)]) {
            0 => OperatorRequest::Status,
            1 => OperatorRequest::Explain(volume, VolumeOffset(rng.below(1 << 22))),
            2 => OperatorRequest::Harden(volume, pick(rng, &[Hardening::Flush, Hardening::Write])),
            3 => OperatorRequest::Policy(policy),
            4 => OperatorRequest::VolumePolicy(volume, pick(rng, &[None, Some(policy)])),
            5 => OperatorRequest::Replace(volume),
            6 => OperatorRequest::RemoveUsed(volume),
            _ => OperatorRequest::Garbage,
        }
    }

    fn crash(&self, rng: &mut Rng, steps: &mut Vec<HistoryStep>) {
        let most = weighted(rng, &[(1, 0), (4, 60), (3, 600)]);
        let after = rng.below(most + 1);
        let how = weighted(rng, &[(3, StopKind::PowerLoss), (1, StopKind::Kill)]);
        let times = weighted(rng, &[(14, 0), (4, 1), (1, 2)]);
        let again = (0..times)
            .map(|_| RecoveryCrash { write: between(rng, 1, 12), kind: StopKind::PowerLoss })
            .collect();
        if rng.chance(0.05) {
            steps.push(HistoryStep::Wait(usize::MAX));
        }
        steps.push(HistoryStep::Crash(Crash { after, kind: how, rot: None, recovery_crashes: again }));
    }
}

/// Draws the range of a request: often in the same few blocks; often in whole blocks, but not always; some as
/// long as the client's may be.
fn span(rng: &mut Rng, character: &ClientProfile, size: Bytes) -> (VolumeOffset, Bytes) {
    let sectors = size.0 / SECTOR;
    let at = match rng.below(3) {
        0 => rng.below(64),
        1 => rng.below(512).min(sectors - 1),
        _ => rng.below(sectors),
    };
    let longest = character.len_max.0 / SECTOR;
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

fn draw_invalid(rng: &mut Rng) -> InvalidRequest {
    let len = pick(rng, &[512, 4096, 70_000]);
    let all = [
        InvalidRequest::ReadBehindEnd,
        InvalidRequest::WriteBehindEnd(len),
        InvalidRequest::Unknown,
        InvalidRequest::Cache,
        InvalidRequest::Flags,
        InvalidRequest::Status,
    ];
    pick(rng, &all)
}

fn draw_hostile_client(rng: &mut Rng) -> HostileClient {
    let few = between(rng, 1, 6) as u16;
    let all = [
        HostileClient::Silent(few),
        HostileClient::HalfOpen(few),
        HostileClient::Garbage(few),
        HostileClient::Lists(few),
        HostileClient::Flushes(few),
        HostileClient::Reads(few),
        HostileClient::Stuck(few),
        HostileClient::Control(few),
    ];
    pick(rng, &all)
}
