//! `weir sim cache` replays a trace through caches.

use crate::harness::Pool;

const USAGE: i32 = 2;

/// Returns a folder without a pool file, which the command does not need.
fn folder() -> Pool {
    let pool = Pool::from_text("");
    std::fs::remove_file(pool.path("pool.toml")).expect("removed");
    pool
}

/// A trace of three reads and a write of 4 KiB blocks: 0, 1, 0, and 0 to 1.
const TRACE: &str = "0.000 0 0 4096 1\n1.000 0 4096 4096 1\n2.000 0 0 4096 1\n3.000 0 0 8192 0\n";

#[test]
fn policies_admissions_and_sizes_are_compared() {
    let folder = folder();
    std::fs::write(folder.path("t.trace"), TRACE).expect("written");
    let arguments = [
        "sim",
        "cache",
        "t.trace",
        "--policy",
        "lru,belady",
        "--admission",
        "all,touch_count",
        "--size",
        "50%,8KiB,1blk",
    ];
    let told = folder.json(&arguments);
    let trace = &told["traces"][0];
    assert_eq!((&trace["accesses"], &trace["blocks"], &trace["requests"]), (&5.into(), &2.into(), &4.into()));
    let results = told["results"].as_array().expect("results");
    let named = |i: usize| {
        let of = |key: &str| results[i][key].as_str().expect("a name");
        (of("policy"), of("admission"), results[i]["size_blocks"].as_u64().expect("a number"))
    };
    assert_eq!(results.len(), 12, "{told}");
    assert_eq!(
        (named(0), named(1), named(11)),
        (("lru", "all", 1), ("lru", "all", 2), ("belady", "touch_count", 1))
    );
    let of = |i: usize, key: &str| results[i][key].as_u64().expect("a number");
    assert_eq!((of(0, "misses"), of(1, "misses"), of(6, "misses")), (4, 2, 4));
    assert_eq!((of(1, "cache_writes"), of(1, "back_end_reads"), of(1, "back_end_writes")), (4, 2, 2));
    assert_eq!(results[1]["clwa"], 2.0, "{told}");
    assert_eq!(results[1]["writes"]["hit_ratio"], 1.0, "{told}");
    let table = folder.run(arguments);
    assert!(table.contains("POLICY") && table.contains("belady") && table.contains("60.00 %"), "{table}");
}

#[test]
fn write_modes_direct_the_writes() {
    let folder = folder();
    std::fs::write(folder.path("t.trace"), TRACE).expect("written");
    let run = |mode: &[&str]| {
        let arguments = ["sim", "cache", "t.trace", "--size", "2blk", "--write-mode"];
        folder.json(&[&arguments[..], mode].concat())["results"][0].clone()
    };
    let (around, back) = (run(&["around"]), run(&["back", "--dirty", "50%"]));
    assert_eq!((&around["cache_writes"], &around["back_end_writes"]), (&2.into(), &2.into()), "{around}");
    // One of two blocks may be dirty, so the first is written back to admit the second.
    assert_eq!((&back["flushed"], &back["dirty_at_end"]), (&1.into(), &1.into()), "{back}");
}

#[test]
fn block_size_is_respected() {
    let folder = folder();
    std::fs::write(folder.path("t.trace"), TRACE).expect("written");
    let arguments = ["sim", "cache", "t.trace", "--block-size", "8KiB", "--size", "100%,1blk,16KiB"];
    let told = folder.json(&arguments);
    let trace = &told["traces"][0];
    assert_eq!(
        (&trace["block_bytes"], &trace["blocks"], &trace["accesses"]),
        (&8192.into(), &1.into(), &4.into())
    );
    let sizes: Vec<_> = [0, 1, 2].map(|i| told["results"][i]["size_blocks"].as_u64().unwrap_or(0)).into();
    assert_eq!((sizes, &told["results"][2]["size_bytes"]), (vec![1, 1, 2], &16_384.into()));
    assert!(folder.run(arguments).contains("1 blocks of 8 KiB (8 KiB)"));
}

#[test]
fn invalid_arguments_are_rejected() {
    let folder = folder();
    std::fs::write(folder.path("t.trace"), TRACE).expect("written");
    std::fs::write(folder.path("bad"), "hello, world\n").expect("written");
    let says = |arguments: &[&str], parts: &[&str]| {
        let said = folder.refused(&[&["sim", "cache"], arguments].concat(), USAGE);
        for part in parts {
            assert!(said.contains(part), "{arguments:?}: {part:?} is not in: {said}");
        }
    };
    says(&["none"], &["no trace none", "name a file"]);
    says(&["bad"], &["format", "vscsi"]);
    says(&["t.trace", "--policy", "mru"], &["mru", "s3fifo"]);
    says(&["t.trace", "--admission", "some"], &["some", "touch_count"]);
    says(&["t.trace", "--size", "10"], &["10%", "1GiB", "blk"]);
    says(&["t.trace", "--block-size", "3KiB"], &["power of two", "4KiB"]);
    says(&["t.trace", "--block-size", "8KiB", "--size", "4KiB"], &["blocks of 8 KiB", "from 8 KiB to"]);
    says(&["t.trace", "--write-mode", "back", "--dirty", "0%"], &["above 0%"]);
}

#[test]
fn a_dirty_share_without_writing_back_is_refused() {
    let folder = folder();
    std::fs::write(folder.path("t.trace"), TRACE).expect("written");
    let said = folder.refused(&["sim", "cache", "t.trace", "--dirty", "30%"], USAGE);
    assert!(said.contains("--write-mode is through") && said.contains("add --write-mode back"), "{said}");
}
