//! Three loads after filebench's: many clients repeat a list of operations on a set of files, for 120 s.

use super::words::Words;
use super::{FileLoad, FileOp, FileStep};
use crate::load::synthetic::LoadRng;
use rand_distr::{Distribution as _, Gamma};
use std::collections::VecDeque;
use weir_model::{Bytes, Nanos};
use weir_policy::eviction::items::FileKey;

/// The shape of filebench's gamma distribution of file sizes.
const SHAPE: f64 = 1.5;
/// The time that the publication of `TridentFS` runs each of them.
const DURATION: Nanos = Nanos::secs(120);

/// An operation of the list.
#[derive(Clone, Copy, Debug)]
enum Action {
    Create,
    Append,
    Read,
    Stat,
    Remove,
}

/// The load. Sizes of files are gamma distributed, but not below or above the limits.
#[derive(Debug)]
pub(super) struct Filebench {
    actions: &'static [Action],
    clients: usize,
    sizes: Gamma<f64>,
    limits: (f64, f64),
    append: Bytes,
    random: LoadRng,
    files: Vec<FileKey>,
    created: u64,
    at_first: u64,
    /// The steps that each client has left of its list.
    pending: Vec<VecDeque<Action>>,
}

impl Filebench {
    pub(super) fn parse(words: &mut Words<'_>, seed: u64) -> Result<Self, String> {
        use Action::{Append, Create, Read, Remove, Stat};
        const KB: u64 = 1000;
        type Defaults = (&'static [Action], u64, Bytes, (u64, u64), u64);
        let (actions, files, mean, limits, clients): Defaults = match words.name() {
            "create-files" => (&[Create], 0, Bytes(1200 * KB), (73 * KB, 3600 * KB), 16),
            "fileserver" => {
                (&[Create, Append, Read, Remove, Stat], 10_000, Bytes::kib(128), (1, u64::MAX), 50)
            }
            _ => {
                (&[Remove, Create, Read, Read, Read, Read, Read], 60_000, Bytes::kib(16), (1, u64::MAX), 100)
            }
        };
        let at_first = if files > 0 { words.count("files", files)? } else { 0 };
        let mean = words.size("mean", mean)?;
        let append = if actions.len() == 5 { words.size("append", Bytes::kib(16))? } else { Bytes(0) };
        let clients = words.unscaled("clients", clients)?.min(10_000) as usize;
        let sizes = Gamma::new(SHAPE, mean.0 as f64 / SHAPE).map_err(|error| error.to_string())?;
        Ok(Self {
            actions,
            clients,
            sizes,
            limits: (limits.0 as f64, limits.1 as f64),
            append,
            random: LoadRng::new(seed),
            files: Vec::new(),
            created: 0,
            at_first,
            pending: vec![VecDeque::new(); clients],
        })
    }

    fn create(&mut self) -> FileOp {
        let file = FileKey(self.created);
        self.created += 1;
        self.files.push(file);
        let size = self.sizes.sample(&mut self.random).clamp(self.limits.0, self.limits.1);
        FileOp::Create(file, Bytes(size as u64))
    }

    fn operation(&mut self, action: Action) -> FileOp {
        if self.files.is_empty() {
            return self.create();
        }
        let at = self.random.below(self.files.len() as u64) as usize;
        match action {
            Action::Create => self.create(),
            Action::Append => FileOp::Append(self.files[at], self.append),
            Action::Read => FileOp::Read(self.files[at]),
            Action::Stat => FileOp::Stat(self.files[at]),
            Action::Remove => FileOp::Remove(self.files.swap_remove(at)),
        }
    }
}

impl FileLoad for Filebench {
    fn clients(&self) -> usize {
        self.clients
    }

    fn next_step(&mut self, client: usize) -> Option<FileStep> {
        if self.at_first > 0 {
            self.at_first -= 1;
            return Some(FileStep { op: self.create(), cpu: Nanos(0), work: 0 });
        }
        if self.pending[client].is_empty() {
            self.pending[client].extend(self.actions);
        }
        let action = self.pending[client].pop_front()?;
        Some(FileStep { op: self.operation(action), cpu: Nanos(0), work: 1 })
    }

    fn is_warm(&self) -> bool {
        self.at_first == 0
    }

    fn duration(&self) -> Option<Nanos> {
        Some(DURATION)
    }

    fn work_unit(&self) -> &'static str {
        "operations"
    }
}
