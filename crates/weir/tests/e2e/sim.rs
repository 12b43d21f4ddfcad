//! `weir sim place` replays a trace over the devices of a pool file, in virtual time.

use crate::harness::Pool;
use std::fmt::Write as _;

const USAGE: i32 = 2;

/// Returns a pool file of two modelled devices, neither of which exists.
fn pool() -> Pool {
    Pool::from_text(
        "[pool]\nname = \"x\"\npolicy = \"stripe\"\n\
         [[device]]\nname = \"fast\"\npath = \"fast.img\"\nsize = \"64MiB\"\npace = \"ssd-nvme\"\n\
         [[device]]\nname = \"slow\"\npath = \"slow.img\"\nsize = \"1GiB\"\npace = \"hdd-7200\"\n",
    )
}

/// Returns a trace of a thousand requests in ten seconds to 16 MiB.
fn trace() -> String {
    let mut text = String::new();
    for i in 0..1000u64 {
        let offset = i * 7_919 % 4096 * 4096;
        let _ = writeln!(text, "{}.000 0 {offset} 4096 {}", i * 10, u64::from(i % 4 > 0));
    }
    text
}

#[test]
fn a_trace_is_replayed_under_several_policies() {
    let pool = pool();
    std::fs::write(pool.path("t.trace"), trace()).expect("the trace is written");
    // The capacities are scaled to the data of the load, so that the disk's buffer does not hold all of it.
    let scale = ["--scale", "fast=200%", "--scale", "slow=200%"];
    let arguments = ["sim", "place", "t.trace", "--policy", "hierarchy,stripe", "--plot", "p.svg"];
    let arguments = [&arguments[..], &scale].concat();
    let told = pool.json(&arguments);
    let results = told["results"].as_array().expect("results");
    assert_eq!(results.len(), 2, "{told}");
    for result in results {
        // The trace of ten seconds is repeated sixty times; the first third is the warm-up.
        assert_eq!(result["requests"], 40_000, "{result}");
        assert_eq!(result["unanswered"], 0, "{result}");
        assert_eq!(result["windows"].as_array().map(Vec::len), Some(60), "{result}");
    }
    let mean = |i: usize| results[i]["all"]["mean_ns"].as_u64().expect("a mean");
    let means = (mean(0), mean(1));
    assert!(means.0 * 5 < means.1, "all on the fast device, and half of it: {means:?} ns");
    let picture = std::fs::read_to_string(pool.path("p.svg")).expect("a picture");
    assert!(picture.starts_with("<svg") && picture.contains("hierarchy"), "{picture}");
    assert!(!pool.path("fast.img").exists() && !pool.path("slow.img").exists(), "nothing is created");
    assert_eq!(pool.json(&arguments)["results"][1]["digest"], results[1]["digest"], "the same again");
    let table = pool.run(["sim", "place", "t.trace", "--duration", "10s", "--closed", "4"]);
    assert!(table.contains("closed loop of 4") && table.contains("stripe"), "{table}");
}

#[test]
fn synthetic_load_is_parsed_and_scaled() {
    let told = pool().json(&[
        "sim",
        "place",
        "zipf reads=50% over=64MiB rate=100 for=10s / scan rate=20 for=5s",
        "--scale",
        "fast=25%",
        "--scale",
        "slow=120%",
        "--duration",
        "15s",
    ]);
    let devices = &told["results"][0]["devices"];
    assert_eq!(devices[0]["capacity_bytes"], 16 << 20, "{told}");
    assert!(devices[1]["capacity_bytes"].as_u64() >= Some(76 << 20), "{told}");
}

#[test]
fn invalid_arguments_are_rejected() {
    let pool = pool();
    std::fs::write(pool.path("t.trace"), "hello, world\n").expect("written");
    std::fs::write(pool.path("pages"), "1 1 0 0\n2 1 0 0\n").expect("written");
    let says = |arguments: &[&str], parts: &[&str]| {
        let said = pool.refused(&[&["sim", "place"], arguments].concat(), USAGE);
        for part in parts {
            assert!(said.contains(part), "{part:?} should be in:\n{said}");
        }
    };
    says(&["nowhere"], &["no trace nowhere", "zipf"]);
    says(&["t.trace"], &["t.trace", "hello, world", "msr", "help"]);
    says(&["pages"], &["no times", "--closed 16"]);
    says(&["zipf reads=200%"], &["reads=200%", "100%"]);
    says(&["zipf over=1MiB", "--policy", "magic"], &["magic", "hierarchy"]);
    says(&["zipf over=1MiB", "--scale", "fat=10%"], &["fat", "fast, slow"]);
    says(&["zipf over=8GiB"], &["8 GiB of data do not fit", "scale"]);
}
