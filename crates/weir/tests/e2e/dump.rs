//! `weir pool dump` and `weir pool restore`.

use crate::harness::{Pool, Server};
use crate::nbd::Client;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

const REFUSED: i32 = 3;
const DAMAGED: i32 = 4;

fn client(pool: &Pool) -> (Server, Client) {
    let server = pool.serve();
    let client = Client::connect(&pool.socket(), "disk").expect("it serves");
    (server, client)
}

fn end(server: Server, mut client: Client) {
    client.flush().expect("it is flushed");
    client.disconnect();
    server.stop("TERM");
}

/// Returns a pool with some data, dumped to `saved`.
fn saved_pool() -> Pool {
    save(Pool::small())
}

/// Writes some data to the pool, and dumps it to `saved`.
fn save(pool: Pool) -> Pool {
    let pool = pool.create("disk", "1GiB");
    let (server, mut nbd) = client(&pool);
    for n in 0..30u64 {
        nbd.write(n << 20, &[n as u8 + 1; 8192]).expect("it is written");
    }
    end(server, nbd);
    let done = pool.json(&["pool", "dump", "saved"]);
    assert!(done["clean"] == true && done["pages"].as_u64().is_some_and(|pages| pages > 4), "{done}");
    pool
}

fn assert_contents(pool: &Pool) {
    let (server, mut nbd) = client(pool);
    for n in 0..30u64 {
        assert_eq!(nbd.read(n << 20, 8192).expect("it is read"), [n as u8 + 1; 8192], "{n}");
    }
    end(server, nbd);
}

fn device(pool: &Pool, name: &str) -> std::fs::File {
    std::fs::File::options().read(true).write(true).open(pool.path(name)).expect("the device")
}

#[test]
fn a_pool_whose_metadata_was_lost_is_restored() {
    let pool = saved_pool();
    // These are the roots, the journal and the pages of both devices, so the metadata is destroyed wherever
    // it is.
    for name in ["fast.img", "slow.img"] {
        let file = device(&pool, name);
        (16..128u64).for_each(|page| file.write_all_at(&[0xa5; 4096], page * 4096).expect("it is damaged"));
    }
    pool.refused(&["volume", "list"], DAMAGED);
    // weir cannot tell whether the destroyed metadata was newer than the dump.
    let said = pool.refused(&["pool", "restore", "saved"], REFUSED);
    assert!(said.contains("--accept-rollback"), "{said}");
    let done = pool.json(&["pool", "restore", "saved", "--accept-rollback"]);
    assert_eq!(done["clean"], true, "{done}");
    pool.run(["pool", "check"]);
    assert_contents(&pool);
}

#[test]
fn restoring_a_pool_that_has_not_changed_changes_nothing() {
    let pool = saved_pool();
    pool.run(["pool", "restore", "saved"]);
    pool.run(["pool", "check"]);
    assert_contents(&pool);
}

/// A restore writes superblocks, so it must not make a device look whole that has lost data.
#[test]
fn devices_without_the_data_of_the_dump_are_refused() {
    let pool = save(Pool::described("fast", "64MiB", "slow", "64MiB", "metadata = true"));
    let refuses = |dump: &str, part: &str| {
        let before = std::fs::read(pool.path("slow.img")).ok();
        let said = pool.refused(&["pool", "restore", dump], REFUSED);
        assert!(said.contains(part), "{part:?} should be in:\n{said}");
        assert!(std::fs::read(pool.path("slow.img")).ok() == before, "it was changed");
    };
    let whole = std::fs::read(pool.path("slow.img")).expect("the device");
    let file = device(&pool, "slow.img");
    file.set_len(32 << 20).expect("it is truncated");
    file.set_len(64 << 20).expect("it grows");
    refuses("saved", "is blank, or was truncated");
    std::fs::write(pool.path("slow.img"), &whole).expect("the device is back");
    for n in 0..3 {
        let (server, mut nbd) = client(&pool);
        nbd.write(n << 25, &[1; 8192]).expect("it is written");
        end(server, nbd);
    }
    pool.run(["pool", "dump", "newer"]);
    let newer = std::fs::read(pool.path("slow.img")).expect("the device");
    std::fs::write(pool.path("slow.img"), &whole).expect("the older device");
    refuses("newer", "is older than newer");
    std::fs::remove_file(pool.path("slow.img")).expect("it is removed");
    refuses("newer", "is absent");
    // One root alone, as an interrupted restore leaves it, is no older device.
    for root in [64 << 10, 128 << 10] {
        std::fs::write(pool.path("slow.img"), &newer).expect("the newest device");
        device(&pool, "slow.img").write_all_at(&[0; 4096], root).expect("it is zeroed");
        pool.run(["pool", "restore", "newer"]);
        pool.run(["pool", "check"]);
    }
}

