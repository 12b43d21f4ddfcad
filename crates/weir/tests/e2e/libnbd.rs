//! The Python module of libnbd as a client: many requests of all sizes in flight over devices of different
//! speed, with structured replies and without.

use crate::harness::Pool;
use std::fmt::Write as _;
use std::process::Command;
use weir_policy::placement;

/// Debian's Python, into which the package python3-libnbd installs its module.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// Returns whether the module is installed; prints a message if it is not.
pub(crate) fn installed() -> bool {
    let found = Command::new(PYTHON).args(["-c", "import nbd"]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("left out: Python's libnbd is not installed; `scripts/setup test` installs python3-libnbd");
    }
    found
}

/// Returns a pool of devices of different speed, with a volume under each policy.
fn pool() -> Pool {
    let mut text = String::from("[pool]\nname = \"test\"\npolicy = \"stripe\"\n");
    for policy in placement::ALL {
        let _ = write!(text, "\n[volume.{}]\npolicy = \"{}\"\n", policy.name, policy.name);
    }
    for (name, size, more) in [
        ("mem", "128MiB", ""),
        ("ssd", "256MiB", "pace = \"ssd-sata\""),
        ("disk", "512MiB", "pace = \"hdd-7200\""),
    ] {
        let _ = write!(
            text,
            "\n[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"{size}\"\n{more}\n"
        );
    }
    let pool = Pool::from_text(&text);
    pool.run(["pool", "create"]);
    for policy in placement::ALL {
        pool.run(["volume", "create", policy.name, "--size", "12MiB"]);
    }
    pool
}

#[test]
fn libnbd_reads_its_writes_with_requests_in_flight() {
    if !installed() {
        return;
    }
    let seed = std::env::var("WEIR_SEED").unwrap_or_else(|_| "20261123".into());
    let rounds = std::env::var("WEIR_ROUNDS").unwrap_or_else(|_| "1".into());
    println!("seed {seed}: WEIR_SEED={seed} WEIR_ROUNDS={rounds} repeats the requests");
    let pool = pool();
    let server = pool.serve();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/libnbd.py");
    let output = Command::new(PYTHON)
        .args([script, &seed, &rounds])
        .args(placement::ALL.iter().map(|policy| pool.uri(policy.name)))
        .output()
        .expect("Python starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    server.stop("TERM");
}
