//! Changes histories to combine events that rarely coincide otherwise.

use weir_engine::Activity;
use weir_model::Errno;
use weir_model::{BLOCK, Bytes, Nanos, Op, Rng, Seed, VolumeOffset};
use weir_world::campaign::History;
use weir_world::driver::{Crash, HistoryStep, OperatorCommand, RequestSpec, Submission};
use weir_world::net::{ClientProfile, ClientRequest, NetAction};
use weir_world::{Fault, Kinds, StopKind};

/// Number of steps between two audits.
const AUDIT_EVERY: usize = 60;

/// Number of extents of the small volumes of the mixes `losing` and `durable`.
const SMALL_EXTENTS: u64 = 4;

/// Turns every device fault into a hang: usually permanent, or until shortly before or after the device is
/// given up, sometimes so shortly that the consequences meet its commands.
pub(super) fn make_faults_hang(history: &mut History) {
    let mut rng = Rng::new(Seed(!history.setup.seed.0));
    let deadline = history.setup.deadline.0;
    let members = if history.setup.mirrored { 2 } else { 1 };
    let mut recent: Vec<RequestSpec> = Vec::new();
    for mut step in std::mem::take(&mut history.steps) {
        if let HistoryStep::Break(device, fault) = &mut step {
            let from = Nanos::micros(rng.below(20_000));
            let most = if rng.chance(0.5) { 20_000_000 } else { 200_000_000 };
            let soon_after = deadline + rng.below(most);
            let lasts = [u64::MAX, deadline / 2, deadline + deadline / 2, soon_after, soon_after]
                [rng.below(5) as usize];
            *fault = Fault::Hang { during: from..Nanos(from.0.saturating_add(lasts)) };
            if *device >= members && recent.len() > 8 && rng.chance(0.3) {
                history.steps.push(step);
                remove_without_metadata(&recent, members, &mut history.steps);
                continue;
            }
        }
        if let HistoryStep::Request(ask) = &step {
            recent.push(*ask);
            let old = recent.len().saturating_sub(12);
            recent.drain(..old);
        }
        history.steps.push(step);
    }
}

/// Removes a volume while its requests are on a hung device, and then makes all devices refuse metadata.
fn remove_without_metadata(recent: &[RequestSpec], members: usize, steps: &mut Vec<HistoryStep>) {
    let victim = recent[0].volume;
    let write = |ask: &RequestSpec, fua: bool| RequestSpec { op: Op::Write, fua, ..*ask };
    steps.extend(
        recent.iter().map(|ask| HistoryStep::Request(RequestSpec { volume: victim, ..write(ask, false) })),
    );
    steps.push(HistoryStep::Pass(Nanos::millis(25)));
    let kinds = Kinds { flushes: true, writes: true, ..Kinds::default() };
    let all = weir_model::DeviceOffset(0)..weir_model::DeviceOffset(u64::MAX);
    let fault = Fault::Errors { kinds, range: all, chance: 1.0, times: u64::MAX, error: Errno::EIO };
    steps.extend((0..members).map(|member| HistoryStep::Break(member, fault.clone())));
    let other = RequestSpec { volume: victim + 1, ..write(&recent[1], true) };
    steps.push(HistoryStep::Submit(vec![
        Submission::Request(RequestSpec { volume: victim, ..write(&recent[2], false) }),
        Submission::Command(OperatorCommand::Remove(victim)),
        Submission::Request(other),
    ]));
}

/// Inserts one of the volume's flushes, or several at once, after every few requests.
pub(super) fn add_flushes(mut history: History) -> History {
    let mut rng = Rng::new(Seed(!history.setup.seed.0));
    let mut steps = Vec::with_capacity(history.steps.len() * 2);
    for step in history.steps.drain(..) {
        let ask = if let HistoryStep::Request(ask) = &step { Some(*ask) } else { None };
        let is_own = !step.crashes_copy();
        steps.push(step);
        if !is_own {
            continue;
        }
        let flushes = [0, 0, 0, 1, 1, 4][rng.below(6) as usize];
        steps.extend(ask.into_iter().flat_map(|ask| (0..flushes).map(move |_| flush(ask.volume))));
    }
    history.steps = steps;
    history
}

/// Inserts an audit after every few steps of the history itself.
pub(super) fn audit_often(mut history: History) -> History {
    let mut count = 0;
    for step in std::mem::take(&mut history.steps) {
        count += usize::from(!step.crashes_copy());
        history.steps.push(step);
        if count == AUDIT_EVERY {
            history.steps.push(HistoryStep::Audit);
            count = 0;
        }
    }
    history.steps.push(HistoryStep::Audit);
    history
}

