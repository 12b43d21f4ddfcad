//! `kill -9` at random moments, again and again on the same pool, beside the oracle of the simulated
//! world: what was promised stays, what was shown stays, and nothing else ever appears.
//!
//! The oracle is told of a request before it is sent, and of its answer after it has come: what it takes
//! for concurrent may have been one after the other, so that it never asks for more than was promised.

use crate::harness::{Pool, Server};
use crate::nbd::{Client, Command, FUA, NO_HOLE};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use weir_model::{BLOCK, Bytes, SECTOR, VolumeOffset};
use weir_world::{Answer, Change, Oracle, Place, Rng, Seed, Stop, Ticket};

/// Name, size and hardening of each volume.
const VOLUMES: [(&str, Bytes, &str); 2] =
    [("one", Bytes::mib(16), "flush"), ("two", Bytes(Bytes::mib(12).0 + 5 * BLOCK), "write")];

/// Connections to each volume.
const CONNECTIONS: u64 = 2;

/// Most requests under way on one connection. With the longest reads they fit into a socket's buffer, so
/// that the server can answer while this side still sends.
const DEPTH: u64 = 12;
const READ_MAX: u64 = 16 * SECTOR;

/// What is read at once to see all of a volume.
const LOOK: u64 = 64 << 10;

#[test]
fn what_was_promised_survives_kills() {
    // The kernel has what was written, and no device loses it.
    kills("hierarchy", "", Stop::Kill);
}

#[test]
fn what_was_promised_survives_kills_over_devices_that_forget_the_rest() {
    kills("hierarchy", "fault = \"forget-unflushed\"", Stop::PowerCut);
}

#[test]
fn what_was_promised_survives_kills_over_devices_that_forget_some_of_the_rest() {
    kills("stripe", "metadata = true\nfault = \"forget-some\"", Stop::PowerCut);
}

/// Rounds to run: `WEIR_ROUNDS`, or a few.
fn rounds() -> u64 {
    std::env::var("WEIR_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

/// As many rounds as wanted on a pool whose devices lose, when the server is killed, what `how` says.
fn kills(policy: &str, device_options: &str, how: Stop) {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_121);
    println!("seed {seed}: WEIR_SEED={seed} WEIR_ROUNDS={} repeats the requests", rounds());
    let mut rng = Rng::new(Seed(seed));
    let live = Live::new(policy, device_options, how);
    for round in 0..rounds() {
        println!("round {round}");
        live.round(&mut rng);
    }
    live.restart();
    live.restart();
    let [answers, flushes] = [&live.answers, &live.flushes].map(|count| count.load(Ordering::Relaxed));
    println!("{} rounds; {answers} requests answered, {flushes} of them flushes", rounds());
    assert!(flushes > 0, "the rounds were too short to acknowledge anything");
}

/// A pool that is served and killed, and what may be read from it.
struct Live {
    pool: Pool,
    how: Stop,
    oracle: Mutex<Oracle>,
    /// From now on connections may end.
    ending: AtomicBool,
    answers: AtomicU64,
    flushes: AtomicU64,
}

impl Live {
    fn new(policy: &str, device_options: &str, how: Stop) -> Self {
        let device = |name: &str, size: &str| {
            format!(
                "\n[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"{size}\"\n{device_options}\n"
            )
        };
        let pool = Pool::from_text(&format!(
            "[pool]\nname = \"test\"\npolicy = \"{policy}\"\n{}{}",
            device("fast", "64MiB"),
            device("slow", "512MiB")
        ));
        pool.run(["pool", "create"]);
        let mut oracle = Oracle::new(&VOLUMES.map(|(_, size, _)| size));
        for (number, (name, size, hardening)) in VOLUMES.into_iter().enumerate() {
            let size = format!("{}KiB", size.0 >> 10);
            pool.run(["volume", "create", name, "--size", &size, "--hardening", hardening]);
            if hardening == "write" {
                oracle.first_writes_are_durable(number);
            }
        }
        let [answers, flushes] = [0; 2].map(AtomicU64::new);
        Self { pool, how, oracle: Mutex::new(oracle), ending: AtomicBool::new(false), answers, flushes }
    }

    fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().expect("no other connection found a difference")
    }

    /// A server that works until it is killed, perhaps one before that does not get so far; then what is
    /// left is verified offline.
    fn round(&self, rng: &mut Rng) {
        if rng.chance(0.3) {
            let server = self.pool.start();
            std::thread::sleep(Duration::from_micros(rng.below(60_000)));
            self.kill(server);
        }
        let server = self.serve();
        let after = Duration::from_millis(5 + rng.below(600));
        std::thread::scope(|scope| {
            let workers = (0..CONNECTIONS).flat_map(|_| 0..VOLUMES.len());
            let workers: Vec<_> = workers
                .map(|volume| {
                    let (rng, looks) = (rng.fork(), rng.chance(0.3));
                    scope.spawn(move || self.until_it_ends(|| self.work(volume, rng, looks)))
                })
                .collect();
            std::thread::sleep(after);
            self.ending.store(true, Ordering::SeqCst);
            server.kill();
            workers.into_iter().for_each(|worker| worker.join().expect("every answer is admissible"));
        });
        self.oracle().crash(self.how);
        self.pool.run(["pool", "check"]);
    }

    fn kill(&self, server: Server) {
        server.kill();
        self.oracle().crash(self.how);
    }

    fn serve(&self) -> Server {
        let server = self.pool.serve();
        // Opening makes sure of what is there.
        self.oracle().settled();
        self.ending.store(false, Ordering::SeqCst);
        server
    }

    /// Looks at everything and stops in good order, which promises as much as a flush.
    fn restart(&self) {
        let server = self.serve();
        for volume in 0..VOLUMES.len() {
            self.until_it_ends(|| self.connect(volume, Rng::new(Seed(0)))?.look());
            let mut oracle = self.oracle();
            let promised = oracle.flush(volume);
            oracle.flushed(promised);
        }
        server.stop("TERM");
        self.oracle().crash(self.how);
    }

    /// A connection may end when the server is killed, and only then.
    fn until_it_ends(&self, work: impl FnOnce() -> io::Result<()>) {
        if let Err(error) = work() {
            assert!(self.ending.load(Ordering::SeqCst), "the server hung up: {error}");
        }
    }

    fn work(&self, volume: usize, rng: Rng, looks: bool) -> io::Result<()> {
        let mut connection = self.connect(volume, rng)?;
        if looks {
            connection.look()?;
        }
        loop {
            connection.some_requests()?;
        }
    }

    fn connect(&self, volume: usize, rng: Rng) -> io::Result<Connection<'_>> {
        let client = Client::connect(&self.pool.socket(), VOLUMES[volume].0)?;
        Ok(Connection { live: self, client, volume, rng, under_way: HashMap::new() })
    }
}

