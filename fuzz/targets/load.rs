//! Parses arbitrary text as the words of a synthetic load. They are refused with a reason, or the load makes
//! requests to its own data, in order of time.
#![no_main]

use weir::pool_file::{duration, size};
use weir_model::{ExtentSize, Nanos, Op};
use weir_sim::load::parse;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(words) = std::str::from_utf8(bytes) else { return };
    // Making millions of files takes seconds.
    if words.split("files=").skip(1).any(|count| count.bytes().take_while(u8::is_ascii_digit).count() > 5) {
        return;
    }
    let mut load = match parse(words, 1, size, duration) {
        Ok(load) => load,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let volumes = load.volumes(ExtentSize::DEFAULT);
    let mut now = Nanos(0);
    for _ in 0..100 {
        let arrival = load.next_arrival(now);
        assert!(arrival.at >= now && arrival.volume < volumes.len(), "{arrival:?}");
        now = arrival.at;
        if arrival.op != Op::Flush {
            assert!(arrival.len.0 > 0, "{arrival:?}");
            assert!(arrival.offset.0 + arrival.len.0 <= volumes[arrival.volume].size.0, "{arrival:?}");
        }
    }
});
