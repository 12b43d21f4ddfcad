//! `weir advise` recommends devices for a trace.

use crate::harness::Pool;
use serde_json::Value;
use weir::pool_file;

const USAGE: i32 = 2;
const REFUSED: i32 = 3;

/// Returns a folder with a trace of 64 MiB, nine tenths of whose requests go to one tenth of it.
fn folder() -> Pool {
    let pool = Pool::from_text("");
    let words = "hotcold part=10% hits=90% reads=70% over=64MiB rate=30 for=600s";
    pool.run(["trace", "generate", words, "--out", "t"]);
    pool
}

/// A device list of two SSDs and a disk.
const LIST: &str = "currency = \"EUR\"\n\
    [[device]]\nname = \"ssd\"\nabout = \"An SSD\"\nsize = \"100GB\"\nprice = 40\nendurance = \"60TB\"\nmodel = \"ssd-sata\"\n\
    [[device]]\nname = \"large-ssd\"\nsize = \"1TB\"\nprice = 400\nendurance = \"600TB\"\nmodel = \"ssd-sata\"\n\
    [[device]]\nname = \"disk\"\nabout = \"A disk\"\nsize = \"1TB\"\nprice = 50\nmodel = \"hdd-7200\"\n";

fn set<'a>(told: &'a Value, name: &str) -> &'a Value {
    let sets = told["sets"].as_array().expect("sets");
    sets.iter().find(|set| set["name"] == name).unwrap_or_else(|| panic!("{name} should be in {told}"))
}

#[test]
fn advice_has_a_pick_a_plot_and_a_valid_pool_file() {
    let pool = folder();
    std::fs::write(pool.path("list.toml"), LIST).expect("written");
    let arguments = ["advise", "t", "--devices", "list.toml", "--active", "500GB"];
    let more = ["--plot", "p.svg", "--write-pool", "bought.toml"];
    let told = pool.json(&[&arguments[..], &more].concat());
    assert_eq!((&told["currency"], &told["held_out"]), (&"EUR".into(), &false.into()), "{told}");
    let pick = set(&told, told["pick"].as_str().expect("a name"));
    assert_eq!((&pick["pick"], &pick["finalist"]), (&true.into(), &true.into()));
    let mean = |set: &Value, of: &str| set[of]["mean_ns"].as_f64().expect("a mean");
    let alone = set(&told, "disk");
    assert!(alone["predicted"]["life_years"].is_null() && alone["price"] == 50.0, "{alone}");
    // For the sets on which the engine ran, the result is of the order of the prediction.
    let ran: Vec<_> =
        told["sets"].as_array().expect("sets").iter().filter(|set| !set["simulated"].is_null()).collect();
    assert!((2..=6).contains(&ran.len()), "{told}");
    for set in &ran {
        let ratio = mean(set, "predicted") / mean(set, "simulated");
        assert!((0.2..5.0).contains(&ratio), "{set}");
    }
    assert!(mean(set(&told, "ssd + disk"), "predicted") < mean(alone, "predicted") / 2.0, "{told}");
    let picture = std::fs::read_to_string(pool.path("p.svg")).expect("a picture");
    assert!(picture.starts_with("<svg") && picture.contains("price, EUR"), "{}", &picture[..200]);
    // The commands that use the pool file read it with this parser.
    let text = std::fs::read_to_string(pool.path("bought.toml")).expect("a pool file");
    let bought = pool_file::parse(&text).unwrap_or_else(|mistakes| panic!("{mistakes} in\n{text}"));
    assert_eq!(bought.policy, "adaptive");
    let counts = pick["devices"].as_array().expect("devices").iter().map(|kind| kind["count"].as_u64());
    assert_eq!(bought.devices.len() as u64, counts.map(|count| count.expect("a count")).sum::<u64>());
    // With sizes and paces uncommented, the pool file can be simulated.
    let tried = text.replace("# size", "size").replace("# pace", "pace");
    std::fs::write(pool.path("pool.toml"), &tried).expect("written");
    pool.json(&["sim", "place", "t", "--duration", "20s"]);
    // A second run does not overwrite the file unless asked.
    let said = pool.refused(&[&arguments[..], &more].concat(), REFUSED);
    assert!(said.contains("bought.toml already exists") && said.contains("--force"), "{said}");
    std::fs::write(pool.path("bought.toml"), "mine").expect("written");
    let table = pool.run([&arguments[..], &more, &["--force"]].concat());
    for part in ["Buy ", " EUR", "PREDICTED MEAN", "The pool file is bought.toml", "->"] {
        assert!(table.contains(part), "{part:?} should be in:\n{table}");
    }
    assert_eq!(std::fs::read_to_string(pool.path("bought.toml")).expect("there"), text, "the same again");
}

