//! A pool whose metadata is on two devices, one of which is lost.

use crate::harness::Pool;
use crate::nbd::Client;

const REFUSED: i32 = 3;

/// Returns a pool with metadata on `one` and `two`; `three` holds data only.
fn mirrored() -> Pool {
    let device = |name: &str, metadata: bool| {
        format!(
            "\n[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"256MiB\"\nmetadata = {metadata}\n"
        )
    };
    let devices = device("one", true) + &device("two", true) + &device("three", false);
    Pool::from_text(&format!("[pool]\nname = \"test\"\n{devices}")).create("disk", "1GiB")
}

fn lose(pool: &Pool, name: &str) {
    std::fs::rename(pool.path(&format!("{name}.img")), pool.path(&format!("{name}.lost")))
        .expect("it was there");
}

fn bring_back(pool: &Pool, name: &str) {
    std::fs::rename(pool.path(&format!("{name}.lost")), pool.path(&format!("{name}.img")))
        .expect("it was lost");
}

/// Returns the devices that have an up-to-date copy of the metadata.
fn members(pool: &Pool) -> Vec<String> {
    let status = pool.json(&["pool", "status"]);
    let devices = status["devices"].as_array().expect("devices").iter();
    let named = devices.filter(|device| device["metadata"] == true).map(|device| device["name"].as_str());
    named.map(|name| name.expect("a name").to_owned()).collect()
}

#[test]
fn either_metadata_copy_suffices_if_accepted() {
    let pool = mirrored();
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("a client");
    client.write(0, &[7; 1 << 20]).expect("a write");
    client.flush().expect("a flush");
    server.kill();
    assert_eq!(members(&pool), ["one", "two"]);

    lose(&pool, "one");
    for arguments in [&["serve", "--nbd", "unix:nbd.sock"][..], &["volume", "list"], &["pool", "status"]] {
        let said = pool.refused(arguments, REFUSED);
        for part in [
            "device one",
            "one.img",
            "does not exist or is left out",
            "may be newer",
            "help: bring it back",
            "--accept-rollback",
        ] {
            assert!(said.contains(part), "{part:?} should be in:\n{said}");
        }
    }
    let server = pool.serve_with(&["--accept-rollback"]);
    let status = pool.json(&["pool", "status"]);
    assert_eq!(status["devices"][0]["absent"], true, "{status}");
    assert_eq!(status["devices"][0]["metadata_stale"], true, "{status}");
    assert_eq!(status["volumes"][0]["name"], "disk", "{status}");
    server.stop("TERM");
    // The absence is on record, so no flag is needed from now on.
    assert_eq!(members(&pool), ["two"]);

    // The pool does not open with the stale copy of the metadata alone, whatever is accepted.
    bring_back(&pool, "one");
    lose(&pool, "two");
    let said = pool.refused(&["pool", "status", "--accept-rollback"], REFUSED);
    assert!(
        said.contains("device three") && said.contains("device two") && said.contains("newest metadata"),
        "{said}"
    );

    // With both devices present, the stale copy is rewritten, and the written data is there.
    bring_back(&pool, "two");
    let server = pool.serve();
    assert!(server.log().contains("mirrored on device one"), "{}", server.log());
    let mut client = Client::connect(&pool.socket(), "disk").expect("a client");
    assert_eq!(client.read(0, 1 << 20).expect("a read"), [7; 1 << 20]);
    client.disconnect();
    server.stop("TERM");
    assert_eq!(members(&pool), ["one", "two"]);
}

#[test]
fn absent_data_device_can_be_accepted() {
    let pool = mirrored();
    lose(&pool, "three");
    let said = pool.refused(&["pool", "status"], REFUSED);
    assert!(said.contains("device three") && said.contains("--without three"), "{said}");
    let said = pool.refused(&["pool", "status", "--without", "four"], 2);
    assert!(said.contains("no device \"four\"") && said.contains("one, two, three"), "{said}");
    let server = pool.serve_with(&["--without", "three"]);
    let said = pool.refused(&["pool", "status", "--without", "four"], 2);
    assert!(
        said.contains("no device \"four\""),
        "a server answers, and the name is told nevertheless: {said}"
    );
    server.stop("TERM");
    // The absence is now on record, and the return of the device needs no flag either.
    pool.run(["volume", "list"]);
    bring_back(&pool, "three");
    let status = pool.json(&["pool", "status"]);
    assert_eq!(status["devices"][2]["absent"], false, "{status}");
}

#[test]
fn unwritable_metadata_member_is_named_and_can_be_excluded() {
    let device = |name: &str| {
        format!(
            "\n[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"64MiB\"\nmetadata = true\n\
             fault = \"on-demand\"\n"
        )
    };
    let text = format!("[pool]\nname = \"test\"\n{}{}", device("one"), device("two"));
    let pool = Pool::from_text(&text).create("disk", "1GiB");
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("a client");
    client.write(0, &[7; 4096]).expect("a write");
    client.flush().expect("a flush");
    client.disconnect();
    server.stop("TERM");
    for fault in ["flushes", "writes"] {
        std::fs::write(pool.path("two.img.fault"), fault).expect("the fault is asked for");
        let said = pool.refused(&["serve", "--nbd", "unix:nbd.sock"], 5);
        for part in ["device two", "two.img", "failed", "--without two"] {
            assert!(said.contains(part), "{part:?} should be in:\n{said}");
        }
        // Whether the pool may be rolled back is asked only where it has to be.
        assert!(!said.contains("--accept-rollback"), "{said}");
    }
    let said = pool.refused(&["serve", "--nbd", "unix:nbd.sock", "--without", "two"], 3);
    assert!(said.contains("--accept-rollback"), "{said}");
    let server = pool.serve_with(&["--without", "two", "--accept-rollback"]);
    assert_eq!(members(&pool), ["one"]);
    server.stop("TERM");
    // The device works again, and its copy is rewritten.
    std::fs::remove_file(pool.path("two.img.fault")).expect("the fault is taken back");
    let server = pool.serve();
    assert_eq!(members(&pool), ["one", "two"]);
    server.stop("TERM");
}
