//! Commands that are abandoned, since their device was given up before it answered, and what they keep: their
//! buffers, until they really end (rule 2 of docs/internals/invariants.md).

use crate::Base;
use crate::flight::Flight;
use crate::task::Task;
use std::collections::VecDeque;
use weir_model::{BLOCK, Buffer, Bytes, IoId, Memory};

/// Commands no longer waited for, and the buffers they keep.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    commands: Vec<(IoId, Buffer)>,
    /// Buffers to be given back to the memory once no abandoned command uses them.
    kept: Vec<Buffer>,
    /// How much of them, at most, the memory has replaced.
    replaced: Bytes,
    /// Commands that come to nothing, to be ended in turn: refused because their device is lost, or flushes
    /// that do not count.
    refused: VecDeque<Flight>,
}

/// Whether they have bytes in common; an empty one has none.
fn overlap(a: Buffer, b: Buffer) -> bool {
    a.at < b.at + u64::from(b.len) && b.at < a.at + u64::from(a.len)
}

impl Abandoned {
    /// How many commands are abandoned and have not ended.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// One more.
    pub(crate) fn add(&mut self, id: IoId, buffer: Buffer) {
        self.commands.push((id, buffer));
    }

    /// Whether an abandoned command may still use the buffer.
    #[inline]
    pub(crate) fn uses(&self, buffer: Buffer) -> bool {
        !self.commands.is_empty() && self.commands.iter().any(|(_, b)| overlap(*b, buffer))
    }

    /// The buffer is to be given to the memory as soon as nothing uses it.
    pub(crate) fn keep(&mut self, buffer: Buffer) {
        self.kept.push(buffer);
    }

    /// How much is kept back that the memory has not replaced.
    fn lacking(&self) -> Bytes {
        let kept = self.kept.iter().map(|buffer| u64::from(buffer.len)).sum::<u64>();
        Bytes(kept.saturating_sub(self.replaced.0))
    }

    /// Whether the memory is to make up for what is kept back.
    fn is_lacking(&self) -> bool {
        !self.kept.is_empty() && self.lacking() > Bytes(0)
    }

    /// The buffer goes back to the memory, now or as soon as nothing uses it.
    pub(crate) fn let_go<M: Memory>(&mut self, buffer: Buffer, memory: &mut M) {
        if self.uses(buffer) {
            self.keep(buffer);
        } else {
            memory.give(buffer);
        }
    }

    /// Whether commands that come to nothing are to be ended.
    pub(crate) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    pub(crate) fn refuse(&mut self, flight: Flight) {
        self.refused.push_back(flight);
    }

    pub(crate) fn next_refused(&mut self) -> Option<Flight> {
        self.refused.pop_front()
    }

    /// An abandoned command has ended after all.
    pub(crate) fn ended<M: Memory>(&mut self, id: IoId, memory: &mut M) {
        self.commands.retain(|(i, _)| *i != id);
        let (commands, kept) = (&self.commands, &mut self.kept);
        kept.retain(|buffer| {
            let used = commands.iter().any(|(_, b)| overlap(*b, *buffer));
            if !used {
                memory.give(*buffer);
            }
            used
        });
    }
}

impl Task for Abandoned {
    type On = Base;

    fn can_run(base: &Base) -> bool {
        base.core.abandoned.is_lacking()
    }

    /// What is kept back is made up for, so that requests still find memory, however many commands a device
    /// never ends; and scratch buffers that are kept back make way for others, as far as there is memory.
    /// (Where metadata is written from, each member has buffers of its own.)
    fn run<M: Memory>(base: &mut Base, memory: &mut M) {
        if base.core.abandoned.is_lacking() {
            let lacking = base.core.abandoned.lacking();
            memory.make_up(lacking);
            base.core.abandoned.replaced.0 += lacking.0;
        }
        base.space.scratch.replace_runs(memory);
        while base.space.scratch.missing() > 0
            && let Some(block) = memory.take(Bytes(BLOCK))
        {
            base.space.scratch.add(block);
            base.go_on_with_scratch();
        }
    }
}
