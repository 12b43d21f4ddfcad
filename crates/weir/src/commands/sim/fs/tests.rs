//! Tests that reports of simulated file systems fit the terminal, and that arguments reach the simulation.

use super::run;
use crate::output::Width;
use crate::output::testing::assert_fits;
use clap::Parser as _;
use serde_json::Value;

#[derive(clap::Parser)]
struct Words {
    #[command(flatten)]
    args: super::FsArgs,
}

fn parse(more: &[&str]) -> super::FsArgs {
    Words::parse_from([&["fs", "postmark scale=1/200"][..], more].concat()).args
}

fn results(more: &[&str]) -> Vec<Value> {
    let comparison = run(&parse(more)).expect("outcomes");
    let document = serde_json::to_value(comparison.document()).expect("a document");
    document["results"].as_array().expect("results").clone()
}

#[test]
fn reports_fit_the_terminal() {
    let several =
        ["--nvm", "none,1MiB", "--eviction", "trident,lru", "--distribution", "trident,round_robin"];
    for more in [&[][..], &several] {
        let comparison = run(&parse(more)).expect("outcomes");
        assert_fits(|width| comparison.human(width));
        let text = comparison.human(Width::columns(80));
        assert!(text.contains("WORK/S") && text.contains("st3750528as"), "{text}");
    }
}

/// A narrow terminal shows what varies.
#[test]
fn settings_that_vary_come_first() {
    let heading = |more: &[&str]| {
        let text = run(&parse(more)).expect("outcomes").human(Width::columns(80));
        let line = text.lines().find(|line| line.starts_with('#')).expect("a heading");
        line.split("  ").map(str::trim).filter(|name| !name.is_empty()).take(4).collect::<Vec<_>>().join(",")
    };
    assert_eq!(heading(&["--nvm", "1MiB"]), "#,NVM,EVICTION,DISTRIBUTION");
    assert_eq!(heading(&["--nvm", "1MiB", "--promotion", "hot,never"]), "#,PROMOTION,WORK/S,BYTES/S");
    assert_eq!(heading(&["--nvm", "1MiB,2MiB", "--omega", "1,1000"]), "#,NVM,OMEGA,WORK/S");
}

/// Each combination is simulated once: without NVM, eviction and promotion have no choice.
#[test]
fn every_combination_is_simulated_once() {
    let several = results(&[
        "--nvm",
        "none,1MiB,2MiB",
        "--eviction",
        "trident,lru",
        "--omega",
        "1,1000",
        "--promotion",
        "hot,never",
    ]);
    assert_eq!(several.len(), 1 + 2 * (2 + 1) * 2);
    assert_eq!((&several[0]["nvm_bytes"], &several[0]["eviction"]), (&Value::Null, &Value::Null));
    assert_eq!((&several[1]["omega"], &several[1]["promotion"]), (&1.0.into(), &"hot".into()));
}

#[test]
fn settings_may_concern_some_combinations_only() {
    let some = ["--nvm", "none,1MiB", "--eviction", "trident,lru", "--distribution", "trident,by_size"];
    let settings = ["--high", "95%", "--omega", "1", "--dirty", "1MiB", "--size-threshold", "2MiB"];
    assert_eq!(results(&[&some[..], &settings].concat()).len(), (1 + 2) * 2);
}

#[test]
fn tiers_and_file_systems_are_those_of_the_arguments() {
    let of = |more: &[&str]| {
        let tiers = results(more)[0]["outcome"]["tiers"].as_array().expect("tiers").clone();
        let name = |tier: &Value| format!("{} {}", tier["file_system"], tier["drive"]).replace('"', "");
        tiers.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(of(&["--bottom", "fat"]), ["fat intel-x25-m-g2", "fat st3750528as"]);
    let three = ["--tier", "nvm=1GB", "--tier", "ssd-sata=1GB", "--tier", "hdd-7200=1GB"];
    let names = of(&[&three[..], &["--bottom", "nilfs2,ext4"]].concat());
    assert_eq!(names, ["nilfs2 nvm", "ext4 ssd-sata", "ext4 hdd-7200"]);
}

#[test]
fn given_rates_decide_the_shares() {
    let share = |rates: &str| {
        let more = ["--nvm", "1MiB", "--distribution", "greedy", "--rates", rates];
        results(&more)[0]["outcome"]["tiers"][0]["evicted_share"].as_f64().expect("a share")
    };
    assert!((share("30MB,10MB") - 0.75).abs() < 0.05 && (share("10MB,30MB") - 0.25).abs() < 0.05);
}

#[test]
fn impossible_arguments_are_refused_with_a_way_out() {
    let said = |more: &[&str]| {
        let failure = run(&parse(more)).expect_err("refused");
        format!("{}; {}", failure.message, failure.help)
    };
    assert!(said(&["--high", "50%"]).contains("--low 85% is above --high 50%; lower it"));
    assert!(said(&["--rates", "10MB"]).contains("1 rates for 2 tiers; give one for each"));
    assert!(said(&["--nvm", "8KiB"]).contains("too small; give it 64 KiB or more"));
    for (option, value, others, why) in [
        ("--omega", "1", ["--eviction", "lru,fifo"], "without --eviction trident"),
        ("--omega", "1", ["--nvm", "none"], "with --nvm none"),
        ("--eviction", "lru", ["--nvm", "none"], "with --nvm none"),
        ("--promotion", "never", ["--nvm", "none"], "with --nvm none"),
        ("--high", "95%", ["--nvm", "none"], "with --nvm none"),
        ("--low", "50%", ["--nvm", "none"], "with --nvm none"),
        ("--dirty", "1MiB", ["--nvm", "1MiB"], "without --nvm none"),
        ("--size-threshold", "2MiB", ["--distribution", "trident"], "without --distribution by_size"),
    ] {
        let refusal = said(&[&[option, value][..], &others].concat());
        assert!(
            refusal.starts_with(&format!("{option} does nothing {why}; leave {option} out, or ")),
            "{refusal}"
        );
    }
    let refused = |words: &[&str]| Words::try_parse_from(words).err().expect("refused").to_string();
    assert!(refused(&["fs", "untar", "--tier", "floppy=1GB"]).contains("no model of \"floppy\"; there are"));
    assert!(refused(&["fs", "untar", "--tier", "nvm"]).contains("such as ssd-sata=500GB"));
    assert!(refused(&["fs", "untar", "--nvm", "much"]).contains("or none"));
    assert!(refused(&["fs", "untar", "--nvm", "1KiB"]).contains("1 KiB is too small: write 4 KiB or more"));
    assert!(refused(&["fs", "untar", "--tier", "nvm=1KiB"]).contains("1 KiB is too small"));
    assert!(refused(&["fs", "untar", "--omega", "-3"]).contains("write a number from 0 to 1e15"));
    assert!(Words::try_parse_from(["fs", "untar", "--tier", "nvm=1.3MiB"]).is_ok(), "rounded down");
}
