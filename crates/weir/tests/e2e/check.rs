//! `weir pool check`: its reports on pools that are clean, in use, truncated and damaged, and its repairs.

use crate::harness::Pool;
use crate::nbd::Client;
use serde_json::Value;
use std::os::unix::fs::FileExt;

const CLEAN: i32 = 0;
const REPAIRED: i32 = 1;
const UNREPAIRED: i32 = 4;
const OPERATIONAL: i32 = 8;
const USAGE: i32 = 16;
const PAGE: usize = 4096;
const ROOTS: [u64; 2] = [64 << 10, 128 << 10];

/// Returns a pool with some data; the metadata is on `fast`.
fn pool() -> Pool {
    let text = "[pool]\nname = \"test\"\n\n\
        [[device]]\nname = \"fast\"\npath = \"fast.img\"\nsize = \"256MiB\"\nmetadata = true\n\n\
        [[device]]\nname = \"slow\"\npath = \"slow.img\"\nsize = \"1GiB\"\nmetadata = false\n";
    let pool = Pool::from_text(text).create("disk", "1GiB");
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("it serves");
    for n in 0..40u64 {
        client.write(n * (1 << 20), &[n as u8; 8192]).expect("it is written");
    }
    client.flush().expect("it is flushed");
    client.disconnect();
    server.stop("TERM");
    pool
}

/// Runs `weir pool check --json` and returns its exit code and document.
fn check(pool: &Pool, more: &[&str]) -> (i32, Value) {
    let output = pool.weir(["pool", "check", "--json"].iter().chain(more));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked"), "{said}");
    let document = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("one JSON document, but {error}; it said:\n{said}"));
    (output.status.code().expect("an exit code"), document)
}

fn severities(document: &Value) -> Vec<&str> {
    let found = document["findings"].as_array().expect("a list");
    found.iter().map(|finding| finding["severity"].as_str().expect("a severity")).collect()
}

fn flip(pool: &Pool, device: &str, at: u64) {
    let file = std::fs::File::options().read(true).write(true).open(pool.path(device)).expect("the device");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("it is read");
    file.write_all_at(&[byte[0] ^ 0x20], at).expect("it is damaged");
}

/// Returns the offset of every page of `fast` between two offsets that is not empty.
fn pages(pool: &Pool, from: u64, to: u64) -> Vec<u64> {
    let file = std::fs::File::open(pool.path("fast.img")).expect("the device");
    let mut bytes = vec![0; (to - from) as usize];
    file.read_exact_at(&mut bytes, from).expect("it is read");
    let used = bytes.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|b| *b != 0));
    used.map(|(i, _)| from + (i * PAGE) as u64).collect()
}

#[test]
fn a_pool_that_is_whole_is_clean() {
    let pool = pool();
    let (code, document) = check(&pool, &[]);
    assert_eq!((code, &document["clean"]), (CLEAN, &Value::Bool(true)), "{document}");
    assert_eq!(document["checked"]["superblocks"], 4, "{document}");
    assert_eq!(document["checked"]["extents"], 40, "{document}");
    assert_eq!(document["pool"]["name"], "test", "{document}");
    assert!(pool.run(["pool", "check"]).contains("clean"));
    // The check has changed nothing, and there is nothing to repair.
    assert_eq!(check(&pool, &["--repair"]).0, CLEAN);
}

#[test]
fn a_pool_whose_server_was_killed_is_clean() {
    let pool = pool();
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("it serves");
    for n in 0..200u64 {
        client.write(n * 131_072, &[n as u8; 4096]).expect("it is written");
        if n % 8 == 0 {
            client.flush().expect("it is flushed");
        }
    }
    server.kill();
    let (code, document) = check(&pool, &[]);
    assert_eq!(code, CLEAN, "{document:#}");
    assert!(document["checked"]["frames"].as_u64().is_some_and(|frames| frames > 0), "{document}");
}

#[test]
fn a_pool_in_use_is_refused_and_left_alone() {
    let pool = pool();
    let server = pool.serve();
    for more in [&[][..], &["--repair"]] {
        let (code, document) = check(&pool, more);
        assert_eq!(code, OPERATIONAL, "{document}");
        let message = document["error"]["message"].as_str().expect("a message");
        assert!(message.contains("already being served"), "{message}");
    }
    server.stop("TERM");
    assert_eq!(check(&pool, &[]).0, CLEAN);
}

