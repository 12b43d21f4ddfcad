//! Changes histories to combine events that rarely coincide otherwise.

use weir_engine::Activity;
use weir_model::{BLOCK, Bytes, Errno, Nanos, Op, Rng, Seed, VolumeOffset};
use weir_world::campaign::History;
use weir_world::driver::{Crash, HistoryStep, OperatorCommand, RequestSpec, Submission};
use weir_world::{Fault, Kinds, StopKind};

/// Number of steps between two audits.
const AUDIT_EVERY: usize = 60;

/// Number of requests under which a volume is removed: fewer than may be in flight.
const REMOVED_UNDER: usize = 8;

/// Maximum number of extents of small volumes.
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
            let removes = *device >= members && recent.len() > 8 && rng.chance(0.3);
            // The requests of a volume that is removed must meet the hang.
            let from = if removes { Nanos(0) } else { from };
            *fault = Fault::Hang { during: from..Nanos(from.0.saturating_add(lasts)) };
            if removes {
                history.setup.depth = history.setup.depth.max(2 * REMOVED_UNDER);
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
        recent
            .iter()
            .take(REMOVED_UNDER)
            .map(|ask| HistoryStep::Request(RequestSpec { volume: victim, ..write(ask, false) })),
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

pub(super) const fn flush(volume: usize) -> HistoryStep {
    HistoryStep::Request(RequestSpec {
        volume,
        op: Op::Flush,
        offset: VolumeOffset(0),
        len: Bytes(0),
        fua: false,
    })
}

pub(super) const fn power_loss(after: u64) -> Crash {
    Crash { after, kind: StopKind::PowerLoss, rot: None, recovery_crashes: Vec::new() }
}

pub(super) fn between(rng: &mut Rng, least: u64, most: u64) -> u64 {
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

/// Leaves two small volumes: there is little to read after each crash.
pub(super) fn shrink_volumes(history: &mut History) {
    history.setup.volumes.truncate(2);
    limit_volumes(history, Bytes(SMALL_EXTENTS * history.setup.extent.bytes().0));
}

/// Limits the size of each volume. Moves at random then mostly concern what clients access.
pub(super) fn limit_volumes(history: &mut History, most: Bytes) {
    history.setup.volumes.iter_mut().for_each(|volume| volume.size = volume.size.min(most));
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

/// Turns requests into many at once for one or two blocks, mostly reads and changes of whether they hold
/// data. Only a few copies crash: what matters is what concurrent requests see.
pub(super) fn add_contention(mut history: History) -> History {
    let mut rng = Rng::new(Seed(!history.setup.seed.0));
    let extent = history.setup.extent.bytes().0;
    shrink_volumes(&mut history);
    history.setup.depth = [8, 16, 32][rng.below(3) as usize];
    let volumes = between(&mut rng, 1, 2).min(history.setup.volumes.len() as u64);
    let blocks = between(&mut rng, 1, 3);
    let mut ops = vec![Op::Write, Op::Write, Op::Trim, Op::WriteZeroes { no_hole: rng.chance(0.5) }];
    ops.extend(std::iter::repeat_n(Op::Read, between(&mut rng, 1, 6) as usize));
    ops.extend(std::iter::repeat_n(Op::Flush, between(&mut rng, 0, 2) as usize));
    for step in &mut history.steps {
        let HistoryStep::Request(ask) = step else { continue };
        let op = ops[rng.below(ops.len() as u64) as usize];
        let (start, len) = match (op, rng.below(8)) {
            (Op::Trim, 0) => (0, extent),
            (_, 1) => (between(&mut rng, 0, 7) * (BLOCK / 8), BLOCK / 8),
            _ => (rng.below(blocks) * BLOCK, between(&mut rng, 1, 2) * BLOCK),
        };
        let volume = rng.below(volumes) as usize;
        *ask = RequestSpec { volume, op, offset: VolumeOffset(start), len: Bytes(len), fua: rng.chance(0.1) };
    }
    history
}