const fn flush(volume: usize) -> HistoryStep {
    HistoryStep::Request(RequestSpec {
        volume,
        op: Op::Flush,
        offset: VolumeOffset(0),
        len: Bytes(0),
        fua: false,
    })
}

const fn power_loss(after: u64) -> Crash {
    Crash { after, kind: StopKind::PowerLoss, rot: None, recovery_crashes: Vec::new() }
}

fn between(rng: &mut Rng, least: u64, most: u64) -> u64 {
    least + rng.below(most + 1 - least)
}

/// Makes many changes at once, with one flush for all of them, repeatedly: frames of several sectors and
/// consecutive checkpoints, in a short journal. Copies crash in the middle of both.
pub(super) fn add_large_frames(mut history: History) -> History {
    let mut rng = Rng::new(Seed(!history.setup.seed.0));
    history.setup.journal_pages = between(&mut rng, 4, 12);
    history.setup.depth = 32;
    let extent = history.setup.extent.bytes().0;
    let volumes = history.setup.volumes.clone();
    let every = between(&mut rng, 10, 60);
    let mut steps = Vec::with_capacity(history.steps.len() * 3);
    for step in history.steps.drain(..) {
        let asks = matches!(step, HistoryStep::Request(_));
        steps.push(step);
        if !asks || rng.below(every) > 0 {
            continue;
        }
        let most = between(&mut rng, 8, 60);
        for _ in 0..most {
            let volume = rng.below(volumes.len() as u64) as usize;
            let extents = volumes[volume].size.0.div_ceil(extent);
            let block = rng.below(extent / BLOCK);
            let offset = VolumeOffset(rng.below(extents) * extent + block * BLOCK);
            let op = [Op::Write, Op::Write, Op::Write, Op::Trim][rng.below(4) as usize];
            steps.push(HistoryStep::Request(RequestSpec {
                volume,
                op,
                offset,
                len: Bytes(BLOCK),
                fua: false,
            }));
        }
        use Activity::{CheckpointFlush, CheckpointPages, CheckpointRoot, Frame};
        for _ in 0..between(&mut rng, 1, 3) {
            let during =
                [Frame, Frame, CheckpointPages, CheckpointFlush, CheckpointRoot][rng.below(5) as usize];
            steps.push(HistoryStep::CrashCopyDuring(during, Crash::power_loss_now()));
        }
        steps.push(flush(rng.below(volumes.len() as u64) as usize));
    }
    history.steps = steps;
    history
}

/// Parameters of a history of [`add_repeated_failures`]: few features, at high rates.
struct Losses {
    /// Mean number of requests between two failures.
    every: u64,
    /// Target of requests: this many extents of each volume, and this many blocks of each.
    hot_range: (u64, u64),
    /// Probability that a change must be durable.
    fua: f64,
    kinds: Vec<Kinds>,
    /// The devices that fail.
    devices: std::ops::Range<usize>,
    /// Probability that all of them fail at the same time.
    all_devices: f64,
    /// Probability that clients are idle for seconds, and probability of a power loss.
    idle: f64,
    power_loss: f64,
    reads: u64,
}

impl Losses {
    fn draw(rng: &mut Rng, history: &History) -> Self {
        let members = if history.setup.mirrored { 2 } else { 1 };
        let devices = history.setup.devices.len();
        let flushes = Kinds { flushes: true, ..Kinds::default() };
        let writes = Kinds { writes: true, ..Kinds::default() };
        let both = Kinds { flushes: true, writes: true, ..Kinds::default() };
        let kinds = [vec![flushes], vec![flushes], vec![flushes, writes], vec![both, flushes], vec![writes]];
        let spared = rng.chance(0.8) && devices > members;
        Self {
            every: between(rng, 8, 40),
            fua: [0.0, 0.1, 0.5][rng.below(3) as usize],
            hot_range: (between(rng, 1, 4), between(rng, 1, 16)),
            kinds: kinds[rng.below(5) as usize].clone(),
            devices: if spared { members..devices } else { 0..devices },
            all_devices: [0.0, 0.3, 0.8][rng.below(3) as usize],
            idle: [0.0, 0.0, 0.3][rng.below(3) as usize],
            power_loss: [0.0, 0.1][rng.below(2) as usize],
            reads: between(rng, 0, 4),
        }
    }

    /// Redirects a request to the few hot blocks.
    fn redirect(&self, mut ask: RequestSpec, extent: u64, volumes: u64, rng: &mut Rng) -> RequestSpec {
        let (extents, blocks) = self.hot_range;
        ask.volume %= volumes as usize;
        ask.fua = rng.chance(self.fua);
        let index = ask.offset.0 / extent % extents;
        let within = ask.offset.0 % extent % (blocks * BLOCK);
        ask.offset = VolumeOffset(index * extent + within);
        if ask.op != Op::Trim || ask.len.0 < extent {
            ask.len = Bytes(ask.len.0.min(8 * BLOCK));
        }
        ask
    }

