//! A load of programs that use files: their memory absorbs a part of their I/O, and the rest reaches the
//! disk.
//!
//! In a closed loop the first clients are the programs' processes, each with its own processor time, waiting
//! for its reads and syncs; the other clients write back. In an open loop the processes take turns and run as
//! fast as they can.

use super::block_costs::BlockCosts;
use super::file_system::{BlockRequest, FileSystem};
use super::{Client, ClientAction, Transferred};
use crate::{Arrival, Load, VolumeData};
use std::collections::VecDeque;
use std::ops::Range;
use weir_model::{BLOCK, Bytes, ExtentSize, Hint, Nanos, VolumeOffset};

/// A program: an endless sequence of steps.
pub trait Program {
    /// Executes the next step; appends to `asked` the I/O that must complete before the step does.
    fn step(&mut self, files: &mut FileSystem, requests: &mut VecDeque<BlockRequest>) -> ProgramStep;
}

/// An executed step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramStep {
    /// Processor time.
    pub cpu_time: Nanos,
    /// Work done, in the program's own unit.
    pub work: u64,
    /// Bytes that the program read and wrote.
    pub transferred: Transferred,
}

/// Interval at which the write-back clients check for work.
pub(super) const WRITE_BACK_INTERVAL: Nanos = Nanos::millis(100);
/// Processor time of a process between two looks at the clock.
const TIME_SLICE: Nanos = Nanos::micros(200);

/// A running program.
struct Process {
    program: Box<dyn Program>,
    start: Nanos,
    pending: VecDeque<BlockRequest>,
}

/// The load; see the module documentation.
pub struct Processes {
    files: FileSystem,
    processes: Vec<Process>,
    /// When each shared processor becomes free; empty if each process has its own.
    processors: Vec<Nanos>,
    /// Time in which no process runs.
    pause: Range<Nanos>,
    work_done: u64,
    transferred: Transferred,
    block_costs: Option<BlockCosts>,
}

impl Processes {
    /// Creates the load of these programs, at least one, on these files.
    pub fn new(files: FileSystem, programs: Vec<Box<dyn Program>>) -> Self {
        let process = |program| Process { program, start: Nanos(0), pending: VecDeque::new() };
        Self {
            files,
            processes: programs.into_iter().map(process).collect(),
            processors: Vec::new(),
            pause: Nanos(0)..Nanos(0),
            work_done: 0,
            transferred: Transferred::default(),
            block_costs: None,
        }
    }

    /// Makes the load count what its blocks cost in a closed loop.
    #[must_use]
    pub fn with_block_costs(mut self) -> Self {
        self.block_costs = Some(BlockCosts::default());
        self
    }

    /// Sets the start time of each process; processes without one start at once.
    #[must_use]
    pub fn with_start_times(mut self, times: &[Nanos]) -> Self {
        self.processes.iter_mut().zip(times).for_each(|(process, at)| process.start = *at);
        self
    }

    /// Makes the processes share this many processors, first come, first served; by default each has its own.
    #[must_use]
    pub fn with_processors(mut self, processors: usize) -> Self {
        self.processors = vec![Nanos(0); processors];
        self
    }

    /// Sets a time in which no process runs; earlier writes are still written back in it.
    #[must_use]
    pub fn with_pause(mut self, pause: Range<Nanos>) -> Self {
        self.pause = pause;
        self
    }

    fn run(&mut self, number: usize, now: Nanos) -> ClientAction {
        let process = &mut self.processes[number];
        if now < process.start {
            return ClientAction::Wait(process.start);
        }
        if let Some(ask) = process.pending.pop_front() {
            return ClientAction::Send(arrival(now, ask));
        }
        if self.pause.contains(&now) {
            return ClientAction::Wait(self.pause.end);
        }
        // The processor that becomes free first, or one of its own.
        let mut own = now;
        let processor = self.processors.iter_mut().min().unwrap_or(&mut own);
        let begin = now.max(*processor);
        let mut at = begin;
        while process.pending.is_empty() && at < begin + TIME_SLICE {
            self.files.set_time(at);
            let step = process.program.step(&mut self.files, &mut process.pending);
            self.work_done += step.work;
            self.transferred.read += step.transferred.read;
            self.transferred.written += step.transferred.written;
            at += step.cpu_time.max(Nanos(1));
        }
        *processor = at;
        process.pending.pop_front().map_or(ClientAction::Wait(at), |ask| ClientAction::Send(arrival(at, ask)))
    }

    fn write_back(&mut self, now: Nanos) -> ClientAction {
        self.files.set_time(now);
        match self.files.write_back() {
            Some(ask) => ClientAction::Send(arrival(now, ask)),
            None => ClientAction::Wait(now + WRITE_BACK_INTERVAL),
        }
    }
}

/// Returns the request of the volume for a request of the file system.
pub(super) fn arrival(at: Nanos, ask: BlockRequest) -> Arrival {
    let (offset, len) = (VolumeOffset(ask.first * BLOCK), Bytes(ask.count * BLOCK));
    let hint = if ask.metadata { Hint::Metadata } else { Hint::None };
    Arrival { at, volume: 0, op: ask.op, offset, len, hint }
}

/// Returns the volume of a file system and its data.
pub(super) fn volume_data(files: &FileSystem, extent: ExtentSize) -> Vec<VolumeData> {
    let size = Bytes(files.size().0.next_multiple_of(extent.bytes().0));
    vec![VolumeData { size, extents: files.extents(extent) }]
}

impl Load for Processes {
    fn volumes(&self, extent: ExtentSize) -> Vec<VolumeData> {
        volume_data(&self.files, extent)
    }

    fn duration(&self) -> Nanos {
        Nanos::secs(600)
    }

    fn next_arrival(&mut self, now: Nanos) -> Arrival {
        let mut at = now;
        loop {
            self.files.set_time(at);
            if let Some(ask) = self.files.write_back() {
                return arrival(at, ask);
            }
            match self.run(0, at) {
                ClientAction::Send(arrival) => return arrival,
                ClientAction::Wait(until) => at = until,
            }
        }
    }

    fn next_action(&mut self, client: Client, now: Nanos) -> ClientAction {
        let action = match client.0 < self.processes.len() {
            true => self.run(client.0, now),
            false => self.write_back(now),
        };
        if let Some(costs) = &mut self.block_costs {
            costs.note_action(client, now, &action);
        }
        action
    }

    fn work_done(&self) -> Option<u64> {
        Some(self.work_done)
    }

    fn transferred(&self) -> Option<Transferred> {
        Some(self.transferred)
    }

    fn block_costs(&self) -> Option<&BlockCosts> {
        self.block_costs.as_ref()
    }
}

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Processes").field("processes", &self.processes.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
