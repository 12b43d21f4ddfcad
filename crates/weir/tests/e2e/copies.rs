//! A volume with two copies survives a kill and the loss of a device.

use crate::harness::Pool;
use crate::nbd::Client;
use std::time::Duration;

const REFUSED: i32 = 3;

fn pool_of(devices: &[(&str, bool)]) -> Pool {
    let device = |(name, metadata): &(&str, bool)| {
        format!(
            "\n[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"256MiB\"\nmetadata = {metadata}\n"
        )
    };
    let devices: String = devices.iter().map(device).collect();
    Pool::from_text(&format!("[pool]\nname = \"test\"\n{devices}"))
}

/// What lacks a copy, once that is known to be so.
fn wait_until_whole(pool: &Pool) {
    for _ in 0..600 {
        let volumes = pool.json(&["volume", "list"]);
        if volumes["volumes"][0]["degraded_bytes"] == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("still degraded: {}", pool.json(&["volume", "list"]));
}

#[test]
fn everything_is_read_after_a_kill_without_any_one_of_the_devices() {
    for lost in ["one", "two", "three"] {
        let pool = pool_of(&[("one", true), ("two", true), ("three", false)]);
        pool.run(["pool", "create"]);
        let made = pool.json(&["volume", "create", "disk", "--size", "1GiB", "--copies", "2"]);
        assert_eq!(made["volumes"][0]["copies"], 2, "{made}");
        let server = pool.serve();
        let mut client = Client::connect(&pool.socket(), "disk").expect("a client");
        client.write(0, &[7; 4 << 20]).expect("a write");
        client.flush().expect("a flush");
        // Over what both copies hold.
        client.write(1 << 20, &[8; 1 << 20]).expect("a write");
        client.flush().expect("a flush");
        server.kill();

        let gone = pool.path(&format!("{lost}.gone"));
        std::fs::rename(pool.path(&format!("{lost}.img")), &gone).expect("it was there");
        let accept = if lost == "three" { &["--without", "three"][..] } else { &["--accept-rollback"] };
        let server = pool.serve_with(accept);
        let mut client = Client::connect(&pool.socket(), "disk").expect("a client");
        assert_eq!(client.read(0, 1 << 20).expect("a read"), [7; 1 << 20], "without {lost}");
        assert_eq!(client.read(1 << 20, 1 << 20).expect("a read"), [8; 1 << 20], "without {lost}");
        assert_eq!(client.read(2 << 20, 2 << 20).expect("a read"), [7; 2 << 20], "without {lost}");
        client.write(0, &[9; 4096]).expect("a write with one copy");
        client.flush().expect("a flush");
        client.disconnect();
        server.stop("TERM");

        // Back again, it gets what it missed.
        std::fs::rename(&gone, pool.path(&format!("{lost}.img"))).expect("it is back");
        let server = pool.serve();
        wait_until_whole(&pool);
        let mut client = Client::connect(&pool.socket(), "disk").expect("a client");
        assert_eq!(client.read(0, 4096).expect("a read"), [9; 4096]);
        client.disconnect();
        server.stop("TERM");
    }
}

#[test]
fn two_copies_are_refused_with_the_way_out_where_they_would_not_help() {
    let create = ["volume", "create", "disk", "--size", "1GiB", "--copies", "2"];
    let pool = pool_of(&[("one", true)]);
    pool.run(["pool", "create"]);
    let said = pool.refused(&create, REFUSED);
    assert!(said.contains("two devices"), "{said}");
    let pool = pool_of(&[("one", true), ("two", false)]);
    pool.run(["pool", "create"]);
    let said = pool.refused(&create, REFUSED);
    assert!(said.contains("metadata = true for two devices"), "{said}");
}
