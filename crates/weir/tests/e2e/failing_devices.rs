//! Devices that fail, hang or disappear while a server uses them: the errors that a client sees, and the
//! status.

use crate::harness::Pool;
use crate::nbd::Client;
use std::io;
use std::time::Duration;

const EXTENT: u64 = 128 << 10;
const BLOCK: usize = 4096;

/// Returns a pool that uses two devices in turn; the second has the metadata and never fails.
fn pool() -> Pool {
    let device = |name: &str, more: &str| {
        format!("[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"64MiB\"\n{more}\n")
    };
    let failing = device("bad", "metadata = false\nfault = \"on-demand\"\ndeadline = \"500ms\"");
    let text = format!(
        "[pool]\nname = \"test\"\npolicy = \"stripe\"\n{failing}{}",
        device("good", "metadata = true")
    );
    Pool::from_text(&text).create("disk", "16MiB")
}

fn fault(pool: &Pool, words: &str) {
    std::fs::write(pool.path("bad.img.fault"), words).expect("the fault is asked for");
}

fn heal(pool: &Pool) {
    std::fs::remove_file(pool.path("bad.img.fault")).expect("the fault is taken back");
}

fn connect(pool: &Pool) -> Client {
    Client::connect(&pool.socket(), "disk").expect("a client")
}

/// Writes one block in each of four extents, two of which are on each device.
fn write_four(client: &mut Client, byte: u8) {
    for i in 0..4 {
        client.write(i * EXTENT, &[byte; BLOCK]).expect("a write");
    }
}

fn read_four(client: &mut Client) -> Vec<io::Result<Vec<u8>>> {
    (0..4).map(|i| client.read(i * EXTENT, BLOCK)).collect()
}

fn state_of_pool(pool: &Pool) -> serde_json::Value {
    pool.json(&["pool", "status"])["pool"].clone()
}

fn state(pool: &Pool) -> serde_json::Value {
    pool.json(&["pool", "status"])["devices"][0].clone()
}

#[test]
fn failed_flush_is_reported_once_and_blocks_stay_in_doubt() {
    let pool = pool();
    let server = pool.serve();
    let mut client = connect(&pool);
    write_four(&mut client, 1);
    fault(&pool, "flushes");
    client.flush().expect_err("the flush fails");
    heal(&pool);
    client.flush().expect("told once");
    let answers = read_four(&mut client);
    assert_eq!(answers.iter().filter(|a| a.is_err()).count(), 2, "{answers:?}");
    assert_eq!(
        (state(&pool)["state"].as_str(), state(&pool)["blocks_in_doubt"].as_u64()),
        (Some("in_doubt"), Some(2))
    );
    write_four(&mut client, 2);
    client.flush().expect("a flush");
    assert!(read_four(&mut client).iter().all(|a| a.as_ref().is_ok_and(|b| *b == [2; BLOCK])));
    assert_eq!(state(&pool)["state"], "ok");
    server.stop("TERM");
}

#[test]
fn hanging_device_is_lost_and_others_continue() {
    let pool = pool();
    let server = pool.serve();
    let mut client = connect(&pool);
    write_four(&mut client, 1);
    client.flush().expect("a flush");
    fault(&pool, "hang");
    let answers = read_four(&mut client);
    assert_eq!(answers.iter().filter(|a| a.is_err()).count(), 2, "{answers:?}");
    let bad = state(&pool);
    assert_eq!(bad["state"], "lost", "{bad}");
    assert!(bad["lost_reason"].as_str().is_some_and(|why| why.contains("did not answer")), "{bad}");
    // The server reports the data that only this device holds, by volume and range.
    for _ in 0..100 {
        if state_of_pool(&pool)["unreachable_bytes"] == 2 * BLOCK as u64 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(state_of_pool(&pool)["unreachable_bytes"], 2 * BLOCK as u64);
    let warned = String::from_utf8(pool.weir(["pool", "status"]).stderr).expect("text");
    assert!(
        warned.contains("8 KiB of data are on lost devices alone and cannot be read (8 KiB of disk)"),
        "{warned}"
    );
    let places = (0..4).map(|i| pool.run(["explain", "disk", &format!("{}KiB", i * 128)]));
    assert_eq!(places.filter(|text| text.contains(", LOST") && text.contains("UNREACHABLE: ")).count(), 2);
    let log = server.log();
    let lines: Vec<_> =
        log.lines().filter(|line| line.contains("data unreachable: no other device holds it")).collect();
    assert!(lines.len() == 2 && lines.iter().all(|l| l.contains("disk") && l.contains("bad")), "{log}");
    for i in 10..20 {
        client.write(i * EXTENT, &[3; BLOCK]).expect("new data goes to the other device");
    }
    client.flush().expect("a flush");
    client.disconnect();
    // The device stays lost, even after it works again, until the pool is opened again.
    heal(&pool);
    assert_eq!(state(&pool)["state"], "lost");
    server.stop("TERM");
    let server = pool.serve();
    let mut client = connect(&pool);
    assert!(read_four(&mut client).iter().all(|a| a.as_ref().is_ok_and(|b| *b == [1; BLOCK])));
    assert_eq!(client.read(19 * EXTENT, BLOCK).expect("a read"), [3; BLOCK]);
    server.stop("TERM");
}
