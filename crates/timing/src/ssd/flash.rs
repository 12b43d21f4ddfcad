//! The dies of an SSD: what reads get of them, and what programming and erasing take.
//!
//! A page is on the die its address says, rows of pages being turned against one another so that no
//! stride meets one die only. What is written goes to the dies in turn, as a log does. Reads go before
//! programs that have not begun; one that has is suspended, or waited for where the drive cannot.

use weir_model::{Bytes, Nanos};

/// What a die does of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Reading a page.
    pub(super) read: Nanos,
    /// Programming one: with the others as fast as the drive writes in the long run.
    pub(super) program: Nanos,
    /// Erasing a block.
    pub(super) erase: Nanos,
    /// Pages of a block; at least 1.
    pub(super) block: u32,
    /// Until a program or erase is suspended for a read; `None` if it has to end.
    pub(super) suspend: Option<Nanos>,
}

#[derive(Debug)]
pub(super) struct Flash {
    work: Work,
    dies: Vec<Die>,
    page: Bytes,
    /// The die that programs next.
    next: usize,
    /// Bytes to be programmed that do not fill a page yet.
    rest: Bytes,
}

#[derive(Clone, Copy, Debug, Default)]
struct Die {
    /// When it has answered its reads.
    reads: Nanos,
    /// When its own work is done.
    until: Nanos,
    /// How long the last piece of it takes, which stands for all.
    piece: Nanos,
    /// The last erase.
    erase: (Nanos, Nanos),
    /// Pages programmed since.
    programmed: u32,
}

impl Flash {
    pub(super) fn new(dies: u32, page: Bytes, work: Work) -> Self {
        let dies = vec![Die::default(); dies.max(1) as usize];
        Self { work, dies, page: Bytes(page.0.max(1)), next: 0, rest: Bytes(0) }
    }

    /// Dies.
    pub(super) fn dies(&self) -> u64 {
        self.dies.len() as u64
    }

    /// Reads a page, the command being there at `now`: when it is read, and what of the time the die's own
    /// work lost.
    pub(super) fn read(&mut self, now: Nanos, page: u64) -> (Nanos, Nanos) {
        let count = self.dies();
        let (row, column) = (page / count, page % count);
        // The golden ratio's multiples lie far apart.
        let turned = column + (row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % count;
        self.dies[(turned % count) as usize].read(now, &self.work)
    }

    /// So much is to be programmed from `now` on, and besides work for all dies that takes so long, which one
    /// of them does.
    pub(super) fn program(&mut self, now: Nanos, len: Bytes, besides: Nanos) {
        self.rest += len;
        let mut besides = Nanos(besides.0 * self.dies());
        while self.rest >= self.page || besides > Nanos(0) {
            let whole = self.rest >= self.page;
            let piece = if whole { self.work.program } else { Nanos(0) } + besides;
            if whole {
                self.rest = self.rest - self.page;
            }
            besides = Nanos(0);
            let die = &mut self.dies[self.next];
            die.work(now, piece);
            if whole {
                die.programmed += 1;
                if die.programmed >= self.work.block {
                    die.programmed = 0;
                    die.erase(now, self.work.erase);
                }
            }
            self.next = (self.next + 1) % self.dies.len();
        }
    }
}

impl Die {
    fn read(&mut self, now: Nanos, work: &Work) -> (Nanos, Nanos) {
        let begin = self.reads.max(now);
        let waits = if self.until > begin { self.wait(begin, work.suspend) } else { Nanos(0) };
        self.reads = begin + waits + work.read;
        if self.until <= begin {
            return (self.reads, Nanos(0));
        }
        // Waiting for a piece to end is no loss to it.
        let lost = work.read + work.suspend.unwrap_or_default();
        self.until += lost;
        (self.reads, lost)
    }

    /// How long a read waits for the die's own work.
    fn wait(&self, now: Nanos, suspend: Option<Nanos>) -> Nanos {
        let (from, until) = self.erase;
        let left = if (from..until).contains(&now) {
            until - now
        } else {
            Nanos((self.until - now).0 % self.piece.0.max(1))
        };
        suspend.map_or(left, |suspend| suspend.min(left))
    }

    fn work(&mut self, now: Nanos, piece: Nanos) {
        self.until = self.until.max(now).max(self.reads) + piece;
        self.piece = piece;
    }

    fn erase(&mut self, now: Nanos, takes: Nanos) {
        let from = self.until.max(now);
        self.until = from + takes;
        self.erase = (from, self.until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Nanos = Nanos::micros(50);
    const PROGRAM: Nanos = Nanos::micros(400);
    const ERASE: Nanos = Nanos::millis(2);

    fn flash(dies: u32, suspend: Option<Nanos>) -> Flash {
        let work = Work { read: READ, program: PROGRAM, erase: ERASE, block: 4, suspend };
        Flash::new(dies, Bytes::kib(4), work)
    }

    #[test]
    fn reads_of_one_die_wait_for_one_another_and_rows_and_strides_meet_all_dies() {
        let mut flash = flash(8, None);
        assert_eq!([0, 0, 0].map(|page| flash.read(Nanos(0), page).0), [1, 2, 3].map(|n| Nanos(n * READ.0)));
        let later = Nanos::secs(1);
        assert!((800..808).all(|page| flash.read(later, page).0 == later + READ), "a row has a page on each");
        let later = Nanos::secs(2);
        let last = (0..64).map(|n| flash.read(later, n * 8).0).max().unwrap_or_default();
        assert!(last < later + Nanos(20 * READ.0), "64 reads in steps of the dies' count end at {last}");
    }

    #[test]
    fn a_read_waits_for_the_program_under_way_or_its_suspension_but_not_for_those_behind_it() {
        for (suspend, wait) in [(None, Nanos::micros(300)), (Some(Nanos::micros(30)), Nanos::micros(30))] {
            let mut flash = flash(1, suspend);
            flash.program(Nanos(0), Bytes::kib(12), Nanos(0));
            let (end, lost) = flash.read(Nanos::micros(500), 0);
            assert_eq!(end, Nanos::micros(500) + wait + READ);
            assert_eq!(lost, READ + suspend.unwrap_or_default());
            assert_eq!(flash.dies[0].until, Nanos(3 * PROGRAM.0) + lost);
        }
    }

    #[test]
    fn full_blocks_are_followed_by_an_erase_and_pages_fill_up_before_they_are_programmed() {
        let mut flash = flash(2, None);
        (0..15).for_each(|_| flash.program(Nanos(0), Bytes::kib(2), Nanos(0)));
        assert_eq!(
            [0, 1].map(|die: usize| flash.dies[die].until),
            [4, 3].map(|n| Nanos(n * PROGRAM.0) + if n == 4 { ERASE } else { Nanos(0) })
        );
        // In the middle of the erase.
        let now = Nanos(4 * PROGRAM.0) + Nanos::millis(1);
        assert_eq!(flash.dies[0].wait(now, None), Nanos::millis(1));
    }

    #[test]
    fn what_a_random_write_costs_besides_is_one_dies_work() {
        let mut flash = flash(2, None);
        flash.program(Nanos(0), Bytes(512), Nanos::millis(3));
        assert_eq!([0, 1].map(|die: usize| flash.dies[die].until), [Nanos::millis(6), Nanos(0)]);
    }
}
