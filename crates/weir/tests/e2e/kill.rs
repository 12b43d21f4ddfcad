//! Kills the server with SIGKILL at random moments, repeatedly on the same pool, and compares its answers
//! with the oracle of the simulated world: promised data stays, data that a client has seen stays, and no
//! other data ever appears.
//!
//! The tests register a request with the oracle before they send it, and its answer after they receive it.
//! The oracle may therefore take sequential requests for concurrent ones, but it never demands more than was
//! promised.

mod plan;

use crate::harness::{Pool, Server};
use crate::nbd::{Client, Command, FUA, NO_HOLE, Replies};
use plan::Plan;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;
use weir_model::{BLOCK, Bytes, Rng, SECTOR, Seed, VolumeOffset};
use weir_world::{Answer, Change, Oracle, Place, StopKind, Ticket};

/// Name, size and hardening of each volume.
const VOLUMES: [(&str, Bytes, &str); 2] =
    [("one", Bytes::mib(16), "flush"), ("two", Bytes(Bytes::mib(12).0 + 5 * BLOCK), "write")];

/// Maximum number of requests in flight on one connection.
const DEPTH: u64 = 16;
/// Maximum length of a read, which spans many pieces on several devices.
const READ_MAX: u64 = 4 << 20;

/// Length of each read in a scan of a whole volume.
const SCAN_LEN: u64 = 1 << 20;

/// Rounds on each pool that is drawn at random.
const ROUNDS_EACH: u64 = 3;

#[test]
fn durable_data_survives_kills() {
    // The kernel has the written data, and no device loses it.
    kills("hierarchy", "", StopKind::Kill);
}

#[test]
fn durable_data_survives_kills_of_a_server_that_polls_while_others_copy() {
    let mut rng = seeded();
    let mut plan = Plan::fixed("adaptive", "", StopKind::Kill);
    (plan.poll, plan.in_memory) = ("200us", true);
    check_rounds(plan, &mut rng);
}

#[test]
fn durable_data_survives_loss_of_all_unflushed_writes() {
    kills("hierarchy", "fault = \"forget-unflushed\"", StopKind::PowerLoss);
}

#[test]
fn durable_data_survives_loss_of_some_unflushed_writes() {
    kills("stripe", "metadata = true\nfault = \"forget-some\"", StopKind::PowerLoss);
}

#[test]
fn durable_data_survives_kills_of_random_pools() {
    let (mut rng, mut counts) = (seeded(), Counts::default());
    let mut left = rounds();
    while left > 0 {
        let plan = Plan::draw(&mut rng);
        let here = left.min(ROUNDS_EACH);
        left -= here;
        println!("{plan:?}");
        PoolUnderTest::new(plan).rounds(here, &mut rng, &mut counts);
    }
    println!("{} rounds: {counts:?}", rounds());
    counts.check();
}

