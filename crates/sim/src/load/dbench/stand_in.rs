//! A load like dbench's, made by rule.
//!
//! A set of files stays, is read and partly overwritten. Beside it, small files are created, written,
//! sometimes synced, read, and removed a little later.

use super::{Handle, Line, Name, Recording};
use std::ops::Range;

/// Mean bytes of a write and of a read, as published.
const WRITE: u64 = 25_720;
const READ: u64 = 11_853;
/// Files that stay, and writes that create one of them: 23 MB in all, as the load file has at most.
const STAYING: u32 = 60;
const STAYING_WRITES: u64 = 15;
/// Files that are removed again, as the load file removes.
const PASSING: u32 = 16_000;
/// Number of these that exist at a time.
const AT_A_TIME: u32 = 24;
/// Operations without I/O, such as look-ups, for each of these files.
const OTHERS: u32 = 9;

const ROOT: Name = 0;
const FOLDER: Name = 1;
const FIRST_STAYING: Name = 2;
const FIRST_PASSING: Name = FIRST_STAYING + STAYING;
const HANDLE: Handle = 1;

pub(super) fn recording() -> Recording {
    let mut lines = vec![Line::RemoveTree];
    for number in 0..STAYING {
        with_open(&mut lines, FIRST_STAYING + number, (0..STAYING_WRITES).map(|nth| write(nth * WRITE)));
    }
    for number in 0..PASSING {
        passing(&mut lines, number);
    }
    lines.push(Line::RemoveTree);
    let names = FIRST_PASSING + 2 * PASSING;
    let parent = |name| if name <= FOLDER { ROOT } else { FOLDER };
    Recording { lines: lines.into(), parents: (0..names).map(parent).collect() }
}

/// Appends the operations around the creation of a file that passes.
fn passing(lines: &mut Vec<Line>, number: u32) {
    let name = FIRST_PASSING + number;
    let synced = number.is_multiple_of(3).then_some(Line::Sync(HANDLE));
    with_open(lines, name, [write(0), write(WRITE)].into_iter().chain(synced));
    lines.extend((0..OTHERS).map(|_| Line::Other));
    let touched = (number % 5 < 2).then_some(Line::Touch(HANDLE));
    with_open(lines, name, (0..3).map(|nth| read(nth * READ)).chain(touched));
    // The next part of a file that stays.
    let staying = number % STAYING;
    let at = u64::from(number / STAYING) * 5 * READ % ((STAYING_WRITES - 4) * WRITE);
    let written = (number % 5 < 2).then(|| write(at));
    with_open(lines, FIRST_STAYING + staying, (0..5).map(|nth| read(at + nth * READ)).chain(written));
    // A file's second name has a number of its own.
    let renamed = |number: u32| number.is_multiple_of(5);
    if renamed(number) {
        lines.push(Line::Rename(name, name + PASSING));
    }
    if let Some(old) = number.checked_sub(AT_A_TIME) {
        lines.push(Line::Unlink(FIRST_PASSING + old + if renamed(old) { PASSING } else { 0 }));
    }
}

fn with_open(lines: &mut Vec<Line>, name: Name, operations: impl Iterator<Item = Line>) {
    lines.push(Line::Open { name, handle: HANDLE, directory: false });
    lines.extend(operations);
    lines.push(Line::Close(HANDLE));
}

fn range(at: u64, len: u64) -> Range<u64> {
    at..at + len
}

fn write(at: u64) -> Line {
    Line::Write(HANDLE, range(at, WRITE))
}

fn read(at: u64) -> Line {
    Line::Read(HANDLE, range(at, READ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Within a tenth of the published counts, of which there are 43 repetitions.
    #[test]
    fn counts_are_about_those_of_the_load_file() {
        let lines = recording().lines;
        let count = |is_it: fn(&Line) -> bool| lines.iter().filter(|line| is_it(line)).count() as f64 * 43.0;
        let near =
            |found: f64, published: f64| assert!((0.9..=1.1).contains(&(found / published)), "{found}");
        near(count(|line| matches!(line, Line::Write(..))), 1_690_616.0);
        near(count(|line| matches!(line, Line::Read(..))), 5_315_377.0);
        near(count(|line| matches!(line, Line::Unlink(_))), 684_762.0);
        near(count(|line| matches!(line, Line::Rename(..))), 143_586.0);
        near(count(|line| matches!(line, Line::Sync(_))), 237_654.0);
        near(count(|line| matches!(line, Line::Touch(_))), 276_214.0);
    }
}