#[test]
fn mistakes_of_the_user_have_fscks_exit_code() {
    let pool = Pool::small();
    assert_eq!(check(&pool, &["--repiar"]).0, USAGE);
    assert_eq!(check(&pool, &["--pool", "nowhere.toml"]).0, USAGE);
    // No device was ever created.
    assert_eq!(check(&pool, &[]).0, OPERATIONAL);
}

#[test]
fn damaged_superblock_copy_is_rewritten_from_the_other() {
    let pool = pool();
    for (device, at) in [("fast.img", 0), ("slow.img", (1 << 30) - PAGE as u64)] {
        flip(&pool, device, at + 130);
        let (code, document) = check(&pool, &[]);
        assert_eq!((code, severities(&document)), (UNREPAIRED, vec!["redundancy"]), "{document:#}");
        assert_eq!(document["findings"][0]["offset_bytes"], at, "{document:#}");
        assert!(device.starts_with(document["findings"][0]["device"].as_str().expect("a name")));
        let (code, document) = check(&pool, &["--repair"]);
        assert_eq!(code, REPAIRED, "{document:#}");
        assert_eq!(document["repaired"]["superblocks"], 1, "{document:#}");
        assert_eq!(check(&pool, &[]).0, CLEAN);
    }
}

#[test]
fn device_without_superblock_is_damaged_and_not_repaired() {
    let pool = pool();
    for at in [0, (1 << 30) - PAGE as u64] {
        flip(&pool, "slow.img", at + 130);
    }
    for more in [&[][..], &["--repair"]] {
        let (code, document) = check(&pool, more);
        assert_eq!((code, severities(&document)), (UNREPAIRED, vec!["damage"; 2]), "{document:#}");
        assert_eq!(document["findings"][0]["repairable"], false, "{document:#}");
    }
}

#[test]
fn damaged_root_is_rewritten() {
    let pool = pool();
    for at in ROOTS {
        flip(&pool, "fast.img", at + 50);
        let (code, document) = check(&pool, &[]);
        assert_eq!((code, severities(&document)), (UNREPAIRED, vec!["redundancy"]), "{document:#}");
        assert_eq!(check(&pool, &["--repair"]).0, REPAIRED);
        assert_eq!(check(&pool, &[]).0, CLEAN);
    }
    let bytes = check(&pool, &[]).1["checked"]["extents"].clone();
    assert_eq!(bytes, 40, "nothing was lost");
}

#[test]
fn metadata_is_repaired_from_the_other_member() {
    let pool = Pool::described("fast", "256MiB", "slow", "1GiB", "metadata = true").create("disk", "1GiB");
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("it serves");
    for n in 0..20u64 {
        client.write(n << 20, &[n as u8 + 1; 8192]).expect("it is written");
    }
    client.flush().expect("it is flushed");
    server.kill();
    assert_eq!(check(&pool, &[]).0, CLEAN, "after a kill");
    // This overwrites the roots, the journal and the first metadata pages of one member.
    for device in ["fast.img", "slow.img"] {
        let file = std::fs::File::options().write(true).open(pool.path(device)).expect("the device");
        (16..200u64).for_each(|page| file.write_all_at(&[0x5a; PAGE], page * 4096).expect("it is damaged"));
        let (code, document) = check(&pool, &[]);
        assert_eq!(code, UNREPAIRED, "{document:#}");
        assert!(severities(&document).iter().all(|severity| *severity == "redundancy"), "{document:#}");
        let (code, document) = check(&pool, &["--repair"]);
        assert_eq!(code, REPAIRED, "{document:#}");
    }
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("it serves");
    for n in 0..20u64 {
        assert_eq!(client.read(n << 20, 8192).expect("it is read"), [n as u8 + 1; 8192], "{n}");
    }
    server.stop("TERM");
    // If a member is missing, the check reports it and does not take the other member for the whole pool.
    std::fs::rename(pool.path("slow.img"), pool.path("away.img")).expect("it is taken away");
    let (code, document) = check(&pool, &[]);
    assert_eq!(code, OPERATIONAL, "{document:#}");
    assert!(severities(&document).contains(&"unchecked"), "{document:#}");
    assert!(!severities(&document).contains(&"damage"), "{document:#}");
    assert!(
        document["unchecked"][0].as_str().is_some_and(|told| told.contains("device slow (")),
        "{document:#}"
    );
}

