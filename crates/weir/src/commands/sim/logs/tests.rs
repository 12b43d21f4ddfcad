//! Tests that reports of stacked logs fit the terminal.

use super::run;
use crate::output::Width;
use crate::output::testing::assert_fits;
use clap::Parser as _;

#[derive(clap::Parser)]
struct Words {
    #[command(flatten)]
    args: super::LogsArgs,
}

const LOAD: [&str; 4] = ["logs", "uniform reads=0% over=4MiB", "--upper-segment", "64KiB"];

#[test]
fn reports_fit_the_terminal() {
    let one = ["--lower-segment", "128KiB", "--divide", "10%,90%", "--defrag-every", "0.5", "--warm-up", "1"];
    let several = ["--lower-segment", "64KiB,4MiB", "--overwrites", "1", "--warm-up", "0"];
    for more in [&one[..], &several] {
        let words = [&LOAD[..], more].concat();
        let stacks = run(&Words::parse_from(words).args).expect("stacks");
        assert_fits(|width| stacks.human(width));
        let text = stacks.human(Width::columns(80));
        assert!(text.contains("TCWA") && text.contains("4 MiB of data"), "{text}");
        // What the figures cannot be compared without.
        for convention in ["10 % are kept free and 1 is open", "WARM-UP", "ratio: size of a layer", "seed 1"]
        {
            assert!(text.contains(convention), "{convention:?} should be in: {text}");
        }
    }
}

/// Conventions are those of the run: what is kept free, and how long the warm-up took.
#[test]
fn reports_state_the_conventions_of_the_run() {
    let more = ["--lower-segment", "128KiB", "--reserve", "20%", "--warm-up", "1", "--overwrites", "2"];
    let stacks = run(&Words::parse_from([&LOAD[..], &more].concat()).args).expect("a stack");
    let text = stacks.human(Width::UNLIMITED);
    assert!(text.contains("segments 20 % are kept free and 1 is open"), "{text}");
    let document = serde_json::to_value(stacks.document()).expect("a document");
    let outcome = &document["results"][0]["outcome"];
    let of = |name: &str| format!("{:.2} overwrites", outcome[name].as_f64().expect("a number"));
    assert_ne!(of("warm_up_overwrites"), of("measured_overwrites"), "{outcome}");
    assert!(text.contains(&of("warm_up_overwrites")), "{text}");
    assert!(!text.contains(&of("measured_overwrites")), "{text}");
}

/// Without options, segments fit a small load, and what is impossible names the options of its layer.
#[test]
fn default_segments_fit_small_loads() {
    let simulate = |words: &[&str]| run(&Words::parse_from([&["logs"], words].concat()).args);
    let small = "uniform reads=0% over=1MiB";
    let stacks = simulate(&[small, "--overwrites", "1"]).expect("a stack");
    let document = serde_json::to_value(stacks.document()).expect("a document");
    assert_eq!(document["results"][0]["segment_bytes"], serde_json::json!([96 << 10, 132 << 10]));
    let said = |words: &[&str]| {
        let failure = simulate(&[&[small], words].concat()).expect_err("refused");
        format!("{} -> {}", failure.message, failure.help)
    };
    let stuck = said(&["--lower-segment", "512KiB"]);
    assert!(
        stuck.contains("layer 2: cleaning is stuck") && stuck.contains("kept -> lower --lower-segment"),
        "{stuck}"
    );
    let few = said(&["--upper-segment", "1MiB"]);
    assert!(
        few.contains("log 1 of layer 1 has 1 segments") && few.contains("-> raise --upper-size"),
        "{few}"
    );
    let shares = said(&["--divide", "10%,80%"]);
    assert!(shares.contains("--divide add up to 90.0 % -> give shares"), "{shares}");
}

/// Sizes follow from the ratio, whichever layer has a given size.
#[test]
fn sizes_follow_from_the_ratio() {
    let sizes = |more: &[&str]| {
        let words = [&LOAD[..], &["--ratio", "50%", "--lower-segment", "64KiB"], more].concat();
        let comparison = run(&Words::parse_from(words).args).expect("a stack");
        let document = serde_json::to_value(comparison.document()).expect("a document");
        let layers = document["results"][0]["outcome"]["layers"].as_array().expect("layers").clone();
        let segments = |layer: &serde_json::Value| layer["logs"][0]["segments"].as_u64().expect("a number");
        layers.iter().map(segments).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&[]), [96, 213], "6 MiB on 6 MiB / 0.5 / 0.9");
    assert_eq!(sizes(&["--upper-size", "8MiB"]), [128, 284]);
    assert_eq!(sizes(&["--lower-size", "20MiB", "--layer", "128KiB"]), [144, 320, 355]);
}