#[test]
fn limits_determine_the_pick() {
    let pool = folder();
    std::fs::write(pool.path("list.toml"), LIST).expect("written");
    let told = |more: &[&str]| {
        let arguments = ["advise", "t", "--devices", "list.toml", "--active", "500GB", "--requests", "6000"];
        pool.json(&[&arguments[..], more].concat())
    };
    let cheap = told(&["--budget", "60"]);
    assert_eq!((&cheap["pick"], &cheap["rule"]), (&"disk".into(), &"fastest".into()), "{cheap}");
    assert_eq!(cheap["requests"], 6000);
    assert!(cheap["notes"].to_string().contains("--requests says how many"), "{cheap}");
    let fast = told(&["--max-mean", "500us"]);
    assert_eq!((&fast["pick"], &fast["rule"]), (&"7 x ssd".into(), &"cheapest".into()), "{fast}");
    let arguments = [
        "advise",
        "t",
        "--devices",
        "list.toml",
        "--active",
        "500GB",
        "--requests",
        "6000",
        "--max-p99",
        "1us",
    ];
    let said = pool.refused(&arguments, REFUSED);
    assert!(said.contains("nothing on the list keeps to the limits") && said.contains("--max-p99"), "{said}");
    // A set that is better except for the life of its flash is not reported as worse.
    std::fs::write(pool.path("list.toml"), LIST.replace("0TB\"\nmodel", "0MB\"\nmodel")).expect("written");
    let long = told(&[]);
    assert_eq!(long["pick"], "disk", "{long}");
    let words = long["summary"].to_string();
    for part in ["ratio of speed to price of the simulated sets whose flash lasts 5 years", "; the flash of "]
    {
        assert!(words.contains(part), "{part:?} should be in {words}");
    }
    std::fs::write(pool.path("list.toml"), LIST).expect("written");
    let halves = told(&["--held-out"]);
    assert_eq!((&halves["held_out"], &halves["requests"]), (&true.into(), &3000.into()), "{halves}");
}

#[test]
fn the_list_that_comes_with_weir_can_be_printed_edited_and_used() {
    let pool = folder();
    let list = pool.run(["advise", "--print-devices"]);
    assert!(list.contains("[device.sources]") && list.contains("recalled"), "{list}");
    std::fs::write(pool.path("mine.toml"), list.replace("currency = \"USD\"", "currency = \"CHF\""))
        .expect("written");
    let told = pool.json(&["advise", "t", "--devices", "mine.toml", "--requests", "3000"]);
    assert_eq!(
        (&told["currency"], &told["capacity_bytes"]),
        (&"CHF".into(), &told["footprint_bytes"]),
        "{told}"
    );
}

/// Some memory and an SSD cost more than one SSD, and less than two.
#[test]
fn two_fast_kinds_are_picked_if_best() {
    let pool = folder();
    let list = "currency = \"EUR\"\n\
        [[device]]\nname = \"memory\"\nsize = \"25GB\"\nprice = 20\nmodel = \"nvm\"\n\
        [[device]]\nname = \"ssd\"\nsize = \"50GB\"\nprice = 40\nendurance = \"60TB\"\nmodel = \"samsung-980-pro\"\n\
        [[device]]\nname = \"disk\"\nsize = \"1TB\"\nprice = 50\nmodel = \"hdd-7200\"\n";
    std::fs::write(pool.path("list.toml"), list).expect("written");
    let arguments = ["advise", "t", "--devices", "list.toml", "--active", "500GB", "--budget", "115"];
    let told = pool.json(&[&arguments[..], &["--write-pool", "bought.toml"]].concat());
    assert_eq!(told["pick"], "memory + ssd + disk", "{told}");
    let pick = set(&told, "memory + ssd + disk");
    assert_eq!((&pick["frontier"], &pick["price"]), (&true.into(), &110.0.into()), "{pick}");
    // A simulation shows what the second kind of device gains.
    let sets = told["sets"].as_array().expect("sets").iter();
    let of_one = sets.filter(|set| set["devices"].as_array().is_some_and(|kinds| kinds.len() == 2));
    assert!(of_one.into_iter().any(|set| !set["simulated"].is_null()), "{told}");
    let share = |of: &str| pick["predicted"][of].as_f64().expect("a share");
    assert!(0.0 < share("fastest_share") && share("fastest_share") < share("hit_share"), "{pick}");
    let words = told["summary"].to_string();
    assert!(words.contains("% the faster kind"), "{words}");
    let text = std::fs::read_to_string(pool.path("bought.toml")).expect("a pool file");
    let bought = pool_file::parse(&text).unwrap_or_else(|mistakes| panic!("{mistakes} in\n{text}"));
    let names: Vec<_> = bought.devices.iter().map(|device| &device.name[..]).collect();
    assert_eq!(names, ["fast", "middle", "slow"], "{text}");
    let tried = text.replace("# size", "size").replace("# pace", "pace");
    std::fs::write(pool.path("pool.toml"), &tried).expect("written");
    pool.json(&["sim", "place", "t", "--duration", "20s"]);
}

