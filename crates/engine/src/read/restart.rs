//! Pieces that restart: a read moves to another buffer if a lost device may still fill its own, and blocks
//! that were cleared during the read are read again.
//!
//! A command that is abandoned ([`crate::api::devices`]) keeps its part of the buffer. If other devices have
//! the blocks, the piece restarts once its last command has ended:
//!
//! - a read restarts with another buffer, as long as the request's. Other pieces may have been read into the
//!   request's own buffer in the meantime: at the end everything is collected in the new one, which the reply
//!   carries;
//! - a write that reads old blocks restarts with other scratch blocks.
//!
//! A read of blocks that are cleared in the meantime keeps its buffer. The freed space may be rewritten next,
//! and the read would return that write before it is visible. The restarted read locks its blocks like a
//! change, so that a client that keeps clearing and writing them cannot delay it forever. A read also
//! restarts if its device lost writes to the blocks during the read ([`crate::durability::doubt`]).
//!
//! A change of buffers can happen once per lost device. Without a lost device the code costs no time and no
//! memory. If memory is short, a read waits for some, for at most the device's deadline.

use crate::DataPath;
use crate::core::Core;
use crate::ids::{ActiveId, PieceId};
use crate::read::Reads;
use crate::request::Requests;
use crate::request::active::Answer;
use crate::request::piece::WaitsFor;
use crate::task::Task;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use weir_model::{BLOCK, Buffer, Bytes, Memory, Nanos, RequestError};

/// The interval at which a read that waits for memory looks for it: no event reports that memory was freed.
const MEMORY_POLL_INTERVAL: Nanos = Nanos::millis(10);

/// The buffers of a request besides its own.
#[derive(Debug, Default)]
struct ExtraBuffers {
    /// The buffers, each as long as the request's own, oldest first. The last one is for the reply.
    buffers: Vec<Buffer>,
    /// The parts in these buffers, by offset in the request's buffer.
    parts: BTreeMap<u32, Buffer>,
}

/// A read that waits for memory.
#[derive(Debug)]
struct WaitingRead {
    piece: PieceId,
    until: Nanos,
    error: RequestError,
}

/// Reads that restart with another buffer.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    waiting: VecDeque<WaitingRead>,
    /// The next time to look for memory.
    next_poll: Option<Nanos>,
    requests: FxHashMap<usize, ExtraBuffers>,
}

impl Task for Restarts {
    type On = DataPath;

    /// Returns the next time to look for memory.
    fn due(data: &DataPath) -> Option<Nanos> {
        data.reads.restarts.next_poll
    }

    /// Restarts the reads that wait for memory as far as there is some, and fails those that have waited too
    /// long.
    fn run<M: Memory>(data: &mut DataPath, memory: &mut M) {
        for _ in 0..data.reads.restarts.waiting.len() {
            let Some(waiting) = data.reads.restarts.waiting.pop_front() else { break };
            let WaitingRead { piece: id, until, error } = waiting;
            if let Some(buffer) =
                data.reads.another_buffer(&data.base.core, &mut data.base.requests, id, memory)
            {
                let piece = &mut data.base.requests.pieces[id.0 as usize];
                piece.buffer = buffer;
                data.base.requests.make_ready(id);
            } else if until <= data.base.core.now {
                data.base.requests.pieces[id.0 as usize].error = Some(error);
                data.base.piece_ended(id);
            } else {
                data.reads.restarts.waiting.push_back(waiting);
            }
        }
        data.reads.restarts.next_poll =
            (!data.reads.restarts.waiting.is_empty()).then(|| data.base.core.now + MEMORY_POLL_INTERVAL);
    }
}