    fn fault(&self, rng: &mut Rng) -> Fault {
        Fault::Errors {
            kinds: self.kinds[rng.below(self.kinds.len() as u64) as usize],
            range: weir_model::DeviceOffset(0)..weir_model::DeviceOffset(u64::MAX),
            chance: 1.0,
            // The engine retries a few times; some failures outlast that.
            times: [1, 1, 1, 2, 3, 6, 24][rng.below(7) as usize],
            error: [Errno::EIO, Errno::EIO, Errno::EIO, Errno::ENOSPC][rng.below(4) as usize],
        }
    }

    /// Makes clients idle long enough that write intents are closed, possibly with a write in flight.
    fn add_idle_period(device: usize, ask: RequestSpec, rng: &mut Rng, steps: &mut Vec<HistoryStep>) {
        if rng.chance(0.3) {
            steps.push(HistoryStep::Break(device, Fault::Hang { during: Nanos(0)..Nanos::millis(2950) }));
            (0..3).for_each(|_| steps.push(HistoryStep::Request(RequestSpec { op: Op::Write, ..ask })));
        }
        let time = Nanos::millis(between(rng, 2000, 4200));
        steps.push(if rng.chance(0.2) {
            HistoryStep::Jump { after: 0, time }
        } else {
            HistoryStep::Pass(time)
        });
    }

    fn add_reads(&self, rng: &mut Rng, recent: &[RequestSpec], steps: &mut Vec<HistoryStep>) {
        for _ in 0..self.reads {
            let ask = recent[rng.below(recent.len() as u64) as usize];
            steps.push(HistoryStep::Request(RequestSpec { op: Op::Read, fua: false, ..ask }));
        }
    }

    /// Makes one device fail, or two at once, while requests of its volumes are in flight; then everything is
    /// flushed and read, and copies, or the pool itself, crash.
    fn add_failure(&self, rng: &mut Rng, recent: &[RequestSpec], steps: &mut Vec<HistoryStep>) {
        let any = |rng: &mut Rng| recent[rng.below(recent.len() as u64) as usize];
        let device = |rng: &mut Rng| {
            let Self { devices, .. } = self;
            devices.start + rng.below(devices.len() as u64) as usize
        };
        let (first, fault) = (device(rng), self.fault(rng));
        steps.push(HistoryStep::Break(first, fault.clone()));
        if rng.chance(self.all_devices) {
            let others = self.devices.clone().filter(|device| *device != first);
            steps.extend(others.map(|device| HistoryStep::Break(device, fault.clone())));
        }
        // As soon as the failure shows, and soon after.
        for _ in 0..between(rng, 1, 2) {
            steps.push(HistoryStep::CrashCopy(power_loss(between(rng, 2, 24))));
        }
        let during = [Activity::InDoubt, Activity::Frame, Activity::Moving][rng.below(3) as usize];
        steps.push(HistoryStep::CrashCopyDuring(during, Crash::power_loss_now()));
        for _ in 0..between(rng, 0, 6) {
            steps.push(HistoryStep::Request(any(rng)));
        }
        steps.push(flush(any(rng).volume));
        if rng.chance(0.5) {
            // While the flush fails.
            self.add_reads(rng, recent, steps);
        }
        match rng.below(4) {
            0 => {}
            1 => steps.push(HistoryStep::Pass(Nanos::micros(between(rng, 1, 6000)))),
            2 => steps.push(HistoryStep::Wait(between(rng, 1, 8) as usize)),
            _ => (0..between(rng, 1, 6)).for_each(|_| steps.push(HistoryStep::Request(any(rng)))),
        }
        if rng.chance(self.idle) {
            Self::add_idle_period(device(rng), any(rng), rng, steps);
        }
        self.add_reads(rng, recent, steps);
        if rng.chance(0.6) {
            steps.push(flush(any(rng).volume));
        }
        steps.push(HistoryStep::CrashCopy(power_loss(rng.below(40))));
        if rng.chance(0.1) {
            steps.push(HistoryStep::Check);
        }
        if rng.chance(0.1) {
            if rng.chance(0.5) {
                // Longer than the interval of commits: data in doubt has durable write intents then.
                steps.push(HistoryStep::Pass(Nanos::secs(between(rng, 6, 12))));
            }
            let after = rng.below(60);
            steps.push(HistoryStep::Crash(Crash { kind: StopKind::Kill, ..power_loss(after) }));
            if rng.chance(0.7) {
                // What the next server finds is durable, whether or not clients read it.
                steps.push(HistoryStep::Wait(usize::MAX));
                self.add_reads(rng, recent, steps);
                steps.push(HistoryStep::CrashCopy(power_loss(rng.below(20))));
            }
        }
        if rng.chance(self.power_loss) {
            steps.push(HistoryStep::Crash(power_loss(rng.below(60))));
            steps.push(HistoryStep::Check);
        }
    }
}