#[test]
fn a_trace_without_times_is_given_a_rate() {
    let pool = Pool::from_text("");
    let pages: String = (0..4000u64).map(|n| format!("{} 1 0 0\n", n * 7919 % 1000)).collect();
    std::fs::write(pool.path("pages"), pages).expect("written");
    let said = pool.refused(&["advise", "pages"], USAGE);
    assert!(said.contains("pages has no times") && said.contains("--rate 500"), "{said}");
    let told = pool.json(&["advise", "pages", "--rate", "20"]);
    assert_eq!(told["requests"], 4000, "{told}");
    let said = pool.refused(&["advise", "pages", "--rate", "1e-6"], USAGE);
    assert!(said.contains("4000 requests take 46285 days, more than the 30 days"), "{said}");
    let (_, least) = said.split_once("at least --rate ").expect("a way out");
    let least: f64 = least.split(',').next().and_then(|least| least.parse().ok()).expect("a number");
    assert!((3999.0 / 2_592_000.0..0.0016).contains(&least), "{said}");
}

#[test]
fn invalid_arguments_are_rejected() {
    let pool = folder();
    std::fs::write(pool.path("bad.toml"), LIST.replace("100GB", "100")).expect("written");
    std::fs::write(pool.path("odd.toml"), LIST.replace("ssd-sata", "punch-cards")).expect("written");
    std::fs::write(pool.path("trims"), "version https 1\n").expect("written");
    let says = |arguments: &[&str], code: i32, parts: &[&str]| {
        let said = pool.refused(&[&["advise"], arguments].concat(), code);
        for part in parts {
            assert!(said.contains(part), "{part:?} should be in:\n{said}");
        }
    };
    says(&[], USAGE, &["TRACE"]);
    says(&["nowhere"], USAGE, &["no trace nowhere"]);
    says(&["trims"], USAGE, &["trims"]);
    says(
        &["t", "--devices", "none.toml"],
        USAGE,
        &["no list of devices none.toml", "--print-devices > none.toml"],
    );
    says(&["t", "--devices", "bad.toml"], USAGE, &["bad.toml, line 5", "size is \"100\"", "500GB"]);
    says(&["t", "--devices", "odd.toml"], USAGE, &["model is \"punch-cards\"", "ssd-sata"]);
    says(&["t", "--capacity", "1MiB"], USAGE, &["--capacity 1 MiB is less than the ", "--active"]);
    says(&["t", "--capacity", "900PB"], USAGE, &["put larger devices on the list"]);
    says(&["t", "--budget=-1"], USAGE, &["from 0.01 up"]);
    says(&["t", "--budget=0.001"], USAGE, &["from 0.01 up"]);
    let few = |count: usize| {
        std::fs::write(pool.path("few"), "0.000 0 4096 512 1\n".repeat(count)).expect("written");
        format!("few has too few requests: {count}")
    };
    says(&["few", "--rate", "5"], USAGE, &[&few(1), "longer"]);
    says(&["few", "--rate", "5", "--held-out"], USAGE, &[&few(3), "takes 4"]);
    says(&["t", "--min-life", "x"], USAGE, &["years"]);
    says(&["t", "--write-pool", "."], REFUSED, &["not a regular file"]);
    says(&["t", "--write-pool", "bad.toml"], REFUSED, &["bad.toml already exists"]);
    says(&["t", "--write-pool", "t", "--force"], REFUSED, &["t is the trace itself"]);
    says(&["t", "--plot", "t"], REFUSED, &["t is the trace itself"]);
}