/// Returns the number of rounds: `WEIR_ROUNDS`, or a few.
fn rounds() -> u64 {
    std::env::var("WEIR_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

fn seeded() -> Rng {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_121);
    println!("seed {seed}: WEIR_SEED={seed} WEIR_ROUNDS={} repeats the requests", rounds());
    Rng::new(Seed(seed))
}

/// Runs the rounds on a pool whose devices lose, when the server is killed, the writes that `how` says.
fn kills(policy: &'static str, device_options: &str, how: StopKind) {
    let mut rng = seeded();
    let plan = Plan::fixed(policy, device_options, how);
    check_rounds(plan, &mut rng);
}

fn check_rounds(plan: Plan, rng: &mut Rng) {
    let mut counts = Counts::default();
    PoolUnderTest::new(plan).rounds(rounds(), rng, &mut counts);
    counts.check();
}

/// Counts of answers.
#[derive(Debug, Default)]
struct Counts {
    answers: u64,
    flushes: u64,
    failures: u64,
}

impl Counts {
    /// Checks that the test could fail. A single pool may be killed too soon.
    fn check(&self) {
        assert!(self.flushes > 0, "the rounds were too short to acknowledge anything");
    }
}

/// A pool that is served and killed, and the oracle of what may be read from it.
struct PoolUnderTest {
    pool: Pool,
    plan: Plan,
    oracle: Mutex<Oracle>,
    /// Set before a kill: from then on connections may end.
    ending: AtomicBool,
    /// Set if a device has failed since the server started: requests may then fail.
    failed: AtomicBool,
    answers: AtomicU64,
    flushes: AtomicU64,
    failures: AtomicU64,
}

impl PoolUnderTest {
    fn new(plan: Plan) -> Self {
        let pool = plan.pool();
        pool.run(["pool", "create"]);
        let mut oracle = Oracle::new(&VOLUMES.map(|(_, size, _)| size));
        for (number, (name, size, hardening)) in VOLUMES.into_iter().enumerate() {
            let (size, copies) = (format!("{}KiB", size.0 >> 10), plan.copies[number].to_string());
            let options = ["--size", &size, "--hardening", hardening, "--copies", &copies];
            pool.run(["volume", "create", name].iter().chain(&options));
            if hardening == "write" {
                oracle.first_writes_are_durable(number);
            }
        }
        let [answers, flushes, failures] = [0; 3].map(AtomicU64::new);
        let [ending, failed] = [false; 2].map(AtomicBool::new);
        Self { pool, plan, oracle: Mutex::new(oracle), ending, failed, answers, flushes, failures }
    }

    fn rounds(&self, rounds: u64, rng: &mut Rng, counts: &mut Counts) {
        for round in 0..rounds {
            println!("round {round}");
            self.round(rng);
        }
        self.restart();
        self.restart();
        let [answers, flushes, failures] =
            [&self.answers, &self.flushes, &self.failures].map(|count| count.load(Ordering::Relaxed));
        println!(
            "{rounds} rounds; {answers} requests answered, {flushes} of them flushes; {failures} failed"
        );
        counts.answers += answers;
        counts.flushes += flushes;
        counts.failures += failures;
    }

    fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().expect("no other connection found a difference")
    }

    /// Runs a server until it is killed, at times after another one that is killed earlier, and checks the
    /// pool offline afterwards.
    fn round(&self, rng: &mut Rng) {
        if rng.chance(0.3) {
            let server = self.pool.start();
            std::thread::sleep(Duration::from_micros(rng.below(60_000)));
            self.kill(server);
        }
        let server = self.serve();
        std::thread::scope(|scope| {
            let workers = (0..self.plan.connections).flat_map(|_| 0..VOLUMES.len());
            let workers: Vec<_> = workers
                .map(|volume| {
                    let (mut rng, looks) = (rng.fork(), rng.chance(0.3));
                    scope.spawn(move || self.repeat_until_killed(|| self.work(volume, &mut rng, looks)))
                })
                .collect();
            self.run_clients(rng);
            self.ending.store(true, Ordering::SeqCst);
            server.kill();
            workers.into_iter().for_each(|worker| worker.join().expect("every answer is admissible"));
        });
        self.plan.heal(&self.pool);
        self.oracle().crash(self.plan.stop);
        self.pool.run(["pool", "check"]);
    }

    /// Lets the clients work until the kill, and makes devices fail in the meantime if the plan says so.
    fn run_clients(&self, rng: &mut Rng) {
        let some_time = |rng: &mut Rng| {
            std::thread::sleep(Duration::from_millis(5 + rng.below(600)));
        };
        some_time(rng);
        while self.plan.fails && rng.chance(0.6) {
            self.failed.store(true, Ordering::SeqCst);
            self.plan.fail(&self.pool, rng);
            std::thread::sleep(Duration::from_millis(1 + rng.below(100)));
            self.plan.heal(&self.pool);
            some_time(rng);
        }
    }

    fn kill(&self, server: Server) {
        server.kill();
        self.oracle().crash(self.plan.stop);
    }

    fn serve(&self) -> Server {
        let server = self.pool.serve();
        // Opening a pool makes the present data durable.
        self.oracle().make_all_durable();
        self.ending.store(false, Ordering::SeqCst);
        self.failed.store(false, Ordering::SeqCst);
        server
    }

    /// Reads everything and stops the server in good order, which promises as much as a flush.
    fn restart(&self) {
        let server = self.serve();
        for volume in 0..VOLUMES.len() {
            self.repeat_until_killed(|| self.connected(volume, &mut Rng::new(Seed(0)), |c| c.scan()));
            let mut oracle = self.oracle();
            let promised = oracle.flush(volume);
            oracle.flushed(promised);
        }
        server.stop("TERM");
        self.oracle().crash(self.plan.stop);
    }

    /// Repeats work on new connections until the server is killed. Where a device fails, a connection may end
    /// earlier, since a simple reply that has begun cannot report an error.
    fn repeat_until_killed(&self, mut work: impl FnMut() -> io::Result<()>) {
        while let Err(error) = work() {
            if self.ending.load(Ordering::SeqCst) {
                return;
            }
            assert!(self.failed.load(Ordering::SeqCst), "the server hung up: {error}");
        }
    }

    fn work(&self, volume: usize, rng: &mut Rng, looks: bool) -> io::Result<()> {
        self.connected(volume, rng, |connection| {
            if looks {
                connection.scan()?;
            }
            loop {
                connection.some_requests()?;
            }
        })
    }

    /// Does work over a connection of its own, while another thread receives the answers.
    fn connected(
        &self,
        volume: usize,
        rng: &mut Rng,
        work: impl FnOnce(&mut Connection<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let (socket, name) = (self.pool.socket(), VOLUMES[volume].0);
        let structured = rng.chance(0.4);
        let client = if structured { Client::connect_structured } else { Client::connect }(&socket, name)?;
        let (replies, flight) = (client.replies()?, InFlight::default());
        std::thread::scope(|scope| {
            let (rng, flight) = (rng.fork(), &flight);
            let receiver = scope.spawn(move || self.receive(replies, flight));
            let mut connection = Connection { live: self, client, volume, rng, flight };
            let result = work(&mut connection);
            connection.client.shut_down();
            receiver.join().expect("every answer is admissible");
            result
        })
    }

    /// Receives answers until the connection ends.
    fn receive(&self, mut replies: Replies, flight: &InFlight) {
        let _end = ReceiverGuard(flight);
        loop {
            let expected = |cookie| {
                let requests = flight.requests();
                let request = requests.get(&cookie).expect("an answer to something that was asked");
                let len = if request.command == Command::Read { request.place.len.0 } else { 0 };
                (request.place.offset.0, len as usize)
            };
            let Ok(answer) = replies.next(expected) else { return };
            let request = flight.requests().remove(&answer.cookie).expect("it was there just now");
            self.judge(&request, answer.error, &answer.data);
            flight.changed.notify_all();
        }
    }

    /// Checks an answer against the oracle.
    fn judge(&self, request: &Request, error: u32, bytes: &[u8]) {
        let &Request { command, place, ticket } = request;
        self.answers.fetch_add(1, Ordering::Relaxed);
        let mut oracle = self.oracle();
        if error != 0 {
            let may_fail = self.failed.load(Ordering::SeqCst);
            assert!(may_fail && error == 5, "{request:?} failed with {error}");
            self.failures.fetch_add(1, Ordering::Relaxed);
            return match command {
                Command::Read => oracle.read_failed(ticket),
                Command::Flush => oracle.flush_failed(ticket),
                _ => oracle.change_failed(ticket),
            };
        }
        match command {
            Command::Read => {
                let answer = oracle.read_done(ticket, Answer::Bytes(bytes));
                answer.unwrap_or_else(|difference| panic!("{place:?}: {difference}"));
            }
            Command::Flush => {
                oracle.flushed(ticket);
                self.flushes.fetch_add(1, Ordering::Relaxed);
            }
            _ => oracle.changed(ticket),
        }
    }
}

/// The requests in flight on one connection.
#[derive(Default)]
struct InFlight {
    requests: Mutex<HashMap<u64, Request>>,
    changed: Condvar,
    ended: AtomicBool,
}

impl InFlight {
    fn requests(&self) -> MutexGuard<'_, HashMap<u64, Request>> {
        self.requests.lock().expect("nothing fails that holds it")
    }

    /// Waits until fewer than `limit` requests are in flight.
    fn wait_below(&self, limit: u64) -> io::Result<()> {
        let mut requests = self.requests();
        while requests.len() as u64 >= limit {
            if self.ended.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            requests = self.changed.wait(requests).expect("nothing fails that holds it");
        }
        Ok(())
    }
}

