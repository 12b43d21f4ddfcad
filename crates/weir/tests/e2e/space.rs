//! Reports about space and settings: live figures, warnings that disappear, space reserved by WRITE_ZEROES,
//! policies that end with the server.

use crate::harness::Pool;
use crate::nbd::{Client, Command, NO_HOLE};
use serde_json::Value;

const EXTENT: usize = 128 << 10;
const ENOSPC: i32 = 28;

fn used(status: &Value) -> (u64, u64) {
    let bytes = |value: &Value| value.as_u64().expect("bytes");
    (bytes(&status["volumes"][0]["used_bytes"]), bytes(&status["pool"]["used_bytes"]))
}

/// Writes whole extents from this one on until no space is left, without a flush.
fn fill(client: &mut Client, from: u64) -> u64 {
    for index in from.. {
        if let Err(error) = client.write(index * EXTENT as u64, &[1; EXTENT]) {
            assert_eq!(error.raw_os_error(), Some(ENOSPC));
            return index;
        }
    }
    unreachable!("a pool has an end")
}

/// Returns a pool of one small file, so that the policy makes no difference.
fn small() -> Pool {
    let text = "[pool]\nname = \"test\"\npolicy = \"hierarchy\"\n\n\
        [[device]]\nname = \"one\"\npath = \"one.img\"\nsize = \"64MiB\"\n";
    Pool::from_text(text).create("disk", "1GiB")
}

#[test]
fn status_follows_space_changes_at_once() {
    let pool = small();
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("it serves");
    let end = fill(&mut client, 0);
    let status = pool.json(&["pool", "status"]);
    let all = end * EXTENT as u64;
    assert_eq!(used(&status), (all, all), "no flush was needed");
    assert_eq!(status["pool"]["full"], "data");
    assert!(said(&pool).contains("no space is left"));
    // Half of the data is trimmed; no write or flush follows.
    client.ask(Command::Trim, 0, 0, (all / 2) as u32, &[]).expect("a trim");
    let status = pool.json(&["pool", "status"]);
    let left = all - all / 2 / EXTENT as u64 * EXTENT as u64;
    assert_eq!(used(&status), (left, left));
    assert_eq!((&status["pool"]["full"], &status["pool"]["warning_percent"]), (&Value::Null, &Value::Null));
    assert_eq!(status["pool"]["full_in_ns"], Value::Null, "a minute has not been seen");
    let said = said(&pool);
    assert!(!said.contains("no space is left") && !said.contains("is in use;"), "{said}");
    server.stop("TERM");
    assert_eq!(used(&pool.json(&["pool", "status"])), (left, left));
}

fn said(pool: &Pool) -> String {
    String::from_utf8_lossy(&pool.weir(["pool", "status"]).stderr).into_owned()
}

#[test]
fn space_guaranteed_by_write_zeroes_survives_partial_trims() {
    let pool = small();
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("it serves");
    client.ask(Command::WriteZeroes, NO_HOLE, 0, EXTENT as u32, &[]).expect("zeroes");
    client.write(0, &[7; EXTENT]).expect("a write");
    client.flush().expect("a flush");
    for half in 0..2 {
        client.ask(Command::Trim, 0, half * EXTENT as u64 / 2, EXTENT as u32 / 2, &[]).expect("a trim");
    }
    client.flush().expect("a flush");
    assert_eq!(used(&pool.json(&["pool", "status"])).0, EXTENT as u64);
    server.kill();
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("it serves");
    fill(&mut client, 1);
    client.write(0, &[8; EXTENT]).expect("its space was kept");
    assert_eq!(client.read(0, EXTENT).expect("it is read"), [8; EXTENT]);
    server.stop("TERM");
    pool.run(["pool", "check"]);
}

#[test]
fn temporary_policy_is_shown_as_temporary() {
    let pool = small();
    let server = pool.serve();
    let before = pool.json(&["pool", "status"]);
    assert_eq!(before["pool"]["policy_after_restart"], Value::Null);
    assert_eq!(before["volumes"][0]["policy_after_restart"], Value::Null);
    pool.run(["pool", "set", "--policy", "stripe"]);
    pool.run(["volume", "set", "disk", "--policy", "sequential"]);
    let status = pool.json(&["pool", "status"]);
    assert_eq!(
        (&status["pool"]["policy"], &status["pool"]["policy_after_restart"]),
        (&"stripe".into(), &"hierarchy".into())
    );
    let volume = &pool.json(&["volume", "list"])["volumes"][0];
    assert_eq!((&volume["policy"], &volume["policy_after_restart"]), (&"sequential".into(), &"pool".into()));
    let text = pool.run(["pool", "status"]);
    assert!(text.contains("policy stripe until the server ends, then hierarchy"), "{text}");
    assert!(pool.run(["volume", "list"]).contains("sequential until the server ends, then pool"));
    server.stop("TERM");
    let after = pool.json(&["pool", "status"]);
    assert_eq!(
        (&after["pool"]["policy"], &after["volumes"][0]["policy"]),
        (&"hierarchy".into(), &Value::Null)
    );
}

/// The usage and `--help` of `volume set` agree.
#[test]
fn volume_set_accepts_its_documented_options() {
    let pool = small();
    let said = pool.refused(&["volume", "set", "disk"], 2);
    assert!(said.contains("--hardening"), "{said}");
    let help = pool.run(["volume", "set", "--help"]);
    for usage in ["set <NAME> --hardening <HARDENING>\n", "set <NAME> --policy <NAME>\n"] {
        assert!(help.contains(usage), "{help}");
    }
    let list = pool.json(&["volume", "set", "disk", "--hardening", "write"]);
    assert_eq!(list["volumes"][0]["hardening"], "write");
    let server = pool.serve();
    pool.run(["volume", "set", "disk", "--policy", "stripe"]);
    pool.run(["volume", "set", "disk", "--hardening", "flush", "--policy", "pool"]);
    server.stop("TERM");
}
