//! Checkpoints: written in the background, so that journal space can be reused and recovery stays short.

use crate::Base;
use crate::core::Core;
use crate::durability::Durability;
use crate::flight::MetadataIo;
use crate::task::Task;
use weir_map::root::Root;
use weir_model::{DeviceId, Errno, IoError, Memory, Mutant};

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Idle,
    /// Pages are being written, a buffer at a time; this many members have not answered.
    Pages(usize),
    /// The pages are being made durable; the root follows.
    Flush(usize),
    /// The root is being written.
    Root(Box<Root>, usize),
}

/// The checkpoint in progress.
#[derive(Debug, Default)]
pub(crate) struct Checkpoint {
    phase: Phase,
    requested: bool,
    bytes: Vec<u8>,
    /// Whether the last one found no space in the metadata area, and nothing has become durable since.
    pub(crate) no_space: bool,
}

impl Task for Checkpoint {
    type On = Base;

    /// Whether the checkpoint in progress has nothing left to wait for.
    fn can_run(base: &Base) -> bool {
        let waits = base.durability.commits.metadata_failed || base.durability.members.is_recording();
        !waits
            && matches!(
                base.durability.checkpoint.phase,
                Phase::Pages(0) | Phase::Flush(0) | Phase::Root(_, 0)
            )
    }

    /// Begins a checkpoint if one is due, and advances the one in progress.
    fn run<M: Memory>(base: &mut Base, memory: &mut M) {
        if base.durability.commits.metadata_failed {
            return;
        }
        let stopping = base.core.stopped_changes.is_some()
            && base.requests.active.is_empty()
            && base.durability.commits_are_settled(&base.core)
            && !base.durability.checkpoint_is_settled(&base.core);
        let due = base.core.map.is_checkpoint_due() && !base.durability.checkpoint.no_space;
        let wanted = base.durability.checkpoint.requested || due || stopping;
        if matches!(base.durability.checkpoint.phase, Phase::Idle)
            && wanted
            && base.durability.is_between_frames()
        {
            base.begin_checkpoint();
        }
        if base.durability.members.is_recording() {
            return;
        }
        match base.durability.checkpoint.phase {
            Phase::Pages(0) => base.durability.write_pages(&mut base.core, memory),
            Phase::Flush(0) => base.durability.write_root(&mut base.core, memory),
            Phase::Root(_, 0) => base.durability.note_root_durable(&mut base.core),
            _ => {}
        }
    }

    fn is_idle(base: &Base) -> bool {
        base.durability.commits.metadata_failed || base.durability.checkpoint_is_settled(&base.core)
    }
}

impl Durability {
    /// Requests a checkpoint.
    pub(crate) fn request_checkpoint(&mut self) {
        self.checkpoint.requested = true;
    }

    /// Notes that the durable map has changed: a checkpoint that found no space may find some now.
    pub(crate) fn durable_map_changed(&mut self) {
        self.checkpoint.no_space = false;
    }

    /// Whether no checkpoint is in progress or needed.
    pub(crate) fn checkpoint_is_settled(&self, core: &Core) -> bool {
        matches!(self.checkpoint.phase, Phase::Idle)
            && (self.checkpoint.no_space || !core.map.has_unwritten_changes())
    }

    pub(crate) fn is_checkpoint_in_progress(&self) -> bool {
        !matches!(self.checkpoint.phase, Phase::Idle)
    }

    fn note_root_durable(&mut self, core: &mut Core) {
        if let (Phase::Root(root, _), false) =
            (std::mem::take(&mut self.checkpoint.phase), self.commits.metadata_failed)
        {
            core.map.finish_checkpoint(*root);
        }
    }
}

impl Durability {
    fn write_pages<M: Memory>(&mut self, core: &mut Core, memory: &mut M) {
        let mut bytes = std::mem::take(&mut self.checkpoint.bytes);
        self.checkpoint.phase = match core.map.next_pages(self.members.pages_len(), &mut bytes) {
            Some(at) => Phase::Pages(self.write_to_members(core, MetadataIo::Pages, at, &bytes, memory)),
            None if core.is_planted(Mutant::RootBeforePages) => Phase::Flush(0),
            None => Phase::Flush(self.flush_members(core)),
        };
        self.checkpoint.bytes = bytes;
    }

    fn write_root<M: Memory>(&mut self, core: &mut Core, memory: &mut M) {
        let Some((root, page, at)) = core.map.finished_root() else { return };
        let left = self.write_to_members(core, MetadataIo::Root, at, &page[..], memory);
        self.checkpoint.phase = Phase::Root(Box::new(root), left);
    }
}

impl Base {
    fn begin_checkpoint(&mut self) {
        self.durability.checkpoint.requested = false;
        self.durability.checkpoint.no_space = self.core.map.begin_checkpoint().is_err();
        if !self.durability.checkpoint.no_space {
            self.durability.checkpoint.phase = Phase::Pages(0);
        } else if !self.core.map.has_journal_space() {
            // Neither the journal nor a checkpoint can continue. Admission of new extents reserves space for
            // both, so this happens only if the metadata area's size was damaged.
            self.metadata_failed(IoError::Os(Errno::ENOSPC));
        }
    }

    /// Handles the answer of a member.
    pub(crate) fn checkpoint_step_ended(&mut self, device: DeviceId, result: Result<(), IoError>) {
        if let Err(error) = result {
            self.member_failed(device, error);
        }
        if let Phase::Pages(left) | Phase::Flush(left) | Phase::Root(_, left) =
            &mut self.durability.checkpoint.phase
        {
            *left -= 1;
        }
        if matches!(self.durability.checkpoint.phase, Phase::Root(_, 0))
            && !self.durability.members.is_recording()
        {
            self.durability.note_root_durable(&mut self.core);
        }
    }
}