/// Leaves two small volumes: there is little to read after each crash.
fn shrink_volumes(history: &mut History) {
    let extent = history.setup.extent.bytes().0;
    history.setup.volumes.truncate(2);
    for volume in &mut history.setup.volumes {
        volume.size = volume.size.min(Bytes(SMALL_EXTENTS * extent));
    }
}

/// Turns requests into changes of a few blocks, many of them durable, mostly over blocks that hold something
/// else. Copies crash as soon as one is acknowledged as durable.
pub(super) fn add_durable_changes(mut history: History) -> History {
    let mut rng = Rng::new(Seed(!history.setup.seed.0));
    let extent = history.setup.extent.bytes().0;
    shrink_volumes(&mut history);
    history.setup.depth = [1, 4, 16][rng.below(3) as usize];
    let volumes = history.setup.volumes.len();
    let (extents, blocks) = (between(&mut rng, 1, SMALL_EXTENTS), between(&mut rng, 1, 4));
    let (fua, crashes) = ([0.3, 0.6, 0.9][rng.below(3) as usize], [0.1, 0.3][rng.below(2) as usize]);
    let mut steps = Vec::with_capacity(history.steps.len() * 2);
    for mut step in history.steps.drain(..) {
        if let HistoryStep::Request(ask) = &mut step {
            ask.volume %= volumes;
            let start = rng.below(extents) * extent;
            let block = if rng.chance(0.2) { rng.below(extent / BLOCK) } else { rng.below(blocks) };
            let len = if rng.chance(0.1) { extent } else { between(&mut rng, 1, 3) * BLOCK };
            let zeros = [false, true].map(|no_hole| Op::WriteZeroes { no_hole });
            let ops = [Op::Write, Op::Write, Op::Write, Op::Trim, zeros[0], zeros[1], Op::Read, Op::Flush];
            let (offset, op) = (VolumeOffset(start + block * BLOCK), ops[rng.below(8) as usize]);
            *ask = RequestSpec { volume: ask.volume, op, offset, len: Bytes(len), fua: rng.chance(fua) };
            if rng.chance(crashes) {
                steps.push(HistoryStep::CrashCopyAfterDurable(Crash::power_loss_now()));
            }
        }
        steps.push(step);
    }
    history.steps = steps;
    history
}

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

/// Makes flushes and writes fail again and again on devices with caches, mostly on those that do not hold the
/// map: the others would be given up at once.
pub(super) fn add_repeated_failures(mut history: History) -> History {
    let mut rng = Rng::new(Seed(!history.setup.seed.0));
    // The rest of the history does not depend on these draws.
    let mut apart = Rng::new(Seed(history.setup.seed.0.rotate_left(24) ^ 1));
    let losses = Losses::draw(&mut rng, &history);
    history.setup.devices.iter_mut().for_each(|device| device.write_cache = true);
    history.setup.depth = [8, 16, 32][rng.below(3) as usize];
    let extent = history.setup.extent.bytes().0;
    shrink_volumes(&mut history);
    let volumes = history.setup.volumes.len() as u64;
    let mut steps = Vec::with_capacity(history.steps.len() * 2);
    let mut recent: Vec<RequestSpec> = Vec::new();
    for step in history.steps.drain(..) {
        match step {
            HistoryStep::Request(ask) => {
                let ask = losses.redirect(ask, extent, volumes, &mut rng);
                if ask.op != Op::Flush {
                    recent.push(ask);
                    let old = recent.len().saturating_sub(16);
                    recent.drain(..old);
                }
                steps.push(HistoryStep::Request(ask));
                if !recent.is_empty() && rng.below(losses.every) == 0 {
                    let after_durable = HistoryStep::CrashCopyAfterDurable(Crash::power_loss_now());
                    steps.extend(std::iter::repeat_n(after_durable, between(&mut apart, 0, 3) as usize));
                    losses.add_failure(&mut rng, &recent, &mut steps);
                }
            }
            HistoryStep::Break(..) | HistoryStep::CrashCopy(_) | HistoryStep::Tune(_) => {}
            other => steps.push(other),
        }
    }
    history.steps = steps;
    history
}
