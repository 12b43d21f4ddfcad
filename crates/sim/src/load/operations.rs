//! Operations of programs that arrive at a given rate, as at a file server: an open loop of operations over
//! files in memory and on disk.
//!
//! A program's step is an operation. Operations arrive by a ramp, whether or not earlier ones are done, and
//! wait for one of the server's threads, first come, first served. A thread takes the processor time of the
//! operation, and waits for each of its reads and syncs. The first clients of the closed loop are the
//! threads; the others write back.

use super::file_system::{BlockRequest, FileSystem};
use super::process::{Program, WRITE_BACK_INTERVAL, arrival, volume_data};
use super::ramp::{Ramp, RampArrivals, RampRecorder, RampStep};
use super::{Client, ClientAction};
use crate::{Arrival, Load, VolumeData};
use std::collections::VecDeque;
use weir_model::{ExtentSize, Nanos};

/// An operation that a thread executes.
#[derive(Debug)]
struct Operation {
    arrived: Nanos,
    pending: VecDeque<BlockRequest>,
}

/// The load; see the module documentation.
pub struct Operations {
    files: FileSystem,
    programs: Vec<Box<dyn Program>>,
    /// The program of the next operation.
    turn: usize,
    /// The operation of each thread.
    threads: Vec<Option<Operation>>,
    arrivals: RampArrivals,
    recorder: RampRecorder,
    duration: Nanos,
    done: u64,
}

impl Operations {
    /// Creates the load of these programs, at least one, on these files; each operation is of the next
    /// program in turn.
    pub fn new(
        files: FileSystem,
        programs: Vec<Box<dyn Program>>,
        threads: usize,
        ramp: Ramp,
        seed: u64,
    ) -> Self {
        Self {
            files,
            programs,
            turn: 0,
            threads: (0..threads).map(|_| None).collect(),
            duration: ramp.duration(),
            recorder: RampRecorder::new(ramp.clone()),
            arrivals: RampArrivals::new(ramp, seed),
            done: 0,
        }
    }

    /// Lets a thread continue at `now`.
    fn run(&mut self, thread: usize, now: Nanos) -> ClientAction {
        if let Some(operation) = &mut self.threads[thread] {
            if let Some(request) = operation.pending.pop_front() {
                return ClientAction::Send(arrival(now, request));
            }
            self.recorder.note(operation.arrived, now);
            self.done += 1;
            self.threads[thread] = None;
        }
        let arrived = self.arrivals.next();
        if arrived > now {
            return ClientAction::Wait(arrived);
        }
        self.arrivals.advance();
        let mut pending = VecDeque::new();
        self.files.set_time(now);
        let count = self.programs.len();
        let step = self.programs[self.turn % count].step(&mut self.files, &mut pending);
        self.turn = (self.turn + 1) % count;
        let ready = now + step.cpu_time.max(Nanos(1));
        let first = pending.pop_front();
        self.threads[thread] = Some(Operation { arrived, pending });
        first.map_or(ClientAction::Wait(ready), |request| ClientAction::Send(arrival(ready, request)))
    }
}

impl Load for Operations {
    fn volumes(&self, extent: ExtentSize) -> Vec<VolumeData> {
        volume_data(&self.files, extent)
    }

    fn duration(&self) -> Nanos {
        self.duration
    }

    fn next_arrival(&mut self, now: Nanos) -> Arrival {
        let mut at = now;
        loop {
            match self.next_action(Client(0), at) {
                ClientAction::Send(arrival) => return arrival,
                ClientAction::Wait(until) => at = until,
            }
        }
    }

    fn next_action(&mut self, client: Client, now: Nanos) -> ClientAction {
        if client.0 < self.threads.len() {
            return self.run(client.0, now);
        }
        self.files.set_time(now);
        match self.files.write_back() {
            Some(request) => ClientAction::Send(arrival(now, request)),
            None => ClientAction::Wait(now + WRITE_BACK_INTERVAL),
        }
    }

    fn work_done(&self) -> Option<u64> {
        Some(self.done)
    }

    fn ramp_steps(&self) -> Vec<RampStep> {
        self.recorder.steps()
    }
}

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operations").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Transferred;
    use super::super::file_system::FileSystemConfig;
    use super::super::process::ProgramStep;
    use super::*;
    use weir_model::{Bytes, Op};

    /// Each operation reads two blocks, one after the other.
    struct TwoReads(u64);

    impl Program for TwoReads {
        fn step(&mut self, _: &mut FileSystem, requests: &mut VecDeque<BlockRequest>) -> ProgramStep {
            self.0 += 2;
            let read = |first| BlockRequest { op: Op::Read, first, count: 1, metadata: false };
            requests.extend([read(self.0 % 100), read(self.0 % 100 + 1)]);
            ProgramStep { cpu_time: Nanos::millis(1), work: 1, transferred: Transferred::default() }
        }
    }

    fn load(rates: [f64; 2], threads: usize) -> Operations {
        let files = FileSystem::new(FileSystemConfig::for_tests(Bytes::mib(2)));
        let ramp = Ramp::new(rates, Nanos::secs(200)).expect("a ramp");
        Operations::new(files, vec![Box::new(TwoReads(0))], threads, ramp, 1)
    }

    /// Serves the load by a device that answers each request in 4 ms, whatever else it does.
    fn serve(load: &mut Operations, threads: usize) -> Vec<RampStep> {
        let mut due = vec![Nanos(0); threads];
        loop {
            let next = (0..threads).min_by_key(|thread| due[*thread]).unwrap_or(0);
            if due[next] > Nanos::secs(200) {
                return load.ramp_steps();
            }
            due[next] = match load.next_action(Client(next), due[next]) {
                ClientAction::Send(request) => request.at + Nanos::millis(4),
                ClientAction::Wait(until) => until,
            };
        }
    }

    /// An operation takes 9 ms of a thread.
    #[test]
    fn operations_arrive_at_the_offered_rate_and_wait_for_a_thread() {
        let steps = serve(&mut load([20.0, 200.0], 16), 16);
        for step in &steps {
            assert!((step.delivered / step.offered - 1.0).abs() < 0.1, "{step:?}");
            assert!((8_900_000..9_300_000).contains(&step.responses.mean.0), "{step:?}");
        }
        let steps = serve(&mut load([20.0, 200.0], 1), 1);
        assert!((1..20).contains(&(steps[0].responses.mean.0 / 1_000_000)), "{steps:?}");
        assert!((steps[1].delivered - 111.0).abs() < 1.0, "one thread saturates at 1 / 9 ms: {steps:?}");
        assert!(steps[1].responses.mean > Nanos::secs(10), "the rest waits");
    }
}
