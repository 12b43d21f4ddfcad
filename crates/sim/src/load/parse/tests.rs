//! Whatever the words of a load are, they are refused with a reason, or make requests to its own data.

use super::*;
use crate::units::{duration, size};
use proptest::prelude::*;
use weir_model::ExtentSize;

/// Requests that are made of each load.
const REQUESTS: usize = 200;

fn make(words: &str, seed: u64) {
    let mut load = match parse(words, seed, size, duration) {
        Ok(load) => load,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let volumes = load.volumes(ExtentSize::DEFAULT);
    let mut now = Nanos(0);
    for _ in 0..REQUESTS {
        let arrival = load.next_arrival(now);
        assert!(arrival.at >= now, "{words}: {arrival:?} before {now}");
        now = arrival.at;
        let volume = volumes.get(arrival.volume).unwrap_or_else(|| panic!("{words}: {arrival:?}"));
        if arrival.op != Op::Flush {
            let end = arrival.offset.0.checked_add(arrival.len.0);
            let is_inside = arrival.len.0 > 0 && end.is_some_and(|end| end <= volume.size.0);
            assert!(is_inside, "{words}: {arrival:?} of {}", volume.size);
        }
    }
}

/// A value as a load has it, or nearly.
fn value() -> impl Strategy<Value = String> {
    let number = prop_oneof![0_u64..5, 0_u64..5000, Just(u64::from(u32::MAX)), Just(u64::MAX)];
    let unit = prop::sample::select(vec![
        "", "B", "KiB", "MiB", "GiB", "TiB", "EiB", "%", "us", "s", "h", ".5", "-",
    ]);
    let one = (number, unit).prop_map(|(number, unit)| format!("{number}{unit}"));
    let listed = prop::collection::vec(one, 1..4);
    prop_oneof![
        8 => (listed, prop::sample::select(vec![",", ":", "-"])).prop_map(|(all, by)| all.join(by)),
        1 => Just("first".to_owned()),
        1 => "\\PC{0,5}",
    ]
}

fn word() -> impl Strategy<Value = String> {
    let keys = "theta hot part hits run streams pieces gap reads size writes written over at rate for think \
                appends makes memory sync files";
    let keys: Vec<&str> = keys.split(' ').collect();
    let keyed = (prop::sample::select(keys), value());
    prop_oneof![
        // So many files take a second to make.
        12 => keyed.prop_filter("few files", |(key, value)| *key != "files" || value.len() < 5)
            .prop_map(|(key, value)| format!("{key}={value}")),
        1 => "\\PC{0,6}",
    ]
}

fn phase() -> impl Strategy<Value = String> {
    let starts = vec!["zipf", "hotcold", "uniform", "scan", "sweep", "postmark", "oltp", ""];
    let start = prop::sample::select(starts);
    (start, prop::collection::vec(word(), 0..4))
        .prop_map(|(start, words)| format!("{start} {}", words.join(" ")))
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC*", seed: u64) {
        make(&text, seed);
    }

    #[test]
    fn words_are_refused_or_make_requests_to_their_data(
        first in phase(),
        others in prop::collection::vec((prop::sample::select(vec![" / ", " | ", " & "]), phase()), 0..3),
        seed: u64,
    ) {
        let others: String = others.into_iter().map(|(by, phase)| format!("{by}{phase}")).collect();
        make(&format!("{first}{others}"), seed);
    }
}

/// Phases that are shorter than the time between requests are passed over, however many there are.
#[test]
fn short_phases_take_no_time() {
    make("uniform rate=0.01 for=1us / scan rate=0.01 for=2us", 1);
    make("uniform rate=0.01 for=5000000h / uniform rate=0.01 for=5000000h", 1);
}

#[test]
fn requests_larger_than_the_data_are_refused() {
    let error = |words: &str| parse(words, 1, size, duration).err().map(|error| error.to_string());
    let later = "uniform over=1MiB / zipf size=64KiB over=32KiB";
    for words in ["uniform size=4KiB:9,64KiB:1 over=32KiB", "scan size=1MiB over=512KiB", later] {
        let text = error(words).expect("requests that are larger than the data");
        assert!(text.contains("over="), "{text}");
    }
    for words in ["uniform size=32KiB over=32KiB", "scan over=4KiB"] {
        assert_eq!(error(words), None, "{words}");
    }
}