/// A missing device is not damage, whether or not it has metadata of the pool.
#[test]
fn absent_devices_are_reported_unchecked() {
    let pool = pool();
    for device in ["fast.img", "slow.img"] {
        std::fs::rename(pool.path(device), pool.path("away.img")).expect("it is taken away");
        let (code, document) = check(&pool, &[]);
        assert_eq!((code, &document["clean"]), (OPERATIONAL, &Value::Bool(false)), "{document:#}");
        let output = pool.weir(["pool", "check"]);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let path = pool.path(device).display().to_string();
        assert!(told.contains("not all of it could be checked") && told.contains(&path), "{told}");
        assert_eq!(output.status.code(), Some(OPERATIONAL));
        std::fs::rename(pool.path("away.img"), pool.path(device)).expect("it is brought back");
    }
    assert_eq!(check(&pool, &[]).0, CLEAN);
}

/// A file that was truncated and has grown again holds zeros, which are no second copy of anything.
#[test]
fn truncated_device_is_not_used_as_copy() {
    const SIZE: u64 = 64 << 20;
    for copies in ["1", "2"] {
        let device = |name: &str| {
            format!(
                "[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"64MiB\"\nmetadata = true\n"
            )
        };
        let text = format!("[pool]\nname = \"test\"\n{}{}", device("one"), device("two"));
        let pool = Pool::from_text(&text);
        pool.run(["pool", "create"]);
        pool.run(["volume", "create", "disk", "--size", "32MiB", "--copies", copies]);
        let server = pool.serve();
        let mut client = Client::connect(&pool.socket(), "disk").expect("it serves");
        for n in 0..64u64 {
            client.write(n << 18, &[7; 4096]).expect("it is written");
        }
        client.flush().expect("it is flushed");
        client.disconnect();
        server.stop("TERM");
        let file = std::fs::File::options().write(true).open(pool.path("two.img")).expect("the device");
        file.set_len(4 << 20).and_then(|()| file.set_len(SIZE)).expect("it is cut off, and grows");
        let (code, document) = check(&pool, &[]);
        assert_eq!((code, severities(&document).contains(&"redundancy")), (UNREPAIRED, true), "{document:#}");
        let (code, document) = check(&pool, &["--repair"]);
        if copies == "1" {
            assert_eq!(code, REPAIRED, "{document:#}");
            continue;
        }
        assert_eq!(code, UNREPAIRED, "{document:#}");
        let said = pool.refused(&["serve", "--nbd", "unix:nbd.sock"], 3);
        assert!(said.contains("--without two"), "{said}");
        let server = pool.serve_with(&["--without", "two", "--accept-rollback"]);
        let mut client = Client::connect(&pool.socket(), "disk").expect("it serves");
        for n in 0..64u64 {
            assert!(client.read(n << 18, 4096).expect("the other copy") == [7; 4096], "{n}");
        }
        client.disconnect();
        server.stop("TERM");
    }
}

/// Damages every metadata page in turn: the check reports the damage, or no data depends on the page.
#[test]
fn damage_to_any_metadata_page_is_detected() {
    let pool = pool();
    // After this opening, the two roots share the pages that have not changed since.
    pool.run(["volume", "list"]);
    let superblock = std::fs::File::open(pool.path("fast.img")).expect("the device");
    let mut page = [0; PAGE];
    superblock.read_exact_at(&mut page, 0).expect("it is read");
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| page[at + i]));
    let from = (192 << 10) + number(88) * PAGE as u64;
    let reported = |pool: &Pool| check(pool, &[]).1["findings"].as_array().map_or(0, Vec::len);
    let (mut seen, mut damage) = (0, 0);
    for at in pages(&pool, from, from + number(96) * PAGE as u64) {
        flip(&pool, "fast.img", at + 100);
        let (code, document) = check(&pool, &[]);
        seen += u32::from(!severities(&document).is_empty());
        if code == UNREPAIRED && severities(&document).contains(&"damage") {
            damage += 1;
            // Opening also refuses the pool, and the check attempts no repair.
            assert_eq!(pool.weir(["volume", "list"]).status.code(), Some(4));
            assert_eq!(check(&pool, &["--repair"]).0, UNREPAIRED);
        }
        flip(&pool, "fast.img", at + 100);
        assert_eq!(reported(&pool), 0, "page at {at} is whole again");
    }
    assert!(seen >= 4 && damage >= 1, "{seen} seen, {damage} of them damage");
}

