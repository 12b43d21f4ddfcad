//! Abandoned commands: their device was given up before it answered. Their buffers are kept until they really
//! end (rule 2 of docs/internals/invariants.md).

use crate::Base;
use crate::flight::Flight;
use crate::task::Task;
use std::collections::VecDeque;
use weir_model::{BLOCK, Buffer, Bytes, IoId, Memory};

/// The abandoned commands and the buffers they keep.
#[derive(Debug, Default)]
pub(crate) struct AbandonedCommands {
    commands: Vec<(IoId, Buffer)>,
    /// Buffers to return to the memory once no abandoned command uses them.
    deferred: Vec<Buffer>,
    /// The bytes of `kept` that the memory has already replaced, at most.
    replaced: Bytes,
    /// Commands that will fail, to be ended in turn: refused because their device is lost, or flushes that do
    /// not count.
    refused: VecDeque<Flight>,
}

/// Whether two buffers overlap; an empty one overlaps nothing.
fn overlap(a: Buffer, b: Buffer) -> bool {
    a.at < b.at + u64::from(b.len) && b.at < a.at + u64::from(a.len)
}

impl AbandonedCommands {
    /// Returns the number of abandoned commands that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Adds an abandoned command.
    pub(crate) fn add(&mut self, id: IoId, buffer: Buffer) {
        self.commands.push((id, buffer));
    }

    /// Whether an abandoned command may still use the buffer.
    #[inline]
    pub(crate) fn uses(&self, buffer: Buffer) -> bool {
        !self.commands.is_empty() && self.commands.iter().any(|(_, b)| overlap(*b, buffer))
    }

    /// Keeps the buffer until nothing uses it; it then goes back to the memory.
    pub(crate) fn defer_release(&mut self, buffer: Buffer) {
        self.deferred.push(buffer);
    }

    /// Returns the bytes kept that the memory has not replaced.
    fn unreplaced_bytes(&self) -> Bytes {
        let kept = self.deferred.iter().map(|buffer| u64::from(buffer.len)).sum::<u64>();
        Bytes(kept.saturating_sub(self.replaced.0))
    }

    /// Whether the memory must replace kept buffers.
    fn needs_replacement(&self) -> bool {
        !self.deferred.is_empty() && self.unreplaced_bytes() > Bytes(0)
    }

    /// Returns the buffer to the memory, now or as soon as nothing uses it.
    pub(crate) fn release_when_idle<M: Memory>(&mut self, buffer: Buffer, memory: &mut M) {
        if self.uses(buffer) {
            self.defer_release(buffer);
        } else {
            memory.give(buffer);
        }
    }

    /// Whether some commands wait to be ended as failed.
    pub(crate) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    pub(crate) fn refuse(&mut self, flight: Flight) {
        self.refused.push_back(flight);
    }

    pub(crate) fn next_refused(&mut self) -> Option<Flight> {
        self.refused.pop_front()
    }

    /// Notes that an abandoned command has really ended.
    pub(crate) fn ended<M: Memory>(&mut self, id: IoId, memory: &mut M) {
        self.commands.retain(|(i, _)| *i != id);
        let (commands, kept) = (&self.commands, &mut self.deferred);
        kept.retain(|buffer| {
            let used = commands.iter().any(|(_, b)| overlap(*b, *buffer));
            if !used {
                memory.give(*buffer);
            }
            used
        });
    }
}

impl Task for AbandonedCommands {
    type On = Base;

    fn can_run(base: &Base) -> bool {
        base.core.abandoned.needs_replacement()
    }

    /// Replaces kept buffers, so that requests find memory however many commands a device never ends; and
    /// replaces kept scratch buffers as far as memory permits. (Metadata buffers need no replacement: each
    /// member has its own.)
    fn run<M: Memory>(base: &mut Base, memory: &mut M) {
        if base.core.abandoned.needs_replacement() {
            let lacking = base.core.abandoned.unreplaced_bytes();
            memory.grow(lacking);
            base.core.abandoned.replaced.0 += lacking.0;
        }
        base.space.scratch.replace_runs(memory);
        while base.space.scratch.missing_blocks() > 0
            && let Some(block) = memory.take(Bytes(BLOCK))
        {
            base.space.scratch.add(block);
            base.resume_scratch_waiter();
        }
    }
}
