//! `weir sim cache` replays a trace through caches.

use crate::harness::Pool;

const USAGE: i32 = 2;

/// A trace of three reads and a write of 4 KiB blocks: 0, 1, 0, and 0 to 1.
const TRACE: &str = "0.000 0 0 4096 1\n1.000 0 4096 4096 1\n2.000 0 0 4096 1\n3.000 0 0 8192 0\n";

#[test]
fn policies_admissions_and_sizes_are_compared() {
    let folder = Pool::empty_folder();
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
    let folder = Pool::empty_folder();
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
    let folder = Pool::empty_folder();
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
    let folder = Pool::empty_folder();
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
    let folder = Pool::empty_folder();
    std::fs::write(folder.path("t.trace"), TRACE).expect("written");
    let said = folder.refused(&["sim", "cache", "t.trace", "--dirty", "30%"], USAGE);
    assert!(said.contains("--write-mode is through") && said.contains("add --write-mode back"), "{said}");
}

/// Writes a trace of 10,000 requests for 8 MiB.
fn synthetic(folder: &Pool) {
    let load = "hotcold part=20% hits=80% reads=50% over=8MiB rate=100 for=100s";
    folder.run(["trace", "generate", load, "--out", "t.weirtrace"]);
}

#[test]
fn caches_on_flash_report_amplification_and_lifetime() {
    let folder = Pool::empty_folder();
    synthetic(&folder);
    let arguments = ["sim", "cache", "t.weirtrace", "--policy", "lru,lrw", "--size", "50%", "--flash"];
    let more = ["--evict", "cache,gc", "--victims", "oldest,greedy", "--segment", "64KiB", "--cell", "qlc"];
    let arguments = [&arguments[..], &more].concat();
    let told = folder.json(&arguments);
    let results = told["results"].as_array().expect("results");
    let named = |i: usize| (results[i]["policy"].as_str(), results[i]["flash"]["victims"].as_str());
    // Garbage collection does not depend on the policy.
    assert_eq!(results.len(), 6, "{told}");
    assert_eq!(named(2), (Some("gc"), Some("oldest")), "{told}");
    for result in results {
        let number = |of: &serde_json::Value| of.as_f64().expect("a number");
        let (flash, clwa) = (&result["flash"], number(&result["clwa"]));
        let product = clwa * number(&flash["flwa"]);
        assert!((product - number(&flash["tcwa"])).abs() < 1e-9, "{result}");
        assert_eq!(flash["pages"]["written"], result["cache_writes"], "{result}");
        assert!(number(&flash["lifetime"]["life_years"]) > 0.0, "{result}");
        assert_eq!(flash["lifetime"]["rated_cycles"], 1000, "{result}");
        assert_eq!(flash["segment_pages"], 16, "{result}");
    }
    let flwa = |i: usize| results[i]["flash"]["flwa"].as_f64().expect("a number");
    assert!(flwa(2) < flwa(0), "the cleaner drops what it would copy: {told}");
    let table = folder.run(&arguments);
    assert!(
        table.contains("FLWA") && table.contains("(P - V) / V = 2") && table.contains("seed 1"),
        "{table}"
    );
}

#[test]
fn a_write_budget_saves_flash() {
    let folder = Pool::empty_folder();
    synthetic(&folder);
    let arguments = ["sim", "cache", "t.weirtrace", "--size", "30%", "--flash", "--write-budget", "10GiB"];
    let told = folder.json(&[&arguments[..], &["--write-mode", "back", "--container", "4MiB:40%"]].concat());
    let (free, limited) = (&told["results"][0], &told["results"][1]);
    let of = |result: &serde_json::Value, path: &str| {
        result.pointer(path).and_then(|v| v.as_f64()).expect("a number")
    };
    assert_eq!(limited["flash"]["write_budget_bytes"], 10_u64 << 30, "{told}");
    assert!(of(limited, "/cache_writes") < of(free, "/cache_writes"), "{told}");
    assert_ne!(of(limited, "/byte_hit_ratio"), of(free, "/byte_hit_ratio"), "{told}");
    let life = "/flash/lifetime/life_years";
    assert!(of(limited, life) > of(free, life), "{told}");
    assert_eq!(free["flash"]["containers"].as_array().map(Vec::len), Some(2), "{told}");
}

#[test]
fn admission_policies_have_settings() {
    let folder = Pool::empty_folder();
    let scan = "scan size=64KiB over=8MiB rate=100 for=1s";
    folder.run(["trace", "generate", scan, "--out", "scan.weirtrace"]);
    let fills = |more: &[&str]| {
        let arguments =
            ["sim", "cache", "scan.weirtrace", "--size", "100%", "--admission", "sequential,touch_count"];
        let told = folder.json(&[&arguments[..], more].concat());
        [0, 1].map(|i| told["results"][i]["cache_fills"].as_u64().expect("a number"))
    };
    let (default, other) = (fills(&[]), fills(&["--sequence-max", "1MiB", "--touch-segment", "64KiB"]));
    assert_eq!(default[0], 1024, "4 MiB of a scan");
    assert_eq!(other, [256, 0], "1 MiB of a scan; no segment is touched twice");
    assert!(default[1] > 0);
    let refused = folder.refused(&["sim", "cache", "scan.weirtrace", "--touches", "2"], USAGE);
    assert!(refused.contains("--touch-bits"), "{refused}");
}