/// One client's connection, with many requests under way.
struct Connection<'a> {
    live: &'a Live,
    client: Client,
    volume: usize,
    rng: Rng,
    under_way: HashMap<u64, Request>,
}

/// A request that has no answer yet.
#[derive(Debug)]
struct Request {
    command: Command,
    place: Place,
    ticket: Ticket,
}

impl Connection<'_> {
    /// Reads all of the volume.
    fn look(&mut self) -> io::Result<()> {
        let size = VOLUMES[self.volume].1.0;
        for at in (0..size).step_by(LOOK as usize) {
            let place = self.place(at, LOOK.min(size - at));
            self.send(Command::Read, 0, place)?;
            self.receive()?;
        }
        Ok(())
    }

    fn some_requests(&mut self) -> io::Result<()> {
        let most = 1 + self.rng.below(DEPTH);
        while (self.under_way.len() as u64) < most {
            self.ask()?;
        }
        let left = self.rng.below(most);
        while self.under_way.len() as u64 > left {
            self.receive()?;
        }
        Ok(())
    }

    fn ask(&mut self) -> io::Result<()> {
        let command = match self.rng.below(100) {
            0..55 => Command::Write,
            55..80 => Command::Read,
            80..85 => Command::Trim,
            85..90 => Command::WriteZeroes,
            _ => Command::Flush,
        };
        let place = match command {
            Command::Flush => self.place(0, 0),
            _ => self.anywhere(command),
        };
        let changes = matches!(command, Command::Write | Command::Trim | Command::WriteZeroes);
        let fua = if changes && self.rng.chance(0.1) { FUA } else { 0 };
        let no_hole = if command == Command::WriteZeroes && self.rng.chance(0.3) { NO_HOLE } else { 0 };
        self.send(command, fua | no_hole, place)
    }

    fn place(&self, at: u64, len: u64) -> Place {
        Place { volume: self.volume, offset: VolumeOffset(at), len: Bytes(len) }
    }

    /// Often among the same few blocks, often whole blocks, at times a whole extent.
    fn anywhere(&mut self, command: Command) -> Place {
        let rng = &mut self.rng;
        let grain = if rng.chance(0.5) { BLOCK } else { SECTOR };
        let longest = match command {
            Command::Read => READ_MAX,
            _ if rng.chance(0.05) => 256 << 10,
            _ => 8 * BLOCK,
        };
        let len = grain * (1 + rng.below(longest / grain));
        let size = VOLUMES[self.volume].1.0;
        let within = if rng.chance(0.5) { 512 << 10 } else { size };
        let at = rng.below((within - len) / grain + 1) * grain;
        self.place(at, len)
    }

    fn send(&mut self, command: Command, flags: u16, place: Place) -> io::Result<()> {
        let fua = flags & FUA != 0;
        let mut payload = Vec::new();
        let mut oracle = self.live.oracle();
        let ticket = match command {
            Command::Read => oracle.read(place),
            Command::Flush => oracle.flush(place.volume),
            Command::Trim => oracle.change(place, Change::Trim, fua),
            Command::WriteZeroes => oracle.change(place, Change::Zero, fua),
            Command::Write => oracle.change(place, Change::Write, fua),
            Command::Disconnect => unreachable!("never asked here"),
        };
        if command == Command::Write {
            payload.resize(place.len.0 as usize, 0);
            oracle.fill(ticket, place, &mut payload);
        }
        drop(oracle);
        let cookie = self.client.send(command, flags, place.offset.0, place.len.0 as u32, &payload)?;
        self.under_way.insert(cookie, Request { command, place, ticket });
        Ok(())
    }

    /// The next answer goes past the oracle.
    fn receive(&mut self) -> io::Result<()> {
        let (cookie, error) = self.client.reply()?;
        let request = self.under_way.remove(&cookie).expect("an answer to something that was asked");
        assert_eq!(error, 0, "{request:?} failed");
        let Request { command, place, ticket } = request;
        let bytes = match command {
            Command::Read => self.client.payload(place.len.0 as usize)?,
            _ => Vec::new(),
        };
        self.live.answers.fetch_add(1, Ordering::Relaxed);
        let mut oracle = self.live.oracle();
        match command {
            Command::Read => {
                let answer = oracle.read_done(ticket, Answer::Bytes(&bytes));
                answer.unwrap_or_else(|difference| panic!("{place:?}: {difference}"));
            }
            Command::Flush => {
                oracle.flushed(ticket);
                self.live.flushes.fetch_add(1, Ordering::Relaxed);
            }
            _ => oracle.changed(ticket),
        }
        Ok(())
    }
}