/// Returns a pool of one metadata device and one data-only device. Its volume has data on both, or none if
/// not `is_used`.
fn with_data_device(is_used: bool) -> Pool {
    let device = |name: &str, metadata: bool| {
        format!(
            "[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"64MiB\"\nmetadata = {metadata}\n"
        )
    };
    let text = format!(
        "[pool]\nname = \"test\"\npolicy = \"stripe\"\n{}{}",
        device("one", true),
        device("two", false)
    );
    let pool = Pool::from_text(&text).create("disk", "32MiB");
    if is_used {
        let server = pool.serve();
        let mut client = Client::connect(&pool.socket(), "disk").expect("it serves");
        (0..64u64).for_each(|n| client.write(n << 17, &[7; 4096]).expect("it is written"));
        client.flush().expect("it is flushed");
        client.disconnect();
        server.stop("TERM");
    }
    pool
}

/// After a pool has run without a device, the data on that device is unchecked, unless it holds none.
#[test]
fn data_on_recorded_absent_device_is_unchecked() {
    for is_used in [false, true] {
        let pool = with_data_device(is_used);
        std::fs::rename(pool.path("two.img"), pool.path("away.img")).expect("it is taken away");
        pool.serve_with(&["--without", "two"]).stop("TERM");
        let (code, document) = check(&pool, &[]);
        assert_eq!(code, if is_used { OPERATIONAL } else { CLEAN }, "{document:#}");
        let expected = if is_used { "unchecked" } else { "note" };
        assert_eq!(severities(&document), [expected], "{document:#}");
    }
}

/// A truncated file is damaged, and the check reports nothing else about it, even if another device is
/// unchecked.
#[test]
fn shorter_device_is_damaged_even_if_another_is_absent() {
    for is_missing in [false, true] {
        let pool = with_data_device(true);
        let file = std::fs::File::options().write(true).open(pool.path("one.img")).expect("the device");
        file.set_len(63 << 20).expect("it is cut off");
        if is_missing {
            std::fs::rename(pool.path("two.img"), pool.path("away.img")).expect("it is taken away");
        }
        for options in [&[][..], &["--repair"]] {
            let (code, document) = check(&pool, options);
            assert_eq!(code, UNREPAIRED, "{document:#}");
            assert!(!severities(&document).contains(&"redundancy"), "{document:#}");
            assert!(severities(&document).contains(&"damage"), "{document:#}");
            assert_eq!(document["unchecked"].as_array().map(Vec::len), Some(usize::from(is_missing)));
        }
    }
}

/// The check reports what a repair did even if the pool does not open afterwards, and does not suggest the
/// repair again.
#[test]
fn partial_repair_reports_repairs_and_advice() {
    let text =
        "[pool]\nname = \"test\"\n\n[[device]]\nname = \"fast\"\npath = \"fast.img\"\nsize = \"256MiB\"\n";
    let pool = Pool::from_text(text).create("disk", "128MiB");
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("it serves");
    for n in 0..40u64 {
        client.write(n << 20, &[7; 4096]).and_then(|()| client.flush()).expect("it is written");
    }
    server.kill();
    let device = std::fs::File::open(pool.path("fast.img")).expect("the device");
    let frames = pages(&pool, 192 << 10, 1 << 20);
    let sequence = |at: u64| {
        let mut root = [0; PAGE];
        device.read_exact_at(&mut root, at).expect("it is read");
        u64::from_le_bytes(std::array::from_fn(|i| root[32 + i]))
    };
    let older = if sequence(ROOTS[0]) < sequence(ROOTS[1]) { ROOTS[0] } else { ROOTS[1] };
    // The damaged frame must be one that later frames call durable.
    let is_needed = |at: &&u64| {
        flip(&pool, "fast.img", **at + 100);
        let is_damage = severities(&check(&pool, &[]).1).contains(&"damage");
        flip(&pool, "fast.img", **at + 100);
        is_damage
    };
    let frame = frames.iter().rev().find(is_needed).expect("a frame in the middle");
    for at in [130, older + 50, frame + 100] {
        flip(&pool, "fast.img", at);
    }
    let output = pool.weir(["pool", "check", "--repair"]);
    let said = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(UNREPAIRED), "{said}");
    for part in [
        "repaired: 1 superblock copies rewritten",
        "not repaired: the pool does not open: device fast",
        "not clean: the pool does not open, and weir cannot mend what is left",
        "weir pool restore FILE",
    ] {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    assert!(
        !said.contains("nothing was changed") && !said.contains("--repair writes it anew from what"),
        "{said}"
    );
    let (code, document) = check(&pool, &["--repair"]);
    assert_eq!((code, &document["repaired"]["superblocks"]), (UNREPAIRED, &Value::from(0)), "{document:#}");
    assert!(
        document["repaired"]["obstacle"].as_str().is_some_and(|why| why.contains("journal")),
        "{document:#}"
    );
    assert!(document["findings"].as_array().is_some_and(|found| !found.is_empty()), "{document:#}");
    // Other commands do not suggest the repair either.
    let said = pool.refused(&["pool", "status"], 4);
    assert!(
        said.contains("its --repair cannot bring this back") && said.contains("weir pool restore"),
        "{said}"
    );
}

