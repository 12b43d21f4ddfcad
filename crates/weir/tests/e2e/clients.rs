//! NBD clients from Debian, each in its typical use.

use crate::harness::{Pool, client, installed};
use std::path::Path;
use weir_model::{Rng, Seed};

/// Creates a file of data with holes, as large as the volume.
fn sparse_file(path: &Path, size: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(path).expect("the file is made");
    file.set_len(size).expect("the file is as long as the volume");
    let mut rng = Rng::new(Seed(0x0bad_5eed));
    let mut at = 0;
    while at < size {
        let len = (4096 * (1 + rng.below(200))).min(size - at);
        if rng.below(3) > 0 {
            let bytes: Vec<u8> = (0..len / 8).flat_map(|_| rng.word().to_le_bytes()).collect();
            file.write_all_at(&bytes, at).expect("the file is filled");
        }
        at += len;
    }
}

#[test]
fn nbdinfo_sees_the_exports_and_what_they_can_do() {
    if !installed(&["nbdinfo"]) {
        return;
    }
    let pool = Pool::small().create("disk", "8GiB");
    pool.run(["volume", "create", "other", "--size", "1TiB"]);
    let _server = pool.serve();
    let list = client("nbdinfo", ["--list", "--json", &pool.uri("")]);
    for volume in ["\"disk\"", "\"other\""] {
        assert!(list.contains(volume), "{list}");
    }
    let info = client("nbdinfo", ["--json", &pool.uri("disk")]);
    let info: serde_json::Value = serde_json::from_str(&info).expect("nbdinfo prints JSON");
    let export = &info["exports"][0];
    assert_eq!(export["export-size"], 8u64 << 30, "{info}");
    assert_eq!(info["structured"], true, "{info}");
    for can in ["can_flush", "can_fua", "can_trim", "can_zero", "can_multi_conn"] {
        assert_eq!(export[can], true, "{can} in {info}");
    }
    assert_eq!(export["is_read_only"], false, "{info}");
    let map = client("nbdinfo", ["--map", &pool.uri("disk")]);
    assert!(map.contains("hole,zero"), "a new volume is one hole: {map}");
}

#[test]
fn nbdcopy_round_trips() {
    if !installed(&["nbdcopy", "cmp"]) {
        return;
    }
    let pool = Pool::small().create("disk", "256MiB");
    let (input, output) = (pool.path("in.raw"), pool.path("out.raw"));
    sparse_file(&input, 256 << 20);
    let server = pool.serve();
    client("nbdcopy", [input.as_os_str(), pool.uri("disk").as_ref()]);
    client("nbdcopy", [pool.uri("disk").as_ref(), output.as_os_str()]);
    client("cmp", [&input, &output]);
    server.stop("TERM");

    let _server = pool.serve();
    std::fs::remove_file(&output).expect("the copy is removed");
    client("nbdcopy", [pool.uri("disk").as_ref(), output.as_os_str()]);
    client("cmp", [&input, &output]);
}

#[test]
fn qemu_img_converts_compares_and_checks() {
    if !installed(&["qemu-img"]) {
        return;
    }
    let pool = Pool::small().create("disk", "128MiB");
    let (raw, qcow) = (pool.path("in.raw"), pool.path("out.qcow2"));
    sparse_file(&raw, 128 << 20);
    let (raw, qcow, uri) = (raw.to_str().expect("utf-8"), qcow.to_str().expect("utf-8"), pool.uri("disk"));
    let _server = pool.serve();
    client("qemu-img", ["convert", "-n", "-f", "raw", "-O", "raw", raw, &uri]);
    client("qemu-img", ["compare", "-f", "raw", "-F", "raw", raw, &uri]);
    client("qemu-img", ["convert", "-f", "raw", "-O", "qcow2", &uri, qcow]);
    client("qemu-img", ["check", qcow]);
    client("qemu-img", ["compare", "-f", "qcow2", "-F", "raw", qcow, &uri]);
    let map = client("qemu-img", ["map", "--output=json", "-f", "raw", &uri]);
    let map: serde_json::Value = serde_json::from_str(&map).expect("qemu-img prints JSON");
    let zeros: u64 = map
        .as_array()
        .into_iter()
        .flatten()
        .filter(|run| run["zero"] == true)
        .filter_map(|run| run["length"].as_u64())
        .sum();
    assert!(zeros > 16 << 20, "holes stayed holes: {zeros} bytes of them");
}

#[test]
fn qemu_io_verifies_patterns_of_any_alignment() {
    if !installed(&["qemu-io"]) {
        return;
    }
    let pool = Pool::small().create("disk", "64MiB");
    let _server = pool.serve();
    let uri = pool.uri("disk");
    let script = [
        "write -P 0x11 0 1M",
        "write -P 0x22 512 512",
        "write -P 0x33 130560 1024",
        "read -P 0x11 0 512",
        "read -P 0x22 512 512",
        "read -P 0x11 1024 129536",
        "read -P 0x33 130560 1024",
        "write -f -P 0x44 4M 8M",
        "write -z 5M 1M",
        "write -z -u 6M 1536",
        "read -P 0 5M 1M",
        "read -P 0 6M 1536",
        "read -P 0x44 6292992 512",
        "discard 8M 2M",
        "flush",
        "read -P 0 8M 2M",
        "read -P 0x44 10M 2M",
        "read -P 0 32M 1M",
        "aio_write -P 0x55 20M 64k",
        "aio_write -P 0x66 20544k 64k",
        "aio_flush",
        "read -P 0x55 20M 64k",
        "read -P 0x66 20544k 64k",
    ];
    let arguments = script.iter().flat_map(|line| ["-c", line]);
    let said =
        client("qemu-io", ["-f", "raw", "-d", "unmap"].into_iter().chain(arguments).chain([uri.as_str()]));
    assert!(!said.contains("verification failed") && !said.contains("error"), "{said}");
}

#[test]
fn fio_verifies_what_four_jobs_wrote_at_depth_32() {
    if !installed(&["fio"]) {
        return;
    }
    fio_verifies(&Pool::small().create("disk", "512MiB"));
}

/// The server polls, and other threads copy long writes to its files.
#[test]
fn fio_verifies_what_was_written_to_memory_while_polling() {
    if !installed(&["fio"]) {
        return;
    }
    let device = |name| format!("[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"512MiB\"\n");
    let [one, other] = ["one", "other"].map(device);
    let text = format!("[pool]\nname = \"test\"\npoll = \"200us\"\n\n{one}\n{other}");
    fio_verifies(&Pool::from_text_in_memory(&text).create("disk", "512MiB"));
}

fn fio_verifies(pool: &Pool) {
    let server = pool.serve();
    let uri = format!("--uri={}", pool.uri("disk"));
    let common = ["--ioengine=nbd", &uri, "--iodepth=32", "--numjobs=4", "--group_reporting", "--randseed=1"];
    let work = |name: &str, more: &[&str]| {
        client("fio", common.iter().copied().chain([name]).chain(more.iter().copied()));
    };
    let region = [
        "--size=48m",
        "--offset_increment=64m",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
    ];
    work("--name=small", &[&region[..], &["--rw=randwrite", "--bs=4k", "--fsync=64"]].concat());
    work("--name=odd", &[&region[..], &["--rw=randwrite", "--bsrange=512-64k", "--blockalign=512"]].concat());
    work("--name=mixed", &[&region[..], &["--rw=randrw", "--bs=8k"]].concat());
    work("--name=long", &[&region[..], &["--rw=randwrite", "--bsrange=64k-1m", "--blockalign=4k"]].concat());
    server.stop("TERM");
}
