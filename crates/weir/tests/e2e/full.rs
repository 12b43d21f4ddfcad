//! A pool that fills up repeatedly under fio. Its clients receive ENOSPC, still read and overwrite, free
//! space with TRIM, and write again, without a restart in between.

use crate::harness::{Pool, Server, client, client_output, installed};
use crate::nbd::{Client, Command};
use weir::pool_file::POLICY_DEFAULT;
use weir_model::{Rng, Seed};

/// Size of the data that is overwritten in each round while the pool is full, and must survive all rounds.
const KEPT_SIZE: u64 = 8 << 20;
/// Size of fio's own part, which fio overwrites and verifies while the pool is full.
const FIO_SIZE: u64 = 8 << 20;
/// Size of the data written until no space is left, then trimmed.
const FLOOD_SIZE: u64 = 1 << 30;
const FLOOD_AT: u64 = 64 << 20;
const BLOCK: usize = 4096;
const ENOSPC: i32 = 28;

#[test]
fn full_pool_rejects_only_new_data() {
    // The test compares the used space to the byte, so no data may be in two places.
    rounds(std::env::var("WEIR_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3), "hierarchy");
}

#[test]
fn full_pool_with_copies_rejects_only_new_data() {
    rounds(3, POLICY_DEFAULT);
    rounds(2, "hystor");
}

#[test]
#[ignore = "takes minutes: 100 rounds of the test above"]
fn pool_survives_being_full_a_hundred_times() {
    rounds(100, "hierarchy");
}

fn rounds(rounds: u64, policy: &str) {
    if !installed(&["fio"]) {
        return;
    }
    let seed = std::env::var("WEIR_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_121);
    println!("seed {seed}: WEIR_SEED={seed} repeats it");
    let mut rng = Rng::new(Seed(seed));
    // Other policies keep copies, which they may evict at any moment.
    let exact = policy == "hierarchy";
    let pool = Pool::described("fast", "64MiB", "slow", "64MiB", "").create("disk", "2GiB");
    let text = std::fs::read_to_string(pool.path("pool.toml")).expect("the pool file");
    let text = text.replace("[pool]", &format!("[pool]\npolicy = \"{policy}\""));
    std::fs::write(pool.path("pool.toml"), text).expect("the pool file is written");
    let mut stamps = vec![0; (KEPT_SIZE / BLOCK as u64) as usize];
    let mut server = pool.serve();
    let fill = format!("--offset={FLOOD_AT}");
    fio(
        &pool,
        &["--name=lay-out", "--rw=write", "--bs=64k", &format!("--offset={KEPT_SIZE}")],
        ExpectedEnd::Success,
    );
    for round in 1..=rounds {
        let mut client = Client::connect(&pool.socket(), "disk").expect("the server answers");
        if round == 1 {
            overwrite(&mut client, &mut stamps, round, |_| true);
        }
        let (rw, seed) =
            (["--rw=write", "--rw=randwrite"][(round % 2) as usize], format!("--randseed={round}"));
        fio(
            &pool,
            &["--name=flood", rw, "--bs=64k", &fill, &format!("--size={FLOOD_SIZE}"), &seed],
            ExpectedEnd::NoSpace,
        );
        let full = &pool.json(&["pool", "status"])["pool"]["full"];
        assert!(full == "data" || !exact && full.is_null(), "full of {full}");
        let fresh = FLOOD_AT + FLOOD_SIZE;
        if exact {
            let refused = client.write(fresh, &[1; BLOCK]).expect_err("there is no space");
            assert_eq!(refused.raw_os_error(), Some(ENOSPC));
        }

        overwrite(&mut client, &mut stamps, round, |_| rng.below(4) == 0);
        let verify =
            ["--rw=randwrite", "--bs=4k", "--verify=crc32c", "--verify_state_save=0", "--fsync=32", &seed];
        fio(
            &pool,
            &[&["--name=overwrite", &format!("--offset={KEPT_SIZE}")], &verify[..]].concat(),
            ExpectedEnd::Success,
        );

        // One half is trimmed in one request, the other in many, down to single blocks of whole extents.
        let (half, step) = (FLOOD_SIZE / 2, 512 << 10);
        client.ask(Command::Trim, 0, FLOOD_AT, half as u32, &[]).expect("a trim");
        for at in (FLOOD_AT + half..FLOOD_AT + FLOOD_SIZE).step_by(step as usize) {
            client.ask(Command::Trim, 0, at, BLOCK as u32, &[]).expect("a trim of one block");
            client.ask(Command::Trim, 0, at, step as u32, &[]).expect("a trim");
        }
        client.write(fresh, &[1; BLOCK]).expect("there is space");
        assert_eq!(client.read(fresh, BLOCK).expect("it is read"), [1; BLOCK]);
        client.ask(Command::Trim, 0, fresh, 128 << 10, &[]).expect("a trim");
        client.flush().expect("a flush");
        verify_kept(&mut client, &stamps);
        client.disconnect();
        if round % 10 == 0 || round == rounds {
            server = restarted(&pool, server, round, exact);
            let mut client = Client::connect(&pool.socket(), "disk").expect("the server answers");
            verify_kept(&mut client, &stamps);
        }
    }
    server.stop("TERM");
    println!("full {rounds} times");
}

/// Stops or kills the server, checks the pool, and serves it again.
fn restarted(pool: &Pool, server: Server, round: u64, exact: bool) -> Server {
    if round.is_multiple_of(20) {
        server.kill();
    } else {
        server.stop("TERM");
    }
    pool.run(["pool", "check"]);
    let used = &pool.json(&["pool", "status"])["pool"]["used_bytes"];
    let kept = (KEPT_SIZE + FIO_SIZE).div_ceil(128 << 10) * (128 << 10);
    assert!(
        used.as_u64() == Some(kept) || !exact && used.as_u64() >= Some(kept),
        "what was trimmed was given back"
    );
    pool.serve()
}

/// How a run of fio ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedEnd {
    Success,
    /// With ENOSPC.
    NoSpace,
}

fn fio(pool: &Pool, more: &[&str], ends: ExpectedEnd) {
    let (uri, size) = (format!("--uri={}", pool.uri("disk")), format!("--size={FIO_SIZE}"));
    let common = ["--ioengine=nbd", &uri, "--iodepth=16", &size];
    let arguments = more[..1].iter().chain(&common).chain(&more[1..]);
    if ends == ExpectedEnd::Success {
        client("fio", arguments);
        return;
    }
    let output = client_output("fio", arguments);
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success() && said.contains("No space left on device"), "fio said:\n{said}");
}

/// Overwrites some of the kept blocks.
fn overwrite(client: &mut Client, stamps: &mut [u64], round: u64, mut chosen: impl FnMut(usize) -> bool) {
    for (number, stamp) in stamps.iter_mut().enumerate() {
        if chosen(number) {
            *stamp = round << 32 | number as u64;
            let bytes = stamp.to_le_bytes().repeat(BLOCK / 8);
            client.write((number * BLOCK) as u64, &bytes).expect("an overwrite needs no space");
        }
    }
    client.flush().expect("a flush needs no space");
}

fn verify_kept(client: &mut Client, stamps: &[u64]) {
    for (number, stamp) in stamps.iter().enumerate() {
        let found = client.read((number * BLOCK) as u64, BLOCK).expect("reads need no space");
        assert!(found == stamp.to_le_bytes().repeat(BLOCK / 8), "block {number} is not as it was written");
    }
}

const ONE_DEVICE: &str = "\n[[device]]\nname = \"only\"\npath = \"only.img\"\nsize = \"16MiB\"\n";

fn waiting_pool(wait_at_most: &str) -> Pool {
    let rules = format!("when_full = \"wait\"\nwait_at_most = \"{wait_at_most}\"\n");
    Pool::from_text(&format!("[pool]\nname = \"test\"\n{rules}{ONE_DEVICE}")).create("disk", "1GiB")
}

/// Fills the pool from the start; returns the first offset for which there was no space.
fn fill(client: &mut Client) -> u64 {
    let extent = vec![7; 128 << 10];
    (0..).step_by(extent.len()).find(|at| client.write(*at, &extent).is_err()).expect("it is full at last")
}

#[test]
fn waiting_write_gets_freed_space() {
    let pool = waiting_pool("60s");
    let server = pool.serve();
    let extents = pool.json(&["pool", "status"])["pool"]["capacity_bytes"].as_u64().expect("a number") >> 17;
    let mut writer = Client::connect(&pool.socket(), "disk").expect("the server answers");
    for extent in 0..extents {
        writer.write(extent << 17, &vec![7; 128 << 10]).expect("there is space");
    }
    let end = extents << 17;
    let waiting = writer.send(Command::Write, 0, end, BLOCK as u32, &[9; BLOCK]).expect("it is sent");
    // The overwrite uses the same connection, behind the write that waits.
    let overwrite = writer.send(Command::Write, 0, 0, BLOCK as u32, &[8; BLOCK]).expect("it is sent");
    assert_eq!(writer.reply().expect("a reply"), (overwrite, 0));
    assert_eq!(pool.json(&["pool", "status"])["pool"]["waiting_writes"], 1);
    let mut other = Client::connect(&pool.socket(), "disk").expect("the server answers");
    assert_eq!(other.read(0, BLOCK).expect("a read"), [8; BLOCK]);
    other.ask(Command::Trim, 0, 1 << 17, 1 << 17, &[]).expect("a trim");
    assert_eq!(writer.reply().expect("a reply"), (waiting, 0));
    assert_eq!(other.read(end, BLOCK).expect("a read"), [9; BLOCK]);
    server.stop("TERM");
}

#[test]
fn waiting_writes_fail_on_timeout_and_stop() {
    let pool = waiting_pool("100ms");
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("the server answers");
    let end = fill(&mut client);
    let refused = client.write(end, &[1; BLOCK]).expect_err("there is no space");
    assert_eq!(refused.raw_os_error(), Some(ENOSPC));
    client.disconnect();
    server.stop("TERM");

    let text = std::fs::read_to_string(pool.path("pool.toml")).expect("the pool file");
    std::fs::write(pool.path("pool.toml"), text.replace("100ms", "1h")).expect("the pool file is written");
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("the server answers");
    client.send(Command::Write, 0, end, BLOCK as u32, &[1; BLOCK]).expect("it is sent");
    client.read(0, BLOCK).expect("the server has taken what came before");
    server.stop("TERM");
}

#[test]
fn filling_pool_warns_in_status_and_log() {
    let rules = "warn_at = [\"25%\", \"50%\"]\n";
    let pool =
        Pool::from_text(&format!("[pool]\nname = \"test\"\n{rules}{ONE_DEVICE}")).create("disk", "1GiB");
    let server = pool.serve();
    let before = pool.json(&["pool", "status"]);
    assert_eq!((&before["pool"]["warning_percent"], &before["pool"]["full"]), (&().into(), &().into()));
    assert_eq!(before["pool"]["provisioned_bytes"], 1 << 30);
    let mut client = Client::connect(&pool.socket(), "disk").expect("the server answers");
    let end = fill(&mut client);
    assert_eq!(end, before["pool"]["capacity_bytes"].as_u64().expect("a number"), "all of it could be used");
    let after = pool.json(&["pool", "status"]);
    let writes = after["devices"][0]["traffic"]["writes"]["count"].as_u64();
    assert!(writes > Some(0), "a served pool's devices show their traffic: {after}");
    assert_eq!((&after["pool"]["warning_percent"], &after["pool"]["full"]), (&50.into(), &"data".into()));
    assert!(
        after["pool"]["refused_writes"].as_u64() > Some(0) && after["pool"]["recovery_ns"].as_u64() > Some(0)
    );
    let metrics = pool.run(["pool", "status", "--metrics"]);
    for line in ["weir_warning_percent{pool=\"test\"} 50.0", "weir_full{pool=\"test\"} 1.0"] {
        assert!(metrics.lines().any(|l| l == line), "{line} in\n{metrics}");
    }
    let log = server.log();
    for said in ["more than 25 % of the pool's space", "more than 50 %", "the pool has no space left"] {
        assert!(log.contains(said), "{said:?} in\n{log}");
    }
    client.disconnect();
    pool.run(["volume", "remove", "disk"]);
    assert_eq!(pool.json(&["pool", "status"])["pool"]["used_bytes"], 0);
    server.stop("TERM");
}

#[test]
fn a_volume_s_hardening_is_chosen_shown_and_changed() {
    let pool = Pool::small().create("disk", "1GiB");
    pool.run(["volume", "create", "hard", "--size", "1GiB", "--hardening", "write"]);
    let hardening = |number: usize| pool.json(&["volume", "list"])["volumes"][number]["hardening"].clone();
    assert_eq!((hardening(0), hardening(1)), ("flush".into(), "write".into()));
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "hard").expect("the server answers");
    client.write(0, &[5; BLOCK]).expect("a write");
    pool.run(["volume", "set", "disk", "--hardening", "write"]);
    assert_eq!(hardening(0), "write");
    server.kill();
    assert_eq!((hardening(0), hardening(1)), ("write".into(), "write".into()));
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "hard").expect("the server answers");
    assert_eq!(client.read(0, BLOCK).expect("a read"), [5; BLOCK], "acknowledged, never flushed");
    server.stop("TERM");
    let said = pool.refused(&["volume", "set", "dusk", "--hardening", "write"], 2);
    assert!(said.contains("there is no volume \"dusk\""), "{said}");
}
