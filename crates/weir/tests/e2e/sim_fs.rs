//! `weir sim fs` simulates a file system over NVM and tiers of modelled drives.

use crate::harness::Pool;

const USAGE: i32 = 2;

#[test]
fn sizes_of_nvm_and_policies_are_compared() {
    let folder = Pool::empty_folder();
    let arguments = ["sim", "fs", "postmark scale=1/50", "--nvm", "none,1MiB,16MiB", "--memory", "16MiB"];
    let told = folder.json(&arguments);
    crate::schemas::validate_as("sim fs", told.to_string().as_bytes());
    let results = told["results"].as_array().expect("results");
    assert_eq!(results.len(), 3, "{told}");
    let [_, little, much] = &results[..] else { panic!("{told}") };
    let rate = |result: &serde_json::Value| result["outcome"]["work_per_second"].as_f64().expect("a number");
    assert!(rate(much) > 1.5 * rate(little), "more NVM, less to write: {told}");
    assert_eq!(much["outcome"]["evicted_bytes"], 0, "all of it fits: {told}");
    assert_eq!(folder.json(&arguments), told, "the same again");
    let text = folder.run(arguments);
    for part in ["work in transactions", "WORK/S", "st3750528as", "seed 1", "watermarks 90 % and 85 %"] {
        assert!(text.contains(part), "{part:?} should be in:\n{text}");
    }
}

#[test]
fn impossible_file_systems_are_refused() {
    let folder = Pool::empty_folder();
    let says = |arguments: &[&str], parts: &[&str]| {
        let said = folder.refused(&[&["sim", "fs"], arguments].concat(), USAGE);
        for part in parts {
            assert!(said.contains(part), "{part:?} should be in:\n{said}");
        }
    };
    says(&["mail"], &["no load \"mail\"", "postmark"]);
    says(&["postmark fiels=3"], &["no \"fiels\"", "transactions"]);
    says(&["untar", "--tier", "floppy=1GB"], &["no model of \"floppy\"", "ssd-sata"]);
    says(&["untar", "--low", "95%"], &["--low 95% is above --high 90%", "lower it"]);
}