/// A dump that is killed leaves no file of the name, or a complete one.
#[test]
fn a_killed_dump_is_not_taken_for_a_dump() {
    let pool = saved_pool();
    let whole = std::fs::read(pool.path("saved")).expect("the dump");
    for millis in (0..120).step_by(8) {
        let name = format!("after-{millis}");
        let mut dumping = Command::new(env!("CARGO_BIN_EXE_weir"))
            .current_dir(pool.path("."))
            .args(["pool", "dump", &name])
            .env_remove("WEIR_POOL")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("weir starts");
        std::thread::sleep(Duration::from_millis(millis));
        dumping.kill().expect("it is killed, or has ended");
        dumping.wait().expect("it has ended");
        if let Ok(dump) = std::fs::read(pool.path(&name)) {
            assert!(dump == whole, "killed after {millis} ms: {} of {} bytes", dump.len(), whole.len());
        }
    }
    pool.refused(&["pool", "dump", "saved"], REFUSED);
    assert!(std::fs::read(pool.path("saved")).expect("the dump") == whole);
}

#[test]
fn rollback_requires_an_option() {
    let pool = saved_pool();
    let (server, mut nbd) = client(&pool);
    // The first write overwrites, in place, data that the dump records, so nothing moves; the second one
    // allocates space.
    nbd.write(0, &[77; 4096]).expect("it is written");
    nbd.write(500 << 20, &[78; 4096]).expect("it is written");
    end(server, nbd);
    let said = pool.refused(&["pool", "restore", "saved"], REFUSED);
    assert!(said.contains("has changed since") && said.contains("--accept-rollback"), "{said}");
    pool.run(["pool", "restore", "saved", "--accept-rollback"]);
    pool.run(["pool", "check"]);
    let (server, mut nbd) = client(&pool);
    assert_eq!(nbd.read(500 << 20, 4096).expect("it is read"), [0; 4096], "made after the dump");
    end(server, nbd);
    // Journal frames written between the dump and the restore are not replayed after the restore.
    for n in 0..4u64 {
        let (server, mut nbd) = client(&pool);
        assert_eq!(nbd.read(500 << 20, 4096).expect("it is read"), [0; 4096], "opening {n} more times");
        server.kill();
        drop(nbd.flush());
    }
}

#[test]
fn incomplete_or_foreign_dumps_are_rejected() {
    let pool = saved_pool();
    let whole = std::fs::read(pool.path("saved")).expect("the dump");
    let try_bytes = |bytes: &[u8], code: i32, part: &str| {
        std::fs::write(pool.path("bad"), bytes).expect("it is written");
        let said = pool.refused(&["pool", "restore", "bad", "--accept-rollback"], code);
        assert!(said.contains(part), "{part:?} should be in:\n{said}");
    };
    try_bytes(&whole[..whole.len() - 10], DAMAGED, "ends too early");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    try_bytes(&flipped, DAMAGED, "wrong checksum");
    try_bytes(b"something else entirely, longer than forty bytes", DAMAGED, "no dump");
    let other = saved_pool();
    let bytes = std::fs::read(other.path("saved")).expect("the dump");
    try_bytes(&bytes, REFUSED, "is of pool");
    pool.run(["pool", "check"]);
    assert_contents(&pool);
}

#[test]
fn pools_in_use_and_files_that_exist_are_left_alone() {
    let pool = saved_pool();
    let said = pool.refused(&["pool", "dump", "saved"], REFUSED);
    assert!(said.contains("exists"), "{said}");
    let server = pool.serve();
    for command in [["pool", "dump", "other"], ["pool", "restore", "saved"]] {
        let said = pool.refused(&command, REFUSED);
        assert!(said.contains("already being served"), "{said}");
    }
    assert!(!pool.path("other").exists(), "nothing was begun");
    server.stop("TERM");
}
