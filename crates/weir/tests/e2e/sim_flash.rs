//! `weir sim flash` simulates a NAND device under a load.

use crate::harness::Pool;
use std::fmt::Write as _;

const USAGE: i32 = 2;

#[test]
fn victim_policies_are_compared() {
    let folder = Pool::empty_folder();
    let load = "uniform reads=0% over=64MiB rate=1000";
    let device = ["--spare", "20%", "--block", "64", "--policy", "greedy,oldest"];
    let arguments = [&["sim", "flash", load][..], &device].concat();
    let told = folder.json(&arguments);
    crate::schemas::validate_as("sim flash", told.to_string().as_bytes());
    let results = told["results"].as_array().expect("results");
    assert_eq!(results.len(), 2, "{told}");
    for (result, exact) in results.iter().zip([2.599, 2.693]) {
        let of = |name: &str| result[name].as_f64().expect("a number");
        assert!((of("amplification") / exact - 1.0).abs() < 0.03, "{result}");
        assert!((of("uniform_amplification") / exact - 1.0).abs() < 0.01, "{result}");
        assert_eq!((&result["steady"], &result["space"]["reserve_segments"]), (&true.into(), &2.into()));
        assert!(result["lifetime"]["life_years"].as_f64() > Some(0.0), "{result}");
        assert!(result["writes"]["count"].as_u64() > Some(16_000), "{result}");
    }
    assert_eq!(folder.json(&arguments), told, "the same again");
    let text = folder.run(arguments);
    for part in ["(T - U) / T", "(T - U) / U", "2 erase units kept free", "seed 1", "greedy", "days"] {
        assert!(text.contains(part), "{part:?} should be in:\n{text}");
    }
}

#[test]
fn a_trace_is_replayed() {
    let folder = Pool::empty_folder();
    let mut trace = String::new();
    for i in 0..2000_u64 {
        let _ = writeln!(
            trace,
            "{}.000 0 {} 4096 {}",
            i * 10,
            (i * 16 % 4096 + i / 256) * 4096,
            u64::from(i % 4 == 0)
        );
    }
    std::fs::write(folder.path("t.trace"), trace).expect("the trace is written");
    let arguments =
        ["sim", "flash", "t.trace", "--block", "16", "--over-provisioning", "25%", "--closed", "4"];
    let told = folder.json(&[&arguments[..], &["--written-per-day", "1GiB"]].concat());
    let result = &told["results"][0];
    assert_eq!(result["space"]["capacity_bytes"], 16 << 20, "{told}");
    assert!((result["space"]["spare_factor"].as_f64().expect("a share") - 0.2).abs() < 0.01, "{told}");
    assert_eq!(result["lifetime"]["drive_writes_per_day"], 64.0, "{told}");
    assert!(result["reads"]["count"].as_u64() > Some(0), "{told}");
}

#[test]
fn impossible_simulations_are_refused() {
    let folder = Pool::empty_folder();
    std::fs::write(folder.path("pages"), "1 1 0 0\n2 1 0 0\n").expect("written");
    let says = |arguments: &[&str], parts: &[&str]| {
        let said = folder.refused(&[&["sim", "flash"], arguments].concat(), USAGE);
        for part in parts {
            assert!(said.contains(part), "{part:?} should be in:\n{said}");
        }
    };
    says(&["nowhere"], &["no trace nowhere", "zipf"]);
    says(&["pages"], &["no times", "--closed 16"]);
    says(&["uniform over=1GiB", "--capacity", "1MiB"], &["1 GiB", "1 MiB", "capacity"]);
    says(&["uniform over=16MiB"], &["without a write"]);
    says(&["uniform over=16MiB", "--spare", "7%", "--over-provisioning", "7%"], &["cannot be used with"]);
    says(&["uniform over=16MiB", "--policy", "magic"], &["magic", "cost-benefit"]);
    says(&["uniform reads=0% over=16MiB", "--spare", "100%"], &["--spare", "below 100%"]);
}

/// A damaged length would make a request of a terabyte.
#[test]
fn too_long_requests_are_refused() {
    let folder = Pool::empty_folder();
    let mut lines = String::new();
    for n in 0..20u64 {
        let len = if n == 15 { 1_000_000_000_000_u64 } else { 4096 };
        writeln!(lines, "{},weir,0,Write,{},{len},0", 1000 + n, n * 4096).expect("a string");
    }
    std::fs::write(folder.path("long.csv"), lines).expect("written");
    for command in ["flash", "logs"] {
        let said = folder.refused(&["sim", command, "--format", "msr", "long.csv"], USAGE);
        assert!(said.contains("has 1000000000000 bytes, more than 4 GiB"), "{command}: {said}");
    }
}

/// A life would be computed from no time at all.
#[test]
fn requests_of_one_moment_have_no_times() {
    let folder = Pool::empty_folder();
    let lines: String = (0..20).map(|n| format!("1000,weir,0,Write,{},4096,0\n", n * 4096)).collect();
    std::fs::write(folder.path("same.csv"), lines).expect("written");
    let command = ["sim", "flash", "--block", "32", "--format", "msr", "same.csv"];
    let said = folder.refused(&command, USAGE);
    assert!(said.contains("same.csv has no times") && said.contains("--closed 16"), "{said}");
    let closed = [&command[..], &["--closed", "4", "--json"]].concat();
    let found: serde_json::Value = serde_json::from_str(&folder.run(closed)).expect("JSON");
    assert!(found["results"][0]["lifetime"]["life_years"].is_null(), "{found}");
}
