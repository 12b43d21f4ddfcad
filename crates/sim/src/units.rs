//! Parses sizes and times with units.

use weir_model::{Bytes, Nanos};

/// Parses a size with its unit, in either case: `4GiB`, `64 KiB`, `10G`, `500GB`. `K`, `M`, `G`, `T`, `P`,
/// alone or with `i`, are powers of 1024, as in Linux's tools; with `B` alone, powers of 1000. `Gb` and the
/// like are refused, because they usually mean bits.
///
/// # Errors
/// Returns what is allowed, as the end of a sentence that begins with the given text.
pub fn size(text: &str) -> Result<Bytes, String> {
    let allowed = || "a size with its unit, such as \"4GiB\", \"500GB\" or \"64KiB\"".to_owned();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(digits);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(allowed());
    }
    if let [b'K' | b'M' | b'G' | b'T' | b'P' | b'E', b'b'] = unit.trim_start().as_bytes() {
        let unit = unit.trim();
        let prefix = &unit[..1];
        return Err(format!("a size in bytes: {prefix}B or {prefix}iB, for {unit} means bits"));
    }
    let unit = match unit.trim_start().to_ascii_lowercase().as_str() {
        "b" => "B",
        "k" | "ki" | "kib" => "KiB",
        "m" | "mi" | "mib" => "MiB",
        "g" | "gi" | "gib" => "GiB",
        "t" | "ti" | "tib" => "TiB",
        "p" | "pi" | "pib" => "PiB",
        "e" | "ei" | "eib" => "EiB",
        "kb" => "kB",
        "mb" => "MB",
        "gb" => "GB",
        "tb" => "TB",
        "pb" => "PB",
        "eb" => "EB",
        _ => return Err(allowed()),
    };
    let size: bytesize::ByteSize = format!("{number}{unit}").parse().map_err(|_| allowed())?;
    match size.as_u64() {
        0 | 0x4000_0000_0000_0000.. => Err("a size above 0 and below 4 EiB".into()),
        bytes => Ok(Bytes(bytes)),
    }
}

/// Parses a time with its unit: `30s`, `500ms`, `5min`, `1h`.
///
/// # Errors
/// Returns what is allowed, as the end of a sentence that begins with the given text.
pub fn duration(text: &str) -> Result<Nanos, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit = match text[digits..].trim_start() {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" | "m" => 60_000_000_000,
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
        for (text, time) in
            [("30s", 30_000), ("500ms", 500), ("5 min", 300_000), ("2m", 120_000), ("1h", 3_600_000)]
        {
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
        let binary = [("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50)];
        for ((unit, shift), decimal) in binary.into_iter().zip(1..) {
            for text in [format!("3{unit}"), format!("3{unit}i"), format!("3 {unit}iB")] {
                assert_eq!(size(&text), Ok(Bytes(3 << shift)), "{text}");
                assert_eq!(size(&text.to_lowercase()), Ok(Bytes(3 << shift)), "{text}");
            }
            for text in [format!("3{unit}B"), format!("3 {}b", unit.to_lowercase())] {
                assert_eq!(size(&text), Ok(Bytes(3 * 1000_u64.pow(decimal))), "{text}");
            }
        }
        assert_eq!((size("10G"), size("1.5T")), (Ok(Bytes::gib(10)), Ok(Bytes::gib(1536))));
        assert_eq!(size("1Gb"), Err("a size in bytes: GB or GiB, for Gb means bits".into()));
        for text in ["1.G.B", "4ZiB", "1..5G", "4 G B", "4Gib/s", "\u{b2}G"] {
            assert!(size(text).is_err(), "{text}: {:?}", size(text));
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
