//! `weir sim logs` simulates a log on a log.

use crate::harness::Pool;

const USAGE: i32 = 2;
const LOAD: &str = "hotcold hot=first part=10% hits=90% reads=20% over=16MiB rate=1000";
/// Small segments, as the data is small.
const SEGMENTS: [&str; 4] = ["--upper-segment", "64KiB", "--warm-up", "2"];

fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["sim", "logs", LOAD][..], &SEGMENTS, more].concat()
}

#[test]
fn segments_and_ratios_are_compared() {
    let folder = Pool::empty_folder();
    let sweep = ["--ratio", "70%,90%", "--lower-segment", "64KiB,256KiB,1GiB", "--plot", "surface.svg"];
    let told = folder.json(&arguments(&sweep));
    crate::schemas::validate_as("sim logs", told.to_string().as_bytes());
    let results = told["results"].as_array().expect("results");
    assert_eq!(results.len(), 6, "{told}");
    let tcwa = |at: usize| results[at]["outcome"]["total_amplification"].as_f64().expect("a number");
    for ratio in [0, 3] {
        assert!(tcwa(ratio + 1) > 1.02 * tcwa(ratio), "larger lower segments cost copies: {told}");
        assert_eq!(results[ratio]["segment_bytes"], serde_json::json!([65_536, 65_536]));
        let error = results[ratio + 2]["error"].as_str().expect("an error");
        assert!(error.contains("log 1 of layer 2 has 0 segments of 1 GiB"), "{error}");
    }
    assert!(tcwa(4) > tcwa(1), "a larger device copies less: {told}");
    let picture = std::fs::read_to_string(folder.path("surface.svg")).expect("a picture");
    assert!(picture.contains("capacity ratio 90 %") && picture.contains("segment of the last layer"));
    let again = folder.json(&arguments(&sweep));
    assert_eq!(again, told, "the same again");
    let text = folder.run(arguments(&sweep));
    for part in ["TCWA", "64 KiB on 256 KiB", "greedy victims", "no TRIM", "seed 1", "make the layer larger"]
    {
        assert!(text.contains(part), "{part:?} should be in:\n{text}");
    }
}

/// All options together: several logs, TRIM, metadata, a third layer and the defragger.
#[test]
fn logs_of_a_stack_are_listed() {
    let folder = Pool::empty_folder();
    let options = [
        "--divide",
        "10%,90%",
        "--lower-segment",
        "128KiB",
        "--lower-logs",
        "2",
        "--layer",
        "256KiB",
        "--trim",
        "--lower-policy",
        "cost-benefit",
        "--checkpoint",
        "100",
        "--summary",
        "1",
        "--journal",
        "50",
        "--shift",
        "3",
        "--defrag-idle",
        "5ms",
        "--defrag-classes",
        "2",
    ];
    let told = folder.json(&arguments(&options));
    let outcome = &told["results"][0]["outcome"];
    let layers = outcome["layers"].as_array().expect("layers");
    let logs = layers.iter().map(|layer| layer["logs"].as_array().expect("logs").len());
    assert_eq!(logs.collect::<Vec<_>>(), [2, 2, 1], "{told}");
    assert!(outcome["defragger"]["pages"].as_u64() > Some(0), "{told}");
    assert!(layers[1]["logs"][0]["trimmed_pages"].as_u64() > Some(0), "{told}");
    assert!(layers[0]["logs"][1]["metadata_pages"].as_u64() > Some(0), "{told}");
    let text = folder.run(arguments(&options));
    for part in ["1.2", "2.1", "3.1", "METADATA", "victims: greedy, below cost-benefit", "TRIM passed down"] {
        assert!(text.contains(part), "{part:?} should be in:\n{text}");
    }
}

#[test]
fn impossible_stacks_are_refused() {
    let folder = Pool::empty_folder();
    std::fs::write(folder.path("pages"), "1 1 0 0\n2 1 0 0\n").expect("written");
    let says = |arguments: &[&str], parts: &[&str]| {
        let said = folder.refused(&[&["sim", "logs"], arguments].concat(), USAGE);
        for part in parts {
            assert!(said.contains(part), "{part:?} should be in:\n{said}");
        }
    };
    says(&["nowhere"], &["no trace nowhere", "zipf"]);
    says(&["pages", "--defrag-idle", "1s"], &["no times", "--defrag-every 1"]);
    says(&["uniform over=16MiB", "--lower-segment", "1GiB"], &["log 1 of layer 2", "lower --lower-segment"]);
    says(&["uniform over=16MiB"], &["without a write"]);
    let tight = ["uniform reads=0% over=16MiB", "--upper-size", "17MiB", "--upper-segment", "64KiB"];
    says(
        &[&tight[..], &["--lower-segment", "64KiB"]].concat(),
        &["log 1 of layer 1: cleaning is stuck", "raise --upper-size"],
    );
    says(&["uniform", "--divide", "50%", "--upper-logs", "2"], &["cannot be used with"]);
    says(&["uniform", "--defrag-classes", "2"], &["--defrag-idle", "--defrag-every"]);
    says(&["uniform", "--reserve", "95%"], &["--reserve", "at most 90%"]);
}