impl Reads {
    /// Returns a buffer for the piece that no abandoned command uses: its own, one of its request's others,
    /// or a new one.
    fn another_buffer<M: Memory>(
        &mut self,
        core: &Core,
        requests: &mut Requests,
        id: PieceId,
        memory: &mut M,
    ) -> Option<Buffer> {
        let piece = &requests.pieces[id.0 as usize];
        let request = &requests.active[piece.request.0].request;
        if !core.abandoned.uses(piece.buffer) {
            return Some(piece.buffer);
        }
        let start = core.map.extent().start(piece.key.index).0 / BLOCK + u64::from(piece.range.first);
        let offset = ((start - request.offset.0 / BLOCK) * BLOCK) as u32;
        let part = |buffer: Buffer| buffer.part(offset, piece.buffer.len);
        let others = self.restarts.requests.get(&piece.request.0);
        let last = others.and_then(|others| others.buffers.last()).map(|buffer| part(*buffer));
        let (part, new) = match last.filter(|last| !core.abandoned.uses(*last)) {
            Some(part) => (part, None),
            None => {
                let new = memory.take(Bytes(request.buffer?.len.into()))?;
                (part(new), Some(new))
            }
        };
        let others = self.restarts.requests.entry(piece.request.0).or_default();
        others.buffers.extend(new);
        others.parts.insert(offset, part);
        let request = piece.request.0;
        requests.active[request].answer = Answer::Gathered;
        Some(part)
    }
}

impl DataPath {
    /// Restarts a read piece that has no command in flight, with another buffer if necessary.
    pub(crate) fn restart_read<M: Memory>(&mut self, id: PieceId, error: RequestError, memory: &mut M) {
        let deadline = match error {
            RequestError::Io { device, .. } => self.base.core.devices[device.index()].settings.deadline,
            _ => Nanos(0),
        };
        self.base.requests.wait(id, WaitsFor::Memory);
        self.reads.restarts.waiting.push_back(WaitingRead {
            piece: id,
            until: self.base.core.now + deadline,
            error,
        });
        Restarts::run(self, memory);
    }

    /// Collects everything that a request has read in one buffer, and answers it.
    pub(crate) fn answer_gathered<M: Memory>(&mut self, id: ActiveId, memory: &mut M) {
        let Some(ExtraBuffers { mut buffers, parts }) = self.reads.restarts.requests.remove(&id.0) else {
            return;
        };
        let active = &mut self.base.requests.active[id.0];
        active.answer = Answer::Reply;
        let (own, last) = (active.request.buffer, buffers.pop());
        active.request.buffer = last;
        if let (Some(own), Some(last), None) = (own, last, active.error) {
            gather_parts(own, &parts, last, memory);
        }
        for buffer in own.into_iter().chain(buffers) {
            self.base.core.abandoned.release_when_idle(buffer, memory);
        }
        self.base.reply(id);
    }
}

/// Copies the parts of a buffer that are elsewhere, and the bytes between them, to another buffer.
fn gather_parts<M: Memory>(own: Buffer, parts: &BTreeMap<u32, Buffer>, to: Buffer, memory: &mut M) {
    let mut copy = |from: Buffer, at: u32| {
        let to = to.part(at, from.len);
        if from.len > 0 && from != to {
            memory.copy(from, to);
        }
    };
    let mut at = 0;
    for (offset, part) in parts {
        copy(own.part(at, offset - at), at);
        copy(*part, *offset);
        at = offset + part.len;
    }
    copy(own.part(at, own.len - at), at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::HeapMemory;

    #[test]
    fn parts_are_gathered_in_order() {
        let mut memory = HeapMemory::new(Bytes::mib(1));
        let [own, older, last] = [1, 2, 3].map(|byte| {
            let buffer = memory.take(Bytes(6 * BLOCK)).expect("memory");
            memory.bytes_mut(buffer).fill(byte);
            buffer
        });
        let block = BLOCK as u32;
        let parts = [(older, 1), (last, 2), (older, 4)];
        let parts = parts.map(|(of, at)| (at * block, of.part(at * block, block)));
        gather_parts(own, &parts.into(), last, &mut memory);
        let found: Vec<_> = memory.bytes(last).chunks(BLOCK as usize).map(|block| block[9]).collect();
        assert_eq!(found, [1, 2, 3, 1, 2, 1]);
    }
}
