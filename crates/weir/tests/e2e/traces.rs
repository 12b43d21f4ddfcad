//! `weir trace`: what fio records becomes other formats, and what comes of them is replayed by fio.

use crate::harness::Pool;
use std::process::Command;

const USAGE: i32 = 2;
const REFUSED: i32 = 3;

fn pool() -> Pool {
    Pool::from_text("[pool]\nname = \"x\"\n")
}

/// Runs fio in the pool's folder, without a device below it.
fn fio(pool: &Pool, arguments: &[&str]) -> serde_json::Value {
    let mut command = Command::new("fio");
    command.current_dir(pool.folder.path()).args(["--name=x", "--ioengine=null", "--output-format=json"]);
    let output = command.args(arguments).output().expect("fio runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "fio {arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text[text.find('{').expect("a document")..]).expect("one JSON document")
}

/// Reads and writes, and their bytes, as fio counts them.
fn counts(told: &serde_json::Value) -> [u64; 4] {
    let job = &told["jobs"][0];
    [("read", "total_ios"), ("write", "total_ios"), ("read", "io_bytes"), ("write", "io_bytes")]
        .map(|(direction, figure)| job[direction][figure].as_u64().expect("a figure"))
}

#[test]
fn what_fio_records_is_converted_and_replayed_by_fio() {
    let pool = pool();
    let load = ["--filename=disk", "--size=64m", "--rw=randrw", "--bsrange=4k-64k", "--number_ios=500"];
    let recorded = counts(&fio(&pool, &[&load[..], &["--write_iolog=recorded"]].concat()));
    assert_eq!(recorded[0] + recorded[1], 500);
    let told = pool.json(&["trace", "convert", "recorded", "own.weirtrace"]);
    assert_eq!((&told["from"], &told["requests"]), (&"fio-3".into(), &500.into()), "{told}");
    assert_eq!(told["disks"].as_array().map(Vec::len), Some(1), "{told}");
    for format in ["fio-2", "fio-3"] {
        let name = format!("{format}.log");
        let told = pool.json(&["trace", "convert", "own.weirtrace", &name, "--to", format]);
        assert_eq!((&told["from"], &told["requests"]), (&"weir".into(), &500.into()), "{told}");
        let read = format!("--read_iolog={name}");
        assert_eq!(counts(&fio(&pool, &[&read, "--replay_no_stall=1"])), recorded, "{format}");
    }
    let small = std::fs::metadata(pool.path("own.weirtrace")).expect("written").len();
    let large = std::fs::metadata(pool.path("recorded")).expect("written").len();
    assert!(3 * small < large, "{small} bytes of {large}");
}

#[test]
fn a_trace_goes_through_pipes_and_is_packed() {
    let pool = pool();
    let text = "0 0 4096 512 1\n1000 1 8192 512 0\n2000 0 16 8 1\n";
    std::fs::write(pool.path("t"), text).expect("written");
    let msr = pool.run(["trace", "convert", "t", "-", "--to", "msr"]);
    assert_eq!(
        msr,
        "0,weir,0,Read,2097152,262144,0\n10,weir,1,Write,4194304,262144,0\n20,weir,0,Read,8192,4096,0\n"
    );
    pool.run(["trace", "convert", "t", "packed.gz", "--to", "mqsim"]);
    assert!(std::fs::read(pool.path("packed.gz")).expect("written").starts_with(b"\x1f\x8b"));
    assert_eq!(pool.run(["trace", "convert", "packed.gz", "-", "--to", "mqsim", "--strict"]), text);
    let described =
        ["trace", "convert", "t", "-", "--from", "blanks:time_ns,disk,block,blocks,read", "--to", "spc"];
    assert!(pool.run(described).starts_with("0,32768,2097152,R,0.000000000\n"));
    let formats = pool.json(&["trace", "formats"]);
    assert!(formats["formats"].as_array().is_some_and(|all| all.len() > 20), "{formats}");
}

#[test]
fn what_cannot_be_converted_is_refused_and_leaves_nothing() {
    let pool = pool();
    std::fs::write(pool.path("text"), "hello, world\n").expect("written");
    std::fs::write(pool.path("bad"), "0 0 8 8 1\n1 0 8 x 1\n2 0 8 8 0\n").expect("written");
    let says = |arguments: &[&str], code: i32, parts: &[&str]| {
        let said = pool.refused(&[&["trace", "convert"], arguments].concat(), code);
        for part in parts {
            assert!(said.contains(part), "{part:?} should be in:\n{said}");
        }
        let names = std::fs::read_dir(pool.folder.path()).expect("a folder").flatten();
        let left: Vec<_> = names
            .map(|entry| entry.file_name())
            .filter(|name| {
                let name = name.to_string_lossy();
                name.starts_with("out") || name.ends_with(".part")
            })
            .collect();
        assert!(left.is_empty(), "{left:?}");
    };
    says(&["nowhere", "out"], USAGE, &["no trace nowhere", "standard input"]);
    says(&["text", "out"], USAGE, &["hello, world", "one of weir, msr"]);
    says(
        &["bad", "out", "--from", "mqsim", "--to", "oracle"],
        USAGE,
        &["not written as oracle", "one of weir, msr"],
    );
    says(&["bad", "out", "--to", "magic"], USAGE, &["no format is called", "csv:COLUMN"]);
    says(&["bad", "out", "--strict", "--from", "mqsim"], USAGE, &["bad, line 2, column 7", "mend the line"]);
    says(&["bad", "text", "--from", "mqsim"], REFUSED, &["text is there already", "--force"]);
    says(&["bad", "out.gz", "--from", "mqsim"], USAGE, &["out.gz would be packed twice", "leave .gz off"]);
    says(&["bad", ".", "--from", "mqsim", "--force"], REFUSED, &["no ordinary file"]);
    says(&["bad", "out", "--from", "mqsim", "--strict"], USAGE, &["bad, line 2"]);
    let told = pool.json(&["trace", "convert", "bad", "text", "--from", "mqsim", "--force"]);
    assert_eq!((&told["requests"], &told["bad"]), (&2.into(), &1.into()), "{told}");
}
