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

/// Waits until the server has counted that no data lacks a copy.
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
fn data_survives_a_kill_and_the_loss_of_any_device() {
    for lost in ["one", "two", "three"] {
        let pool = pool_of(&[("one", true), ("two", true), ("three", false)]);
        pool.run(["pool", "create"]);
        let made = pool.json(&["volume", "create", "disk", "--size", "1GiB", "--copies", "2"]);
        assert_eq!(made["volumes"][0]["copies"], 2, "{made}");
        let server = pool.serve();
        let mut client = Client::connect(&pool.socket(), "disk").expect("a client");
        client.write(0, &[7; 4 << 20]).expect("a write");
        client.flush().expect("a flush");
        // This overwrites data that both copies hold.
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

        // When the device returns, it receives the writes that it missed.
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
fn two_copies_need_two_devices() {
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

/// Removes the file of a device.
fn lose(pool: &Pool, name: &str) {
    std::fs::remove_file(pool.path(&format!("{name}.img"))).expect("it was there");
}

#[test]
fn lost_device_can_be_replaced_by_a_blank_one() {
    for lost in ["one", "two", "three"] {
        let pool = pool_of(&[("one", true), ("two", true), ("three", false)]);
        pool.run(["pool", "create"]);
        pool.run(["volume", "create", "disk", "--size", "1GiB", "--copies", "2"]);
        let server = pool.serve();
        let mut client = Client::connect(&pool.socket(), "disk").expect("a client");
        client.write(0, &[7; 4 << 20]).expect("a write");
        client.flush().expect("a flush");
        let said = pool.refused(&["pool", "replace", lost], REFUSED);
        assert!(said.contains("already being served"), "{said}");
        server.kill();

        let said = pool.refused(&["pool", "replace", lost], REFUSED);
        assert!(said.contains("is present") && said.contains("nothing to replace"), "{said}");
        pool.run(["pool", "dump", "before.dump"]);
        std::fs::copy(pool.path(&format!("{lost}.img")), pool.path("old.img")).expect("a copy");
        lose(&pool, lost);
        // A blank file at the path of the device is not taken for it.
        std::fs::File::create(pool.path(&format!("{lost}.img")))
            .and_then(|file| file.set_len(256 << 20))
            .expect("a blank file");
        let said = pool.refused(&["serve", "--nbd", "unix:nbd.sock"], REFUSED);
        assert!(said.contains(&format!("weir pool replace {lost}")), "{said}");
        let checked = pool.weir(["pool", "check"]);
        let said = String::from_utf8_lossy(&checked.stdout).replace('\n', " ");
        let way_out = format!("weir pool replace {lost}");
        assert!(checked.status.code() == Some(4) && said.contains(&way_out), "{said}");
        if lost != "three" {
            let said = pool.refused(&["pool", "replace", lost], REFUSED);
            assert!(said.contains("may be newer") && said.contains("--accept-rollback"), "{said}");
        }
        let status = pool.json(&["pool", "replace", lost, "--accept-rollback"]);
        let devices = status["devices"].as_array().expect("devices");
        assert!(devices.iter().all(|device| device["absent"] == false), "{status}");
        assert!(status["volumes"][0]["degraded_bytes"].as_u64() > Some(0), "{status}");
        pool.run(["pool", "check"]);

        let server = pool.serve();
        let mut client = Client::connect(&pool.socket(), "disk").expect("a client");
        assert!(client.read(0, 4 << 20).expect("a read") == [7; 4 << 20], "{lost} was replaced");
        client.write(0, &[8; 8192]).expect("a write");
        client.flush().expect("a flush");
        wait_until_whole(&pool);
        client.disconnect();
        server.stop("TERM");
        pool.run(["pool", "check"]);
        let said = pool.refused(&["pool", "restore", "before.dump", "--accept-rollback"], REFUSED);
        assert!(said.contains(&format!("older than the replacement of device {lost} (")), "{said}");
        // The replaced device is no longer accepted.
        std::fs::rename(pool.path(&format!("{lost}.img")), pool.path("new.img")).expect("it was there");
        std::fs::rename(pool.path("old.img"), pool.path(&format!("{lost}.img"))).expect("it was kept");
        let said = pool.refused(&["serve", "--nbd", "unix:nbd.sock"], REFUSED);
        assert!(
            said.contains(&format!("device {lost} (")) && said.contains("is the old one, which another"),
            "{said}"
        );
        std::fs::rename(pool.path("new.img"), pool.path(&format!("{lost}.img"))).expect("it was kept");

        let other = if lost == "one" { "two" } else { "one" };
        lose(&pool, other);
        let server = pool.serve_with(&["--accept-rollback"]);
        let mut client = Client::connect(&pool.socket(), "disk").expect("a client");
        assert!(client.read(0, 8192).expect("a read") == [8; 8192], "without {other}");
        assert!(client.read(8192, 4 << 20).expect("a read")[..(4 << 20) - 8192] == [7; (4 << 20) - 8192]);
        client.disconnect();
        server.stop("TERM");
    }
}

#[test]
fn unsafe_replacements_are_rejected() {
    let pool = pool_of(&[("one", true), ("two", true), ("three", false)]);
    pool.run(["pool", "create"]);
    pool.run(["volume", "create", "once", "--size", "1GiB"]);
    pool.run(["volume", "create", "twice", "--size", "1GiB", "--copies", "2"]);
    let server = pool.serve();
    for volume in ["once", "twice"] {
        let mut client = Client::connect(&pool.socket(), volume).expect("a client");
        client.write(0, &[7; 24 << 20]).expect("a write");
        client.flush().expect("a flush");
        client.disconnect();
    }
    server.stop("TERM");
    lose(&pool, "three");
    let said = pool.refused(&["pool", "replace", "three"], REFUSED);
    for part in
        ["device three (", "of volume \"once\"", "on it alone", "--without three", "remove the volume"]
    {
        assert!(said.contains(part), "{part:?} should be in:\n{said}");
    }
    assert!(!pool.path("three.img").exists(), "what was made is removed again");
    // A refused command changes nothing: the device is still missing.
    pool.refused(&["volume", "list"], REFUSED);
    let server = pool.serve_with(&["--without", "three"]);
    pool.run(["volume", "remove", "once"]);
    server.stop("TERM");

    std::fs::write(pool.path("three.img"), [1; 64 << 10]).expect("a file");
    let file = std::fs::File::options().write(true).open(pool.path("three.img")).expect("the file");
    file.set_len(256 << 20).expect("its size");
    let said = pool.refused(&["pool", "replace", "three"], REFUSED);
    assert!(said.contains("three.img holds") && said.contains("--force"), "{said}");
    pool.run(["pool", "replace", "three", "--force"]);
    let said = pool.refused(&["pool", "replace", "four"], 2);
    assert!(said.contains("no device \"four\""), "{said}");
    pool.run(["pool", "check"]);
}