/// The suggested command gives the size in bytes, and it works.
#[test]
fn advice_restores_the_size_of_a_resized_device() {
    let pool = with_data_device(true);
    for (name, now) in
        [("two", (64 << 20) + 4096), ("two", 63 << 20), ("one", (64 << 20) + 4096), ("one", 63 << 20)]
    {
        let path = pool.path(&format!("{name}.img"));
        let file = std::fs::File::options().write(true).open(&path).expect("the device");
        file.set_len(now).expect("another size");
        let command = format!("truncate -s 67108864 {}", path.display());
        let said = pool.refused(&["serve", "--nbd", "unix:nbd.sock"], 3);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&format!("({now} bytes), but had 64 MiB (67108864 bytes)")), "{said}");
        let (is_grown, is_only) = (now > 64 << 20, name == "one");
        assert!(said.contains(&command) && said.contains("nothing is lost") == is_grown, "{said}");
        assert_eq!(said.contains("--without two"), !is_grown && !is_only, "{said}");
        assert!(!said.contains("--without one"), "it has the only metadata: {said}");
        let (code, document) = check(&pool, &["--repair"]);
        let help = document["findings"][0]["help"].as_str().unwrap_or_default();
        assert!(code == UNREPAIRED && help.contains(&command), "{document:#}");
        file.set_len(64 << 20).expect("its size");
        assert_eq!(check(&pool, &["--repair"]).0, if is_grown { CLEAN } else { REPAIRED });
        pool.run(["volume", "list"]);
    }
}

/// Without the only metadata no command opens the pool, and no message suggests to create it anew.
#[test]
fn a_pool_is_not_opened_without_its_only_metadata() {
    let one = "[pool]\nname = \"test\"\n[[device]]\nname = \"one\"\npath = \"one.img\"\nsize = \"64MiB\"\n";
    for pool in [Pool::from_text(one).create("disk", "32MiB"), with_data_device(false)] {
        for command in [&["serve", "--nbd", "unix:nbd.sock"][..], &["pool", "status"]] {
            let said = pool.refused(&[command, &["--without", "one"]].concat(), 3);
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            let message =
                "is left out, and it has the pool's only metadata; the pool cannot be opened without it";
            assert!(said.contains(message) && said.contains("leave --without one out"), "{said}");
            assert!(!said.contains("does not exist") && !said.contains("pool create"), "{said}");
        }
    }
}

/// The location of the metadata was fixed when the pool was created.
#[test]
fn ineffective_keys_are_reported() {
    let pool = with_data_device(false);
    let text = std::fs::read_to_string(pool.path("pool.toml")).expect("the pool file");
    std::fs::write(pool.path("pool.toml"), text.replace("metadata = false", "metadata = true"))
        .expect("written");
    let warning = "device two: `metadata = true` has no effect on a pool that exists; its metadata is on one";
    for command in [["pool", "status"], ["pool", "check"]] {
        let output = pool.weir(command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.matches(warning).count() == 1, "{command:?}: {said}");
    }
    let server = pool.serve();
    assert_eq!(server.log().matches(warning).count(), 1, "{}", server.log());
    let warnings = pool.json(&["pool", "status"])["pool"]["configuration_warnings"].to_string();
    assert!(warnings.contains(warning), "{warnings}");
    server.stop("TERM");
}
