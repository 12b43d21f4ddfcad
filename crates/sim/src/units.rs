//! Sizes and times as people write them.

use weir_model::{Bytes, Nanos};

/// Reads a size with its unit: `4GiB`, `500GB`, `64 KiB`.
///
/// # Errors
/// What is allowed, as the end of a sentence that began with what was given.
pub fn size(text: &str) -> Result<Bytes, String> {
    let allowed = || "a size with its unit, such as \"4GiB\", \"500GB\" or \"64KiB\"".to_owned();
    let (first, last) = (text.chars().next(), text.chars().last());
    if !first.is_some_and(|c| c.is_ascii_digit()) || !last.is_some_and(|c| c.is_ascii_alphabetic()) {
        return Err(allowed());
    }
    let size: bytesize::ByteSize = text.parse().map_err(|_| allowed())?;
    match size.as_u64() {
        0 | 0x4000_0000_0000_0000.. => Err("a size above 0 and below 4 EiB".into()),
        bytes => Ok(Bytes(bytes)),
    }
}

/// Reads a time with its unit: `30s`, `500ms`, `5min`, `1h`.
///
/// # Errors
/// What is allowed, as the end of a sentence that began with what was given.
pub fn duration(text: &str) -> Result<Nanos, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit = match text[digits..].trim_start() {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => 0,
    };
    let time = text[..digits].parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    match time {
        Some(1..) => Ok(Nanos(time.unwrap_or_default())),
        _ => Err("a time above 0 with its unit, such as \"30s\", \"500ms\", \"5min\" or \"1h\"".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_carry_units() {
        for (text, time) in [("30s", 30_000), ("500ms", 500), ("5 min", 300_000), ("1h", 3_600_000)] {
            assert_eq!(duration(text), Ok(Nanos::millis(time)), "{text}");
        }
        for text in
            ["", "5", "s", "0s", "-1s", "1.5s", "99999999999999999999s", "18446744073709551615h", "1 d"]
        {
            assert!(duration(text).is_err(), "{text}: {:?}", duration(text));
        }
    }

    #[test]
    fn sizes_carry_units() {
        for (text, bytes) in
            [("4GiB", 4 << 30), ("500GB", 500_000_000_000), ("64 KiB", 64 << 10), ("1.5MiB", 3 << 19)]
        {
            assert_eq!(size(text), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "4", "GiB", "4XB", "4 G i B", "1e3", "99999999EiB", "-4GiB", "NaN GiB", "0B"] {
            assert!(size(text).is_err(), "{text}: {:?}", size(text));
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_them_panic(text in "\\PC*") {
            let _ = size(&text);
            let _ = duration(&text);
        }
    }
}