/// Tells the sender that the receiver has ended, even if it panics.
struct ReceiverGuard<'a>(&'a InFlight);

impl Drop for ReceiverGuard<'_> {
    fn drop(&mut self) {
        // The lock ensures that no sender is between its check and its wait.
        let _requests = self.0.requests.lock();
        self.0.ended.store(true, Ordering::SeqCst);
        self.0.changed.notify_all();
    }
}

/// The sending side of the connection of one client.
struct Connection<'a> {
    live: &'a PoolUnderTest,
    client: Client,
    volume: usize,
    rng: Rng,
    flight: &'a InFlight,
}

/// A request in flight.
#[derive(Debug)]
struct Request {
    command: Command,
    place: Place,
    ticket: Ticket,
}

impl Connection<'_> {
    /// Reads the whole volume.
    fn scan(&mut self) -> io::Result<()> {
        let size = VOLUMES[self.volume].1.0;
        for at in (0..size).step_by(SCAN_LEN as usize) {
            let place = self.place(at, SCAN_LEN.min(size - at));
            self.send(Command::Read, 0, place)?;
            self.flight.wait_below(DEPTH)?;
        }
        self.flight.wait_below(1)
    }

    fn some_requests(&mut self) -> io::Result<()> {
        let most = 1 + self.rng.below(DEPTH);
        for _ in 0..most {
            self.flight.wait_below(most)?;
            self.send_random()?;
        }
        self.flight.wait_below(1 + self.rng.below(most))
    }

    fn send_random(&mut self) -> io::Result<()> {
        let command = match self.rng.below(100) {
            0..55 => Command::Write,
            55..80 => Command::Read,
            80..85 => Command::Trim,
            85..90 => Command::WriteZeroes,
            _ => Command::Flush,
        };
        let place = match command {
            Command::Flush => self.place(0, 0),
            _ => self.draw_place(command),
        };
        let changes = matches!(command, Command::Write | Command::Trim | Command::WriteZeroes);
        let fua = if changes && self.rng.chance(0.1) { FUA } else { 0 };
        let no_hole = if command == Command::WriteZeroes && self.rng.chance(0.3) { NO_HOLE } else { 0 };
        self.send(command, fua | no_hole, place)
    }

    fn place(&self, at: u64, len: u64) -> Place {
        Place { volume: self.volume, offset: VolumeOffset(at), len: Bytes(len) }
    }

    /// Draws a place: often among the same few blocks, often whole blocks, at times a whole extent.
    fn draw_place(&mut self, command: Command) -> Place {
        let rng = &mut self.rng;
        let grain = if rng.chance(0.5) { BLOCK } else { SECTOR };
        let longest = match command {
            Command::Read if rng.chance(0.1) => READ_MAX,
            Command::Read if rng.chance(0.3) => 512 << 10,
            _ if rng.chance(0.05) => 256 << 10,
            _ => 8 * BLOCK,
        };
        let len = grain * (1 + rng.below(longest / grain));
        let size = VOLUMES[self.volume].1.0;
        let within = if rng.chance(0.5) { size.min(len.max(512 << 10)) } else { size };
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
        // The request is recorded before it is sent, since the answer may come at once.
        self.flight.requests().insert(self.client.next_cookie(), Request { command, place, ticket });
        self.client.send(command, flags, place.offset.0, place.len.0 as u32, &payload)?;
        Ok(())
    }
}
