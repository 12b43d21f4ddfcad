//! A program that reads a large file at random: a number of requests, and as many again after a pause.
//!
//! Requests of the second run are at other places than those of the first, as in a benchmark that is started
//! again with another seed.

use super::Transferred;
use super::file_system::{BlockRequest, FileId, FileSystem};
use super::process::{Program, ProgramStep};
use super::synthetic::LoadRng;
use std::collections::VecDeque;
use weir_model::{BLOCK, Bytes, Nanos};

/// How the program reads.
#[derive(Clone, Copy, Debug)]
pub struct RandomReadsConfig {
    /// Size of the file.
    pub size: Bytes,
    /// Bytes of a request, whole blocks.
    pub request: Bytes,
    /// Requests of a run.
    pub requests: u64,
    /// Time at which the second run begins. It goes on until the load ends.
    pub second_run: Nanos,
    /// Processor time of a request.
    pub cpu_time: Nanos,
}

/// The program; see the module documentation.
#[derive(Debug)]
pub struct RandomReads {
    config: RandomReadsConfig,
    file: FileId,
    done: u64,
    random: LoadRng,
}

impl RandomReads {
    /// Creates the program and its file, of which nothing is in memory.
    pub fn new(config: RandomReadsConfig, files: &mut FileSystem, seed: u64) -> Self {
        Self { file: files.create_on_disk(config.size), config, done: 0, random: LoadRng::new(seed) }
    }
}

impl Program for RandomReads {
    fn step(&mut self, files: &mut FileSystem, requests: &mut VecDeque<BlockRequest>) -> ProgramStep {
        let RandomReadsConfig { size, request, second_run, cpu_time, .. } = self.config;
        if self.done == self.config.requests && files.now() < second_run {
            // Nothing that the first run read stays in memory.
            files.drop_clean_blocks();
            return ProgramStep { cpu_time: second_run - files.now(), ..ProgramStep::default() };
        }
        self.done += 1;
        let places = (size.0 / request.0.max(BLOCK)).max(1);
        let at = self.random.below(places) * request.0;
        files.read(self.file, at..at + request.0, requests);
        let transferred = Transferred { read: request, written: Bytes(0) };
        ProgramStep { cpu_time, work: 1, transferred }
    }
}

#[cfg(test)]
mod tests {
    use super::super::file_system::FileSystemConfig;
    use super::*;
    use weir_model::Op;

    #[test]
    fn reads_need_indirect_blocks_and_stop_between_the_runs() {
        let shape = FileSystemConfig {
            size: Bytes::gib(1),
            indirect: true,
            ..FileSystemConfig::for_tests(Bytes::mib(1))
        };
        let mut files = FileSystem::new(shape);
        let config = RandomReadsConfig {
            size: Bytes::mib(512),
            request: Bytes::kib(16),
            requests: 100,
            second_run: Nanos::secs(60),
            cpu_time: Nanos::micros(10),
        };
        let mut program = RandomReads::new(config, &mut files, 1);
        let mut asked = VecDeque::new();
        for _ in 0..100 {
            assert_eq!(program.step(&mut files, &mut asked).work, 1);
        }
        assert!(asked.iter().all(|ask| ask.op == Op::Read), "nothing changes");
        let data: u64 = asked.iter().filter(|ask| !ask.metadata).map(|ask| ask.count).sum();
        assert!((390..=400).contains(&data), "{data} of 400 blocks: a few were in memory");
        let metadata = asked.iter().filter(|ask| ask.metadata).count();
        assert!((50..=100).contains(&metadata), "{metadata} indirect blocks");
        let pause = program.step(&mut files, &mut asked);
        assert_eq!((pause.work, pause.cpu_time), (0, Nanos::secs(60)));
        files.set_time(Nanos::secs(60));
        assert_eq!(program.step(&mut files, &mut asked).work, 1, "the second run");
    }
}
