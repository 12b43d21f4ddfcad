//! `weir trace` converts fio's recordings to other formats, and fio replays the results.

use crate::harness::Pool;
use std::process::Command;

const USAGE: i32 = 2;
const REFUSED: i32 = 3;

fn pool() -> Pool {
    Pool::from_text("[pool]\nname = \"x\"\n")
}

/// Runs fio in the folder of the pool, with its null engine.
fn fio(pool: &Pool, arguments: &[&str]) -> serde_json::Value {
    let mut command = Command::new("fio");
    command.current_dir(pool.folder.path()).args(["--name=x", "--ioengine=null", "--output-format=json"]);
    let output = command.args(arguments).output().expect("fio runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "fio {arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text[text.find('{').expect("a document")..]).expect("one JSON document")
}

/// Returns the numbers of reads and writes and their bytes, as fio counts them.
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
fn traces_pass_through_pipes_and_compression() {
    let pool = pool();
    let text = "0 0 4096 512 1\n1000 1 8192 512 0\n2000 0 16 8 1\n";
    std::fs::write(pool.path("t"), text).expect("written");
    let msr = pool.run(["trace", "convert", "t", "-", "--from", "mqsim", "--to", "msr"]);
    assert_eq!(
        msr,
        "0,weir,0,Read,2097152,262144,0\n10,weir,1,Write,4194304,262144,0\n20,weir,0,Read,8192,4096,0\n"
    );
    pool.run(["trace", "convert", "t", "packed.gz", "--format", "mqsim", "--to", "mqsim"]);
    assert!(std::fs::read(pool.path("packed.gz")).expect("written").starts_with(b"\x1f\x8b"));
    assert_eq!(
        pool.run(["trace", "convert", "packed.gz", "-", "--from", "mqsim", "--to", "mqsim", "--strict"]),
        text
    );
    let described =
        ["trace", "convert", "t", "-", "--from", "blanks:time_ns,disk,block,blocks,read", "--to", "spc"];
    assert!(pool.run(described).starts_with("0,32768,2097152,R,0.000000000\n"));
    let formats = pool.json(&["trace", "formats"]);
    assert!(formats["formats"].as_array().is_some_and(|all| all.len() > 20), "{formats}");
}

#[test]
fn generated_traces_are_deterministic_and_convert_to_all_formats() {
    let pool = pool();
    let words =
        "hotcold hits=90% over=64MiB rate=2000 for=2s & scan reads=0% at=64MiB over=16MiB rate=100 for=2s";
    let made = |out: &str, seed: &str, more: &[&str]| {
        pool.json(&[&["trace", "generate", words, "--out", out, "--seed", seed], more].concat())
    };
    let told = made("a", "5", &[]);
    assert_eq!(
        (&told["seed"], &told["disk_count"], &told["unrepresentable_requests"]),
        (&5.into(), &1.into(), &0.into()),
        "{told}"
    );
    let requests = told["requests"].as_u64().expect("a number");
    assert!((3_900..4_500).contains(&requests), "{told}");
    made("b", "5", &[]);
    made("c", "6", &[]);
    let bytes = |name: &str| std::fs::read(pool.path(name)).expect("written");
    assert!(bytes("a") == bytes("b") && bytes("a") != bytes("c"));
    // Times are in whole microseconds, which every format can represent.
    pool.run(["trace", "convert", "a", "us", "--to", "vscsi"]);
    let whole = pool.run(["trace", "convert", "us", "-", "--to", "mqsim", "--strict"]);
    let formats = pool.json(&["trace", "formats"]);
    let formats = formats["formats"].as_array().expect("formats");
    let written: Vec<_> = formats.iter().filter(|format| format["writable"] == true).collect();
    assert!(written.len() > 5, "{written:?}");
    for format in written {
        let name = format["name"].as_str().expect("a name");
        let told = pool.json(&["trace", "convert", "us", "there", "--to", name, "--force"]);
        assert_eq!(
            (&told["requests"], &told["unrepresentable_requests"]),
            (&requests.into(), &0.into()),
            "{name}: {told}"
        );
        let back = pool.run(["trace", "convert", "there", "-", "--from", name, "--to", "mqsim", "--strict"]);
        assert!(back == said_by(name, &whole), "{name}");
    }
    let few = made("d.gz", "5", &["--requests", "10", "--format", "msr"]);
    assert_eq!((&few["requests"], &few["format"]), (&10.into(), &"msr".into()), "{few}");
    assert!(pool.run(["trace", "convert", "d.gz", "-", "--to", "mqsim"]).lines().count() == 10);
    let said =
        pool.run(["trace", "generate", "oltp+backup", "--out", "-", "--format", "spc", "--duration", "1s"]);
    assert!(said.lines().count() > 500, "{said}");
}

/// Returns lines of `mqsim` as they are after a conversion through another format: some formats start at
/// zero, some have whole seconds, one has no operations.
fn said_by(format: &str, text: &str) -> String {
    let unit = if ["tencent", "oracle"].contains(&format) { 1_000_000_000 } else { 1 };
    let time = |line: &str| {
        let (time, _) = line.split_once(' ').expect("blanks");
        time.parse::<u64>().expect("a time") / unit * unit
    };
    let first = text.lines().next().map(time).filter(|_| ["fio-2", "oracle"].contains(&format));
    let line = |line: &str| {
        let (rest, op) = line.split_once(' ').and_then(|(_, rest)| rest.rsplit_once(' ')).expect("blanks");
        let op = if format == "oracle" { "1" } else { op };
        format!("{} {rest} {op}\n", time(line) - first.unwrap_or(0))
    };
    text.lines().map(line).collect()
}

#[test]
fn invalid_synthetic_loads_are_rejected() {
    let pool = pool();
    let says = |arguments: &[&str], code: i32, part: &str| {
        let said = pool.refused(&[&["trace", "generate"], arguments].concat(), code);
        assert!(said.contains(part), "{part:?} should be in:\n{said}");
        assert!(!pool.path("out").exists());
    };
    says(&["zap", "--out", "out"], USAGE, "begin it with zipf, hotcold, uniform, scan or sweep");
    says(&["zipf", "part=101%", "--out", "out"], USAGE, "part must be from 0% to 100%");
    says(&["zipf", "at=100B", "--out", "out"], USAGE, "at must be whole sectors");
    says(&["zipf", "--out", "out", "--format", "hpl"], USAGE, "not written as hpl");
    says(&["zipf", "--out", "."], REFUSED, "not a regular file");
    says(&["zipf", "--out", "out.gz"], USAGE, "out.gz would be packed twice");
}

#[test]
fn analysis_has_a_page_a_document_and_plots() {
    let pool = pool();
    let words = "hotcold part=10% hits=90% reads=75% over=64MiB rate=2000 for=20s & scan size=64KiB over=64MiB rate=100 for=20s";
    pool.run(["trace", "generate", words, "--out", "a<b>.trace"]);
    let told = pool.json(&["trace", "analyze", "a<b>.trace", "--policy", "lru,sieve", "--html", "page.html"]);
    assert_eq!(
        (&told["blocks"], &told["block_bytes"]),
        (&16_384.into(), &4096.into()),
        "the scan touches all of it"
    );
    let of = |path: &str| told.pointer(path).and_then(serde_json::Value::as_f64).expect(path);
    assert!((0.74..0.78).contains(&of("/read_share")), "{told}");
    assert!((0.9..1.1).contains(&of("/arrivals/variation")), "arrivals are a Poisson process: {told}");
    assert_eq!(told["critical"][0]["blocks"], 16_384);
    let curve = |number: usize| told["curves"][number].clone();
    assert_eq!((&curve(0)["policy"], &curve(1)["policy"]), (&"lru".into(), &"sieve".into()));
    // The exact curve agrees with the simulator.
    let played = pool.json(&["sim", "cache", "a<b>.trace", "--policy", "lru,sieve", "--size", "10%,50%"]);
    for (row, policy, percent) in [(0, 0, 10), (1, 0, 50), (2, 1, 10), (3, 1, 50)] {
        let size = &played["results"][row]["size_blocks"];
        let points = curve(policy)["points"].as_array().cloned().expect("points");
        let point = points.iter().find(|point| point["size_blocks"] == *size).expect("the size");
        let played = &played["results"][row];
        let misses =
            played["misses"].as_f64().expect("misses") / played["accesses"].as_f64().expect("accesses");
        let off = (point["miss_ratio"].as_f64().expect("a ratio") - misses).abs();
        let most = if policy == 0 { 1e-12 } else { 4.0 * point["error"].as_f64().expect("an error") + 0.002 };
        assert!(off <= most, "{percent} %: {point}, {misses}");
    }
    let page = std::fs::read_to_string(pool.path("page.html")).expect("written");
    assert!(page.starts_with("<!doctype html>") && page.matches("<svg").count() == 7, "{}", &page[..300]);
    assert!(page.contains("<h1>a&lt;b&gt;.trace") && !page.contains("a<b>"));
    assert!(!page.contains("href=") && !page.contains("src="), "nothing is loaded from elsewhere");
    let text = pool.run(["trace", "analyze", "a<b>.trace"]);
    for part in [
        "Critical cache size",
        "sequential+touch_count",
        "s3fifo",
        "write after write",
        "index of dispersion",
        "64.0 MiB",
    ] {
        assert!(text.contains(part), "{part:?} should be in:\n{text}");
    }
    for (what, out) in [("mrc", "a.svg"), ("heat", "a.png"), ("footprint", "b.svg")] {
        pool.json(&["trace", "plot", "a<b>.trace", "--what", what, "--out", out]);
        let bytes = std::fs::read(pool.path(out)).expect("written");
        assert!(bytes.starts_with(if out.ends_with("png") { b"\x89PNG" } else { b"<svg" }), "{out}");
    }
}

#[test]
fn large_traces_are_analysed_by_sampling() {
    let pool = pool();
    pool.run(["trace", "generate", "zipf", "over=256MiB", "--requests", "100000", "--out", "t"]);
    let told =
        |more: &[&str]| pool.json(&[&["trace", "analyze", "t", "--policy", "lru,fifo"], more].concat());
    let all = told(&["--blocks", "100000"]);
    let some = told(&["--blocks", "4096", "--sample", "1024blk"]);
    assert!(all["sampled"].is_null() && all["notes"] == serde_json::json!([]), "{all}");
    assert_eq!((&some["accesses"], &some["reads"]["bytes"]), (&all["accesses"], &all["reads"]["bytes"]));
    let of = |told: &serde_json::Value, path: &str| {
        told.pointer(path).and_then(serde_json::Value::as_f64).expect(path)
    };
    let off = of(&some, "/blocks") / of(&all, "/blocks") - 1.0;
    assert!(off.abs() <= 4.0 * of(&some, "/sampled/error"), "{off}");
    assert!((2..=4096).contains(&(of(&some, "/sampled/blocks") as u64)), "{some}");
    assert!((2..=1024).contains(&(of(&some, "/curves/1/sampled_blocks") as u64)), "{some}");
    let note = some["notes"][0].as_str().expect("a note");
    assert!(note.contains("too many blocks to look at each") && note.contains("--blocks"), "{note}");
    for (sample, parts) in [("0blk", "write a percentage"), ("5", "100000blk")] {
        let said = pool.refused(&["trace", "analyze", "t", "--sample", sample], USAGE);
        assert!(said.contains(parts), "{said}");
    }
}

#[test]
fn one_disk_of_a_trace_is_analysed_alone() {
    let pool = pool();
    std::fs::write(pool.path("t"), "0 0 4096 8 1\n1000 7 8192 8 0\n2000 0 4096 8 1\n").expect("written");
    let analyse =
        |more: &[&str]| pool.json(&[&["trace", "analyze", "t", "--format", "mqsim"], more].concat());
    let [all, one] = [analyse(&[]), analyse(&["--disk", "7"])];
    assert_eq!((&all["disks"], &one["disks"]), (&["0", "7"][..].into(), &["7"][..].into()));
    assert_eq!((&all["accesses"], &one["accesses"]), (&3.into(), &1.into()));
    let said = pool.refused(&["trace", "analyze", "t", "--format", "mqsim", "--disk", "1"], USAGE);
    assert!(said.contains("has no disk \"1\"") && said.contains("name one of 0, 7"), "{said}");
    let said = pool.refused(&["trace", "plot", "nowhere", "--out", "x.svg"], USAGE);
    assert!(said.contains("no trace nowhere"), "{said}");
    // Without times, the analysis omits what depends on them.
    std::fs::write(pool.path("pages"), "1 1 0 0\n2 1 0 0\n1 1 0 0\n").expect("written");
    let untimed = pool.json(&["trace", "analyze", "pages"]);
    assert!(untimed["arrivals"].is_null() && untimed["reuse_times"].is_null(), "{untimed}");
    assert_eq!(untimed["timeline"]["windows"].as_array().map(Vec::len), Some(3));
}

#[test]
fn failed_conversion_leaves_no_file() {
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
    says(&[".", "out"], USAGE, &[". is a folder", "name a trace in it"]);
    says(&[".", "out", "--skip", "1"], USAGE, &[". is a folder"]);
    says(&["bad", "out", "--skip", "1", "--start", "1s"], USAGE, &["--skip", "--start"]);
    says(&["bad", "out", "--requests", "0"], USAGE, &["--requests"]);
    says(&["text", "out"], USAGE, &["hello, world", "one of weir, msr"]);
    says(
        &["bad", "out", "--from", "mqsim", "--to", "hpl"],
        USAGE,
        &["not written as hpl", "one of weir, msr"],
    );
    says(&["bad", "out", "--to", "magic"], USAGE, &["no format is called", "csv:COLUMN"]);
    says(
        &["bad", "out", "--strict", "--from", "mqsim"],
        USAGE,
        &["bad, line 2, column 7", "correct the line"],
    );
    says(&["bad", "text", "--from", "mqsim"], REFUSED, &["text already exists", "--force"]);
    says(&["bad", "out.gz", "--from", "mqsim"], USAGE, &["out.gz would be packed twice", "leave .gz off"]);
    says(&["bad", ".", "--from", "mqsim", "--force"], REFUSED, &["not a regular file"]);
    says(&["bad", "out", "--from", "mqsim", "--strict"], USAGE, &["bad, line 2"]);
    let told = pool.json(&["trace", "convert", "bad", "text", "--from", "mqsim", "--force"]);
    assert_eq!((&told["requests"], &told["malformed_lines"]), (&2.into(), &1.into()), "{told}");
}

#[test]
fn requests_are_found_by_number() {
    let pool = pool();
    let line = |n: u64| format!("{} {} {} 8 1\n", n * 1_000_000, n / 20_000, n * 8);
    std::fs::write(pool.path("t"), (0..60_000).map(line).collect::<String>()).expect("written");
    pool.run(["trace", "convert", "t", "own"]);
    let expected: String = (41_234..41_239).map(line).collect();
    for trace in ["t", "own"] {
        let part = ["--skip", "41234", "--requests", "5"];
        let told = pool.json(&[&["trace", "convert", trace, "part", "--force"], &part[..]].concat());
        assert_eq!((&told["requests"], &told["disks"]), (&5.into(), &serde_json::json!(["2"])), "{told}");
        // The only disk of a trace gets number 0.
        let text = pool.run(["trace", "convert", "part", "-", "--to", "mqsim"]);
        assert_eq!(text, expected.replace(" 2 ", " 0 "), "{trace}");
        let told = pool.json(&["trace", "analyze", trace, "--skip", "59000", "--disk", "2"]);
        assert_eq!(told["reads"]["requests"], 1000, "{told}");
        let said = pool.refused(&["trace", "convert", trace, "-", "--skip", "60000"], USAGE);
        assert!(said.contains(&format!("{trace} holds no request in that part of it")), "{said}");
    }
}

#[test]
fn merged_disks_are_reported() {
    let pool = pool();
    std::fs::write(pool.path("t"), "0 0 0 8 1\n1 1 0 8 0\n").expect("written");
    let note = |to: &str| {
        let told = pool.json(&["trace", "convert", "t", "out", "--from", "mqsim", "--to", to, "--force"]);
        told["notes"].to_string()
    };
    for merged in ["oracle", "vscsi"] {
        let said = note(merged);
        assert!(said.contains("all 2 disks are one") && said.contains("weir or msr"), "{said}");
        let told = pool.json(&["trace", "convert", "out", "again", "--force"]);
        assert_eq!(told["disks"].as_array().map(Vec::len), Some(1), "{told}");
    }
    // All other formats record the disk of a request.
    let formats = pool.json(&["trace", "formats"]);
    let written = formats["formats"].as_array().expect("formats").iter();
    let written = written.filter(|format| format["writable"] == true);
    let names: Vec<_> = written.map(|format| format["name"].as_str().expect("a name")).collect();
    assert!(names.len() > 8, "{names:?}");
    for name in names.into_iter().filter(|name| !["oracle", "vscsi"].contains(name)) {
        assert_eq!(note(name), "[]", "{name}");
        let told = pool.json(&["trace", "convert", "out", "again", "--from", name, "--force"]);
        assert_eq!(told["disks"].as_array().map(Vec::len), Some(2), "{name}: {told}");
    }
    let words = "zipf over=1MiB | zipf over=1MiB";
    let told =
        pool.json(&["trace", "generate", words, "--requests", "9", "--out", "g", "--format", "oracle"]);
    assert!(told["notes"].to_string().contains("all 2 disks are one"), "{told}");
}

#[test]
fn part_of_a_trace_can_be_selected() {
    let pool = pool();
    let text: String =
        (0..60_000u64).map(|n| format!("{} 0 {} 8 1\n", 5_000_000 + n * 1_000_000, n * 8)).collect();
    std::fs::write(pool.path("t"), &text).expect("written");
    pool.run(["trace", "convert", "t", "own"]);
    let part = ["--start", "40s", "--end", "41s", "--to", "mqsim"];
    let lines = text.lines().skip(40_000).take(1000).map(|line| line.to_owned() + "\n").collect::<String>();
    for trace in ["t", "own"] {
        assert_eq!(pool.run([&["trace", "convert", trace, "-"], &part[..]].concat()), lines, "{trace}");
        let told = pool.json(&["trace", "analyze", trace, "--start", "59s"]);
        assert_eq!(told["reads"]["requests"], 1000, "{told}");
    }
    let said = pool.refused(&["trace", "analyze", "own", "--start", "2s", "--end", "1s"], USAGE);
    assert!(said.contains("--end is not after --start"), "{said}");
    for beyond in [
        &["trace", "analyze", "own", "--start", "61s"][..],
        &["trace", "convert", "own", "-", "--start", "61s"],
    ] {
        let said = pool.refused(beyond, USAGE);
        assert!(said.contains("own holds no request in that part of it"), "{said}");
    }
}

#[test]
fn adjacent_hot_regions_are_distinguished() {
    let pool = pool();
    let mut trace = String::new();
    for (at, mib) in [11_379_u64, 11_380, 11_381].into_iter().cycle().take(30).enumerate() {
        trace += &format!("{},hm,0,Read,{},4096,10\n", 128_166_385_295_514_663 + at as u64 * 1000, mib << 20);
    }
    std::fs::write(pool.path("near.csv"), trace).expect("a trace");
    let told = pool.run(["trace", "analyze", "near.csv", "--format", "msr"]);
    for at in ["11,379 MiB", "11,380 MiB", "11,381 MiB"] {
        assert_eq!(told.matches(&format!("the MiB at {at} of disk")).count(), 1, "{at}:\n{told}");
    }
}

#[test]
fn requests_at_one_time_have_no_rate() {
    let pool = pool();
    std::fs::write(pool.path("second.csv"), "1538323200,12910952,128,0,1063\n".repeat(5)).expect("a trace");
    let told = pool.run(["trace", "analyze", "second.csv", "--format", "tencent"]);
    assert!(
        told.contains("unknown: all requests have the same time") && !told.contains("0.000 requests/s"),
        "{told}"
    );
    let told = pool.json(&["trace", "analyze", "second.csv", "--format", "tencent"]);
    assert!(told["arrivals"]["rate"].is_null() && told["arrivals"]["seconds"] == 0.0, "{told}");
}

#[test]
fn plot_reports_notes_on_the_trace() {
    let pool = pool();
    let lines: String = (0..99).map(|at| format!("{}.125 0 {} 8 {}\n", at * 7, at * 64, at % 2)).collect();
    std::fs::write(pool.path("t"), &lines).expect("written");
    let told = pool.run(["trace", "plot", "t", "--out", "t.svg"]);
    assert!(told.contains("t.svg is drawn") && told.contains("note: the format is ambiguous"), "{told}");
    // The limit simulates a full disk.
    let script =
        format!("trap '' XFSZ; ulimit -f 2; exec {} trace plot t --out u.svg", env!("CARGO_BIN_EXE_weir"));
    let full =
        Command::new("sh").args(["-c", &script]).current_dir(pool.folder.path()).output().expect("sh runs");
    assert_eq!(full.status.code(), Some(5), "{}", String::from_utf8_lossy(&full.stderr));
    assert!(!pool.path("u.svg").exists(), "half a picture is none");
}

#[test]
fn damage_in_compressed_trace_is_located() {
    let pool = pool();
    let line = |at: u64| format!("{at}.5 0 {} 8 1\n", at * 7_919 % 100_000 * 8);
    std::fs::write(pool.path("t"), (0..3000).map(line).collect::<String>()).expect("written");
    let packed =
        Command::new("gzip").args(["-nk", "t"]).current_dir(pool.folder.path()).status().expect("gzip runs");
    assert!(packed.success());
    let whole = std::fs::read(pool.path("t.gz")).expect("packed");
    for at in (whole.len() / 4..whole.len()).step_by(whole.len() / 16) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        std::fs::write(pool.path("d.gz"), damaged).expect("written");
        for command in [&["trace", "analyze", "d.gz"][..], &["sim", "cache", "d.gz"]] {
            let output = pool.weir(command);
            let said = [output.stdout, output.stderr]
                .map(|text| String::from_utf8_lossy(&text).into_owned())
                .concat();
            assert!(said.contains("near byte"), "byte {at}, {command:?}: {said}");
        }
    }
}

#[test]
fn interrupted_conversion_leaves_no_file() {
    let pool = Pool::small();
    let load = "uniform over=1GiB rate=100000 for=100h";
    for (signal, file) in [("-INT", "a.csv"), ("-TERM", "b.csv")] {
        let child = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["trace", "generate", load, "--out", file])
            .current_dir(pool.folder.path())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("weir starts");
        let part = pool.path(&format!("{file}.{}.part", child.id()));
        while !part.metadata().is_ok_and(|found| found.len() > 0) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let sent = std::process::Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(sent.is_ok_and(|sent| sent.success()));
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(5), "{said}");
        assert!(said.contains("interrupted; the unfinished trace is removed"), "{said}");
        assert!(!part.exists() && !pool.path(file).exists());
    }
}
