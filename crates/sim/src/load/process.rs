//! A load of programs that use files: their memory absorbs a part of their I/O, and the rest reaches the
//! disk.
//!
//! In a closed loop the first clients are the programs' processes, each with its own processor time, waiting
//! for its reads and syncs; the other clients write back. In an open loop the processes take turns and run as
//! fast as they can.

use super::files::{Ask, Files};
use super::{Client, Next};
use crate::{Arrival, Load, Space};
use std::collections::VecDeque;
use std::ops::Range;
use weir_model::{BLOCK, Bytes, ExtentSize, Nanos, VolumeOffset};

/// A program: an endless sequence of steps.
pub trait Program {
    /// Executes the next step; appends to `asked` the I/O that must complete before the step does.
    fn step(&mut self, files: &mut Files, asked: &mut VecDeque<Ask>) -> ProgramStep;
}

/// An executed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramStep {
    /// Processor time.
    pub takes: Nanos,
    /// Work done, in the program's own unit.
    pub work: u64,
}

/// Interval at which the write-back clients check for work.
const LOOK: Nanos = Nanos::millis(100);
/// Processor time of a process between two looks at the clock.
const SPELL: Nanos = Nanos::micros(200);

/// A running program.
struct Process {
    program: Box<dyn Program>,
    begins: Nanos,
    asked: VecDeque<Ask>,
}

/// The load; see the module documentation.
pub struct Processes {
    files: Files,
    processes: Vec<Process>,
    /// When each shared processor becomes free; empty if each process has its own.
    processors: Vec<Nanos>,
    /// Time in which no process runs.
    pause: Range<Nanos>,
    done: u64,
}

impl Processes {
    /// Creates the load of these programs, at least one, on these files.
    pub fn new(files: Files, programs: Vec<Box<dyn Program>>) -> Self {
        let process = |program| Process { program, begins: Nanos(0), asked: VecDeque::new() };
        Self {
            files,
            processes: programs.into_iter().map(process).collect(),
            processors: Vec::new(),
            pause: Nanos(0)..Nanos(0),
            done: 0,
        }
    }

    /// Sets the start time of each process; processes without one start at once.
    #[must_use]
    pub fn beginning(mut self, times: &[Nanos]) -> Self {
        self.processes.iter_mut().zip(times).for_each(|(process, at)| process.begins = *at);
        self
    }

    /// Makes the processes share this many processors, first come, first served; by default each has its own.
    #[must_use]
    pub fn sharing(mut self, processors: usize) -> Self {
        self.processors = vec![Nanos(0); processors];
        self
    }

    /// Sets a time in which no process runs; earlier writes are still written back in it.
    #[must_use]
    pub fn pausing(mut self, pause: Range<Nanos>) -> Self {
        self.pause = pause;
        self
    }

    fn run(&mut self, number: usize, now: Nanos) -> Next {
        let process = &mut self.processes[number];
        if now < process.begins {
            return Next::Wait(process.begins);
        }
        if let Some(ask) = process.asked.pop_front() {
            return Next::Ask(arrival(now, ask));
        }
        if self.pause.contains(&now) {
            return Next::Wait(self.pause.end);
        }
        // The processor that becomes free first, or one of its own.
        let mut own = now;
        let processor = self.processors.iter_mut().min().unwrap_or(&mut own);
        let begin = now.max(*processor);
        let mut at = begin;
        while process.asked.is_empty() && at < begin + SPELL {
            self.files.at(at);
            let step = process.program.step(&mut self.files, &mut process.asked);
            self.done += step.work;
            at += step.takes.max(Nanos(1));
        }
        *processor = at;
        process.asked.pop_front().map_or(Next::Wait(at), |ask| Next::Ask(arrival(at, ask)))
    }
}

fn arrival(at: Nanos, ask: Ask) -> Arrival {
    let (offset, len) = (VolumeOffset(ask.first * BLOCK), Bytes(ask.count * BLOCK));
    Arrival { at, volume: 0, op: ask.op, offset, len }
}

impl Load for Processes {
    fn spaces(&self, extent: ExtentSize) -> Vec<Space> {
        let size = Bytes(self.files.size().0.next_multiple_of(extent.bytes().0));
        vec![Space { size, extents: self.files.extents(extent) }]
    }

    fn lasts(&self) -> Nanos {
        Nanos::secs(600)
    }

    fn next(&mut self, now: Nanos) -> Arrival {
        let mut at = now;
        loop {
            self.files.at(at);
            if let Some(ask) = self.files.write_back() {
                return arrival(at, ask);
            }
            match self.run(0, at) {
                Next::Ask(arrival) => return arrival,
                Next::Wait(until) => at = until,
            }
        }
    }

    fn next_of(&mut self, client: Client, now: Nanos) -> Next {
        if client.0 < self.processes.len() {
            return self.run(client.0, now);
        }
        self.files.at(now);
        match self.files.write_back() {
            Some(ask) => Next::Ask(arrival(now, ask)),
            None => Next::Wait(now + LOOK),
        }
    }

    fn done(&self) -> Option<u64> {
        Some(self.done)
    }
}

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Processes").field("processes", &self.processes.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
