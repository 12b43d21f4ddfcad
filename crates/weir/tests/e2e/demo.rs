//! `weir demo` with fio as its client.

use crate::harness::{installed, weir};

/// The test takes about 20 s: the data is written three times, and each run of the load takes 2 s.
#[test]
fn the_demo_prints_three_lines_and_keeps_the_pool() {
    if !installed(&["fio"]) {
        return;
    }
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().to_str().expect("text");
    let demo = ["demo", "--seconds", "2", "--keep", "--scratch", folder, "--plot", "bars.svg"];
    let output = weir(parent.path(), demo);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    let lines: Vec<_> = stdout.lines().collect();
    let names: Vec<_> = lines.iter().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    assert_eq!(names, ["disk alone", "pool", "all-SSD"], "{stdout}");
    assert!(lines[1].starts_with("pool: 4.5 TB for 190 USD, "), "{stdout}");
    assert!(stderr.contains("Load: 1,000 requests/s of 128 KiB for 2 s"), "{stderr}");
    assert!(stderr.contains("The pool is kept in ") && !stderr.contains('\x1b'), "{stderr}");
    let picture = std::fs::read_to_string(parent.path().join("bars.svg")).expect("a picture");
    assert!(picture.starts_with("<svg") && picture.contains(">pool<"), "{picture}");

    let kept = parent.path().join("weir-demo");
    let mut files: Vec<_> =
        std::fs::read_dir(&kept).expect("it is kept").flatten().map(|entry| entry.file_name()).collect();
    files.sort();
    assert_eq!(files, ["disk.img", "pool.toml", "ssd.img"]);
    let status = weir(&kept, ["pool", "status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert_eq!(
        (&status["volumes"][0]["name"], status["volumes"].as_array().map(Vec::len)),
        (&"demo".into(), Some(1))
    );
    assert!(weir(&kept, ["pool", "check"]).status.success(), "nothing of it is lost by the copy");
    let others = std::fs::read_dir(parent.path()).expect("a folder").flatten().count();
    assert_eq!(others, 2, "the picture and the kept pool");

    let again = weir(parent.path(), demo);
    assert_eq!(again.status.code(), Some(2));
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(said.contains("weir-demo exists already") && said.contains("--scratch DIR"), "{said}");
}
