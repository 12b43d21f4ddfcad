//! Checkpoints: written in the background, so that the journal's space can be used again and
//! recovery stays short.

use crate::Engine;
use crate::piece::{NewIo, Purpose};
use weir_map::root::Root;
use weir_model::{IoError, IoKind, Memory};

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Idle,
    /// Pages are written, a buffer of them at a time.
    Pages {
        /// One is under way.
        under_way: bool,
    },
    /// The pages are being made durable, or are: then the root is written.
    Flush {
        /// They are.
        durable: bool,
    },
    /// The root is being written.
    Root(Box<Root>),
}

/// The checkpoint under way.
#[derive(Debug, Default)]
pub(crate) struct Checkpoint {
    phase: Phase,
    requested: bool,
    bytes: Vec<u8>,
    /// The last one found no room in the metadata area, and nothing has become durable since.
    pub(crate) no_room: bool,
}

impl Engine {
    /// A checkpoint is wanted.
    pub(crate) fn request_checkpoint(&mut self) {
        self.checkpoint.requested = true;
    }

    /// The durable map has changed: one that found no room may find some.
    pub(crate) fn durable_map_changed(&mut self) {
        self.checkpoint.no_room = false;
    }

    /// No checkpoint is under way or needed.
    pub(crate) fn checkpoint_is_settled(&self) -> bool {
        matches!(self.checkpoint.phase, Phase::Idle) && (self.checkpoint.no_room || !self.map.has_unwritten())
    }

    pub(crate) fn checkpoint_is_under_way(&self) -> bool {
        !matches!(self.checkpoint.phase, Phase::Idle)
    }

    /// Begins a checkpoint if one is due, and moves the one under way on.
    pub(crate) fn drive_checkpoint<M: Memory>(&mut self, memory: &mut M) {
        if self.commits.metadata_failed {
            return;
        }
        let stopping = self.stopped_changes.is_some()
            && self.active.is_empty()
            && self.commits_are_settled()
            && !self.checkpoint_is_settled();
        let due = self.map.wants_checkpoint() && !self.checkpoint.no_room;
        let wanted = self.checkpoint.requested || due || stopping;
        if matches!(self.checkpoint.phase, Phase::Idle) && wanted && self.is_between_frames() {
            self.begin_checkpoint();
        }
        if let Phase::Pages { under_way: false } = self.checkpoint.phase {
            self.write_pages(memory);
        }
        if let Phase::Flush { durable: true } = self.checkpoint.phase {
            self.write_root(memory);
        }
    }

    fn begin_checkpoint(&mut self) {
        self.checkpoint.requested = false;
        self.checkpoint.no_room = self.map.begin_checkpoint().is_err();
        if !self.checkpoint.no_room {
            self.checkpoint.phase = Phase::Pages { under_way: false };
        } else if !self.map.has_journal_room() {
            // Neither journal nor checkpoint can go on. Admission of new extents keeps room for both,
            // so this is the end of a metadata area that was damaged in size.
            self.metadata_failed(IoError::Os(crate::write::ENOSPC));
        }
    }

    fn write_pages<M: Memory>(&mut self, memory: &mut M) {
        let all = self.scratch.pages;
        match self.map.next_pages(all.len as usize, &mut self.checkpoint.bytes) {
            Some(to) => {
                let buffer = all.part(0, self.checkpoint.bytes.len() as u32);
                memory.bytes_mut(buffer).copy_from_slice(&self.checkpoint.bytes);
                self.checkpoint.phase = Phase::Pages { under_way: true };
                let kind = IoKind::Write { fua: false };
                self.launch(NewIo { device: to.device, kind, at: to.at, buffer }, Purpose::CheckpointPages);
            }
            None => {
                let device = self.map.metadata_device();
                self.checkpoint.phase = Phase::Flush { durable: false };
                self.launch(NewIo::flush(device), Purpose::CheckpointFlush);
            }
        }
    }

    pub(crate) fn checkpoint_pages_ended(&mut self, result: Result<(), IoError>) {
        match result {
            Ok(()) => self.checkpoint.phase = Phase::Pages { under_way: false },
            Err(error) => self.metadata_failed(error),
        }
    }

    pub(crate) fn checkpoint_flush_ended(&mut self, result: Result<(), IoError>) {
        match result {
            Ok(()) => self.checkpoint.phase = Phase::Flush { durable: true },
            Err(error) => self.metadata_failed(error),
        }
    }

    fn write_root<M: Memory>(&mut self, memory: &mut M) {
        let Some((root, page, to)) = self.map.finished_root() else { return };
        let buffer = self.scratch.pages.part(0, page.len() as u32);
        memory.bytes_mut(buffer).copy_from_slice(&page[..]);
        self.checkpoint.phase = Phase::Root(Box::new(root));
        let kind = IoKind::Write { fua: true };
        self.launch(NewIo { device: to.device, kind, at: to.at, buffer }, Purpose::Root);
    }

    pub(crate) fn root_ended(&mut self, result: Result<(), IoError>) {
        let phase = std::mem::take(&mut self.checkpoint.phase);
        match (result, phase) {
            (Ok(()), Phase::Root(root)) => self.map.checkpoint_durable(*root),
            (Ok(()), _) => {}
            (Err(error), _) => self.metadata_failed(error),
        }
    }
}
