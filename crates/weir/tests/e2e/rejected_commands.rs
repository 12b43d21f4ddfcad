//! Commands that weir refuses: their exit codes, and the help in their messages.

use crate::harness::{Pool, client, installed};
use crate::nbd::Client;

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const DAMAGED: i32 = 4;

#[track_caller]
fn assert_contains(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} should be in:\n{said}");
    }
}

#[test]
fn mistakes_in_the_pool_file_are_explained() {
    let pool = Pool::from_text(
        "[pool]\nname = \"x\"\npolcy = \"stripe\"\n\n[[device]]\nname = \"a\"\npath = \"a\"\n",
    );
    let said = pool.refused(&["pool", "create"], USAGE);
    assert_contains(&said, &["pool.toml", "line 3", "polcy", "the nearest is policy", "help:"]);
    let said = pool.refused(&["--pool", "nowhere.toml", "pool", "status"], USAGE);
    assert_contains(&said, &["nowhere.toml", "--pool", "WEIR_POOL"]);
    let output = pool.weir(["pool", "create", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(document["error"]["class"], "usage", "{document}");
    let output = pool.weir(["volume", "create", "x", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert!(document["error"]["message"].as_str().is_some_and(|said| said.contains("--size")), "{document}");
    assert_eq!(output.status.code(), Some(USAGE));
}

#[test]
fn a_missing_file_without_a_size_is_refused() {
    let pool = Pool::from_text("[pool]\nname = \"x\"\n\n[[device]]\nname = \"a\"\npath = \"a.img\"\n");
    assert_contains(&pool.refused(&["pool", "create"], USAGE), &["a.img", "size"]);
}

#[test]
fn a_foreign_file_system_is_refused_unless_forced() {
    if !installed(&["mkfs.ext4", "blkid"]) {
        return;
    }
    let pool = Pool::small();
    let image = pool.path("fast.img");
    let file = std::fs::File::create(&image).expect("a file");
    file.set_len(256 << 20).expect("a length");
    client("mkfs.ext4", ["-q", "-F", image.to_str().expect("utf-8")]);
    assert_contains(&pool.refused(&["pool", "create"], REFUSED), &["fast.img", "ext4", "--force"]);
    client("e2fsck", ["-fn", image.to_str().expect("utf-8")]);
    pool.run(["pool", "create", "--force"]);
}

#[test]
fn devices_of_another_pool_are_rejected() {
    let pool = Pool::small().create("disk", "1GiB");
    assert_contains(&pool.refused(&["pool", "create"], REFUSED), &["fast.img", "--force"]);
    let text = std::fs::read_to_string(pool.path("pool.toml")).expect("the pool file");
    std::fs::write(pool.path("other.toml"), text.replace("\"test\"", "\"other\""))
        .expect("another pool file");
    assert_contains(&pool.refused(&["pool", "create", "other.toml"], REFUSED), &["fast.img", "--force"]);
    let volumes = pool.json(&["volume", "list"]);
    assert_eq!(volumes["volumes"][0]["name"], "disk", "the pool is as it was: {volumes}");
}

#[test]
fn devices_of_two_pools_do_not_mix() {
    let (one, two) = (Pool::small().create("disk", "1GiB"), Pool::small().create("disk", "1GiB"));
    std::fs::copy(two.path("slow.img"), one.path("slow.img")).expect("a device is swapped");
    assert_contains(&one.refused(&["serve", "--nbd", "unix:nbd.sock"], REFUSED), &["slow"]);
}

#[test]
fn a_device_whose_size_changed_is_refused() {
    let pool = Pool::small().create("disk", "1GiB");
    let file = std::fs::File::options().write(true).open(pool.path("slow.img")).expect("the device");
    file.set_len(900 << 20).expect("it shrinks");
    let said = pool.refused(&["serve", "--nbd", "unix:nbd.sock"], REFUSED);
    assert_contains(&said, &["slow.img", "900 MiB", "1 GiB"]);
}

#[test]
fn too_small_device_is_reported_in_bytes() {
    let device = "[[device]]\nname = \"a\"\npath = \"a.img\"\nsize = \"64KiB\"\n";
    let pool = Pool::from_text(&format!("[pool]\nname = \"x\"\n{device}"));
    assert_contains(
        &pool.refused(&["pool", "create"], USAGE),
        &["a.img) has 64 KiB (65536 bytes), too little", " bytes)"],
    );
}

#[test]
fn a_change_of_a_volume_names_what_can_be_changed() {
    let pool = Pool::small();
    assert_contains(&pool.refused(&["volume", "set", "v"], USAGE), &["--hardening", "--policy"]);
    assert_contains(
        &pool.refused(&["volume", "set", "v", "--policy", "foo"], USAGE),
        &["adaptive", "stripe", "pool"],
    );
    assert_contains(&pool.refused(&["status"], USAGE), &["weir pool status"]);
}

#[test]
fn a_size_in_the_pool_file_that_is_not_the_device_s_is_refused() {
    let pool = Pool::small().create("disk", "1GiB");
    let text = std::fs::read_to_string(pool.path("pool.toml")).expect("the pool file");
    std::fs::write(pool.path("pool.toml"), text.replace("1GiB", "2GiB")).expect("another size");
    let said = pool.refused(&["volume", "list"], REFUSED);
    assert_contains(&said, &["slow.img", "1 GiB", "2 GiB", "help: correct size"]);
    std::fs::write(pool.path("pool.toml"), text.replace("size = \"1GiB\"", "")).expect("no size");
    pool.run(["volume", "list"]);
}

#[test]
fn devices_in_use_are_rejected_after_a_wait() {
    let pool = Pool::small().create("disk", "1GiB");
    std::fs::copy(pool.path("pool.toml"), pool.path("other.toml")).expect("another pool file");
    let server = pool.serve();
    let said = pool.refused(&["--pool", "other.toml", "serve"], REFUSED);
    assert_contains(&said, &["waiting up to 10 s", "another weir process", "help:"]);
    server.stop("TERM");
}

#[test]
fn all_pool_file_mistakes_are_reported_at_once() {
    let pool = Pool::from_text(
        "[pool]\nname = \"x y\"\npolcy = \"stripe\"\n\n[[device]]\nname = \"a\"\npath = \"a\"\nsize = \"1\"\n",
    );
    let said = pool.refused(&["pool", "create"], USAGE);
    assert_contains(
        &said,
        &["pool.toml has 3 mistakes", "line 2, column 8: ", "line 3, column 1: ", "line 8, column 8: "],
    );
    assert_contains(&said, &["A-Z a-z", "the nearest is policy", "\"4GiB\""]);
    std::fs::write(pool.path("list.toml"), "[[device]]\nname = \"a\"\nsize = \"1\"\n")
        .expect("a list of devices");
    pool.run(["trace", "generate", "zipf over=16MiB for=1s", "--out", "t.csv"]);
    let said = pool.refused(&["advise", "t.csv", "--devices", "list.toml"], USAGE);
    assert_contains(
        &said,
        &["list.toml has 4 mistakes", "has no currency", "size is \"1\"", "has no price", "has no model"],
    );
}

#[test]
fn new_volume_size_is_reported_as_parsed() {
    let pool = Pool::small();
    pool.run(["pool", "create"]);
    let said = pool.run(["volume", "create", "binary", "--size", "10G"]);
    assert!(said.starts_with("volume binary has 10 GiB (10,737,418,240 bytes)\n"), "{said}");
    let said = pool.run(["volume", "create", "decimal", "--size", "10GB"]);
    assert!(said.starts_with("volume decimal has 9.3 GiB (10,000,000,000 bytes)\n"), "{said}");
}

#[test]
fn volumes_of_decimal_sizes_can_be_made() {
    let pool = Pool::small().create("disk", "500GB");
    let volumes = pool.json(&["volume", "list"]);
    assert_eq!(volumes["volumes"][0]["size_bytes"], 500_000_000_000_u64, "{volumes}");
}

#[test]
fn two_names_for_one_device_are_refused() {
    let pool = Pool::small();
    std::fs::File::create(pool.path("fast.img")).and_then(|file| file.set_len(256 << 20)).expect("a file");
    std::os::unix::fs::symlink("fast.img", pool.path("slow.img")).expect("a second name");
    let text = std::fs::read_to_string(pool.path("pool.toml")).expect("the pool file");
    std::fs::write(pool.path("pool.toml"), text.replace("1GiB", "256MiB")).expect("the same size");
    assert_contains(&pool.refused(&["pool", "create"], USAGE), &["same device", "fast.img", "slow.img"]);
}

#[test]
fn uncreated_pool_is_reported_with_advice() {
    let pool = Pool::small();
    for path in ["fast.img", "slow.img"] {
        let size = if path == "fast.img" { 256 << 20 } else { 1 << 30 };
        std::fs::File::create(pool.path(path)).and_then(|file| file.set_len(size)).expect("a file");
    }
    let said = pool.refused(&["volume", "list"], REFUSED);
    assert_contains(&said, &["weir pool create"]);
}

#[test]
fn damaged_superblocks_are_damage() {
    use std::os::unix::fs::FileExt;
    let pool = Pool::small().create("disk", "1GiB");
    let file = std::fs::File::options().write(true).open(pool.path("slow.img")).expect("the device");
    for at in [0, (1 << 30) - 4096] {
        file.write_all_at(&[0xa5; 64], at + 100).expect("it is damaged");
    }
    let said = pool.refused(&["volume", "list"], DAMAGED);
    assert_contains(&said, &["slow"]);
}

#[test]
fn volumes_are_named_once_and_removed_by_name() {
    let pool = Pool::small().create("disk", "1GiB");
    assert_contains(&pool.refused(&["volume", "create", "disk", "--size", "2GiB"], REFUSED), &["disk"]);
    for remove in ["remove", "delete", "rm"] {
        assert_contains(&pool.refused(&["volume", remove, "dusk"], USAGE), &["dusk", "weir volume list"]);
    }
    pool.refused(&["volume", "create", "a/b", "--size", "2GiB"], USAGE);
    assert_contains(&pool.refused(&["volume", "create", "b", "--size", "2"], USAGE), &["4GiB"]);
    pool.refused(&["volume", "create", "b"], USAGE);
    pool.run(["volume", "remove", "disk"]);
    assert_eq!(pool.json(&["volume", "list"])["volumes"], serde_json::json!([]));
}

#[test]
fn a_pool_that_is_served_is_neither_served_again_nor_created_anew() {
    let pool = Pool::small().create("disk", "1GiB");
    let server = pool.serve();
    let again: [&[&str]; 2] = [&["serve", "--nbd", "unix:other.sock"], &["pool", "create", "--force"]];
    for command in again {
        let said = pool.refused(command, REFUSED);
        assert_contains(&said, &["already being served", "weir pool status", "SIGTERM"]);
        assert!(!said.contains("waiting"), "nothing to wait for:\n{said}");
    }
    let mut first = Client::connect(&pool.socket(), "disk").expect("the first still serves");
    first.write(0, &[1; 4096]).expect("and writes");
    first.disconnect();
    server.stop("TERM");
}
