//! The papers' loads: what is known of them, in the words of [`weir_sim`].

use super::lab::MakeLoad;
use crate::pool_file;
use weir_model::{Bytes, Nanos};
use weir_sim::dbench::{Dbench, Recording};
use weir_sim::files::{Files, Shape};
use weir_sim::load::made_up;
use weir_sim::mix::{Mix, Mixed, Weights};
use weir_sim::process::{Processes, Program};

/// Those who write back, besides the processes: as many commands as Linux has waiting at once.
pub(super) const WRITERS: usize = 32;

/// A file system of those days: ext2 unless it has a journal, changes written back after 30 s, or when they
/// take a tenth of memory; who writes waits when they take four tenths.
pub(super) fn shape(size: Bytes, memory: Bytes) -> Shape {
    Shape { size, memory, dirty: 0.4, background: 0.1, age: Nanos::secs(30), journal: Bytes(0) }
}

/// Words, as `weir sim place` takes them.
pub(super) fn words(words: String) -> MakeLoad {
    Box::new(move |seed| made_up(&words, seed, pool_file::size, pool_file::duration))
}

/// So many processes of a mix, each with files of its own, on one file system; each begins at its time.
pub(super) fn mixed(shape: Shape, mix: Mix, begin: Vec<Nanos>) -> MakeLoad {
    Box::new(move |seed| {
        let mut files = Files::new(shape);
        let program =
            |number| Box::new(Mixed::new(mix.clone(), &mut files, seed + number)) as Box<dyn Program>;
        let programs = (0..begin.len() as u64).map(program).collect();
        files.settle();
        Ok(Box::new(Processes::new(files, programs).beginning(&begin)))
    })
}

/// So many of dbench's clients.
pub(super) fn dbench(shape: Shape, recording: Recording, takes: Nanos, clients: usize) -> MakeLoad {
    Box::new(move |_| {
        let program = || Box::new(Dbench::new(recording.clone(), takes)) as Box<dyn Program>;
        let programs = (0..clients).map(|_| program()).collect();
        Ok(Box::new(Processes::new(Files::new(shape), programs)))
    })
}

/// Postmark: transactions read a file or append to it, and make a file or remove one; a step is half a
/// transaction.
pub(super) fn postmark(files: u64, directories: u64, largest: u64, sync: bool) -> Mix {
    Mix {
        weights: Weights { read: 1, append: 1, make: 1, remove: 1, ..Weights::default() },
        files,
        directories,
        sizes: 500..=largest,
        mostly_small: false,
        theta: 0.0,
        read: None,
        write: 500..=largest.min(10_000),
        sync,
        takes: Nanos::micros(100),
    }
}
