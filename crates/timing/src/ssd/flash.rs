//! The dies of an SSD: the times of reads, and the times that programs and erases occupy them.
//!
//! A page's address determines its die; rows of pages are rotated against one another so that no stride hits
//! a single die. Writes go to the dies in turn, as in a log. Reads go before programs that have not begun; a
//! program in progress is suspended, or waited for if the drive cannot suspend it.

use weir_model::{Bytes, Nanos};

/// Times of a die's own operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Time to read a page.
    pub(super) read: Nanos,
    /// Time to program a page: all dies together program as fast as the drive writes sustainedly.
    pub(super) program: Nanos,
    /// Time to erase a block.
    pub(super) erase: Nanos,
    /// Pages per block; at least 1.
    pub(super) block: u32,
    /// Time until a program or erase is suspended for a read; `None` if it must complete first.
    pub(super) suspend: Option<Nanos>,
}

#[derive(Debug)]
pub(super) struct Flash {
    work: Work,
    dies: Vec<Die>,
    page: Bytes,
    /// The die that programs next.
    next: usize,
    /// Bytes to program that do not fill a page yet.
    rest: Bytes,
}

#[derive(Clone, Copy, Debug, Default)]
struct Die {
    /// When it has completed its reads.
    reads: Nanos,
    /// When its own work is done.
    busy_until: Nanos,
    /// Duration of the last unit of its work, which represents all.
    unit: Nanos,
    /// Start and end of the last erase.
    erase: (Nanos, Nanos),
    /// Pages programmed since then.
    programmed: u32,
}

impl Flash {
    pub(super) fn new(dies: u32, page: Bytes, work: Work) -> Self {
        let dies = vec![Die::default(); dies.max(1) as usize];
        Self { work, dies, page: Bytes(page.0.max(1)), next: 0, rest: Bytes(0) }
    }

    /// Returns the number of dies.
    pub(super) fn dies(&self) -> u64 {
        self.dies.len() as u64
    }

    /// Reads a page with a command that arrives at `now`; returns when it is read, and the time that the
    /// die's own work lost.
    pub(super) fn read(&mut self, now: Nanos, page: u64) -> (Nanos, Nanos) {
        let count = self.dies();
        let (row, column) = (page / count, page % count);
        // Multiples of the golden ratio are well distributed.
        let turned = column + (row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % count;
        self.dies[(turned % count) as usize].read(now, &self.work)
    }

    /// Programs `len` bytes from `now` on; `besides` is the duration of additional work for all dies, which
    /// one of them does.
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
        let waits = if self.busy_until > begin { self.wait(begin, work.suspend) } else { Nanos(0) };
        self.reads = begin + waits + work.read;
        if self.busy_until <= begin {
            return (self.reads, Nanos(0));
        }
        // Waiting for a unit to end costs the die's own work no time.
        let lost = work.read + work.suspend.unwrap_or_default();
        self.busy_until += lost;
        (self.reads, lost)
    }

    /// Returns how long a read waits for the die's own work.
    fn wait(&self, now: Nanos, suspend: Option<Nanos>) -> Nanos {
        let (from, until) = self.erase;
        let left = if (from..until).contains(&now) {
            until - now
        } else {
            Nanos((self.busy_until - now).0 % self.unit.0.max(1))
        };
        suspend.map_or(left, |suspend| suspend.min(left))
    }

    fn work(&mut self, now: Nanos, piece: Nanos) {
        self.busy_until = self.busy_until.max(now).max(self.reads) + piece;
        self.unit = piece;
    }

    fn erase(&mut self, now: Nanos, takes: Nanos) {
        let from = self.busy_until.max(now);
        self.busy_until = from + takes;
        self.erase = (from, self.busy_until);
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
    fn reads_of_one_die_are_serial() {
        let mut flash = flash(8, None);
        assert_eq!([0, 0, 0].map(|page| flash.read(Nanos(0), page).0), [1, 2, 3].map(|n| Nanos(n * READ.0)));
        let later = Nanos::secs(1);
        assert!((800..808).all(|page| flash.read(later, page).0 == later + READ), "a row has a page on each");
        let later = Nanos::secs(2);
        let last = (0..64).map(|n| flash.read(later, n * 8).0).max().unwrap_or_default();
        assert!(last < later + Nanos(20 * READ.0), "64 reads in steps of the dies' count end at {last}");
    }

    #[test]
    fn read_waits_for_current_program_only() {
        for (suspend, wait) in [(None, Nanos::micros(300)), (Some(Nanos::micros(30)), Nanos::micros(30))] {
            let mut flash = flash(1, suspend);
            flash.program(Nanos(0), Bytes::kib(12), Nanos(0));
            let (end, lost) = flash.read(Nanos::micros(500), 0);
            assert_eq!(end, Nanos::micros(500) + wait + READ);
            assert_eq!(lost, READ + suspend.unwrap_or_default());
            assert_eq!(flash.dies[0].busy_until, Nanos(3 * PROGRAM.0) + lost);
        }
    }

    #[test]
    fn full_pages_are_programmed_and_full_blocks_erased() {
        let mut flash = flash(2, None);
        (0..15).for_each(|_| flash.program(Nanos(0), Bytes::kib(2), Nanos(0)));
        assert_eq!(
            [0, 1].map(|die: usize| flash.dies[die].busy_until),
            [4, 3].map(|n| Nanos(n * PROGRAM.0) + if n == 4 { ERASE } else { Nanos(0) })
        );
        // In the middle of the erase.
        let now = Nanos(4 * PROGRAM.0) + Nanos::millis(1);
        assert_eq!(flash.dies[0].wait(now, None), Nanos::millis(1));
    }

    #[test]
    fn extra_cost_of_random_write_occupies_one_die() {
        let mut flash = flash(2, None);
        flash.program(Nanos(0), Bytes(512), Nanos::millis(3));
        assert_eq!([0, 1].map(|die: usize| flash.dies[die].busy_until), [Nanos::millis(6), Nanos(0)]);
    }
}
