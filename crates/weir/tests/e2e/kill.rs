//! `kill -9` under load, again and again on the same pool: what was acknowledged stays.

use crate::harness::Pool;
use crate::nbd::{Client, Command, Rng};
use std::io;
use std::path::Path;
use std::time::Duration;

const SECTOR: usize = 512;
const BLOCK: u64 = 4096;
/// The region each connection works in; small, so that blocks are written many times.
const REGION: u64 = 24 << 20;
const CONNECTIONS: u64 = 2;

#[test]
fn what_was_flushed_survives_kills() {
    kills("", rounds(6));
}

#[test]
fn what_was_flushed_survives_kills_over_devices_that_forget_the_rest() {
    kills("fault = \"forget-unflushed\"", rounds(6));
}

#[test]
#[ignore = "takes minutes: the full 50 rounds of both tests above"]
fn what_was_flushed_survives_fifty_kills() {
    kills("", 50);
    kills("fault = \"forget-unflushed\"", 50);
}

/// Rounds to run: `WEIR_ROUNDS`, or a few.
fn rounds(few: u64) -> u64 {
    std::env::var("WEIR_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(few)
}

fn kills(device_options: &str, rounds: u64) {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_121);
    println!("seed {seed}: WEIR_SEED={seed} repeats it");
    let pool = Pool::described("fast", "64MiB", "slow", "512MiB", device_options).create("disk", "256MiB");
    let mut rng = Rng(seed);
    let mut writers: Vec<Writer> = (0..CONNECTIONS).map(|n| Writer::new(n * REGION, rng.next())).collect();
    let mut acknowledged = 0;
    for round in 0..rounds {
        let server = pool.serve();
        let after = Duration::from_millis(20 + rng.below(800));
        std::thread::scope(|scope| {
            let working: Vec<_> = writers
                .iter_mut()
                .map(|writer| scope.spawn(|| writer.check_then_work(&pool.socket(), round)))
                .collect();
            std::thread::sleep(after);
            server.kill();
            for work in working {
                acknowledged += work.join().expect("a round finds everything it should");
            }
        });
    }
    let server = pool.serve();
    for writer in &mut writers {
        let mut client = Client::connect(&pool.socket(), "disk").expect("the server answers");
        writer.check(&mut client, rounds).expect("everything can be read");
    }
    server.stop("TERM");
    println!("{rounds} kills; {acknowledged} flushes acknowledged and kept");
    assert!(acknowledged > 0, "the rounds were too short to acknowledge anything");
}

/// One connection's memory of what it asked for and what it was promised.
struct Writer {
    start: u64,
    rng: Rng,
    /// For each sector, the stamps it may hold now. Stamp 0 is zeros. One stamp: it is certain.
    sectors: Vec<Vec<u64>>,
    /// Sectors whose latest change is acknowledged but not flushed.
    settled_by_flush: Vec<usize>,
    stamp: u64,
}

impl Writer {
    fn new(start: u64, seed: u64) -> Self {
        let sectors = (0..REGION as usize / SECTOR).map(|_| vec![0]).collect();
        Self { start, rng: Rng(seed), sectors, settled_by_flush: Vec::new(), stamp: 0 }
    }

    /// Checks the region, then works until the server dies. Returns the flushes acknowledged.
    fn check_then_work(&mut self, socket: &Path, round: u64) -> u64 {
        // The server may be killed before it has accepted, or during the check.
        let Ok(mut client) = Client::connect(socket, "disk") else { return 0 };
        if self.check(&mut client, round).is_err() {
            return 0;
        }
        let mut flushes = 0;
        while self.batch(&mut client).is_ok() {
            flushes += 1;
        }
        flushes
    }

    /// Reads everything: each sector holds a stamp it may hold, and from now on exactly that.
    fn check(&mut self, client: &mut Client, round: u64) -> io::Result<()> {
        self.settled_by_flush.clear();
        const PIECE: u64 = 1 << 20;
        for at in (0..REGION).step_by(PIECE as usize) {
            let bytes = client.read(self.start + at, PIECE as usize)?;
            for (index, sector) in bytes.chunks_exact(SECTOR).enumerate() {
                let number = at as usize / SECTOR + index;
                let found = self.stamp_of(number, sector);
                let allowed = &mut self.sectors[number];
                assert!(
                    found.is_some_and(|stamp| allowed.contains(&stamp)),
                    "round {round}: sector {number} of the region at {:#x} holds {found:?}, not one of {allowed:?}",
                    self.start
                );
                allowed.clear();
                allowed.extend(found);
            }
        }
        Ok(())
    }

    /// Some changes at once, in ranges that do not overlap, then a flush.
    fn batch(&mut self, client: &mut Client) -> io::Result<()> {
        let mut changed: Vec<(u64, u64)> = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..1 + self.rng.below(24) {
            let sectors = match self.rng.below(4) {
                0 => 1 + self.rng.below(20),
                1 => 8 * (1 + self.rng.below(64)),
                _ => 8,
            };
            let grain = if sectors % 8 == 0 { 8 } else { 1 };
            let first = self.rng.below((REGION / SECTOR as u64 - sectors) / grain) * grain;
            if changed.iter().any(|&(start, end)| first < end && start < first + sectors) {
                continue;
            }
            changed.push((first, first + sectors));
            expected.push(self.change(client, first as usize, sectors as usize)?);
        }
        for _ in &expected {
            let (cookie, error) = client.reply()?;
            assert!(expected.contains(&cookie) && error == 0, "request {cookie} failed with {error}");
        }
        if self.rng.below(4) > 0 {
            client.flush()?;
            for number in std::mem::take(&mut self.settled_by_flush) {
                let last = self.sectors[number].pop();
                self.sectors[number].clear();
                self.sectors[number].extend(last);
            }
        }
        Ok(())
    }

    /// Sends one change, and remembers what the sectors may hold from now on, the newest last.
    fn change(&mut self, client: &mut Client, first: usize, sectors: usize) -> io::Result<u64> {
        self.stamp += 1;
        let (command, stamp) = match self.rng.below(10) {
            0 => (Command::WriteZeroes, 0),
            1 => (Command::Trim, 0),
            _ => (Command::Write, self.stamp),
        };
        let whole_blocks = |number: usize| {
            let block = number / 8 * 8;
            block >= first && block + 8 <= first + sectors
        };
        let mut payload = Vec::new();
        for number in first..first + sectors {
            if command == Command::Write {
                payload.extend(self.sector_with(number, stamp));
            } else if command == Command::Trim && !whole_blocks(number) {
                continue;
            }
            self.sectors[number].push(stamp);
            self.settled_by_flush.push(number);
        }
        let offset = self.start + (first * SECTOR) as u64;
        client.send(command, 0, offset, (sectors * SECTOR) as u32, &payload)
    }

    /// A sector that says where it belongs and which write it is from.
    fn sector_with(&self, number: usize, stamp: u64) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        let place = self.start / BLOCK * 8 + number as u64;
        for (index, word) in bytes.chunks_exact_mut(16).enumerate() {
            word[..8].copy_from_slice(&stamp.to_le_bytes());
            word[8..].copy_from_slice(&(place << 8 | index as u64).to_le_bytes());
        }
        bytes
    }

    /// The stamp a sector holds; `None` if it is not a whole sector of any write made here.
    fn stamp_of(&self, number: usize, sector: &[u8]) -> Option<u64> {
        if sector.iter().all(|&byte| byte == 0) {
            return Some(0);
        }
        let stamp = u64::from_le_bytes(sector[..8].try_into().ok()?);
        (sector == self.sector_with(number, stamp)).then_some(stamp)
    }
}
