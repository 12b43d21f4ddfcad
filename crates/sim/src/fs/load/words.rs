//! The words of a load: its name, and settings of the form `key=value`.

use crate::units;
use std::ops::RangeInclusive;
use weir_model::Bytes;

/// The words that were not read yet.
#[derive(Debug)]
pub(super) struct Words<'a> {
    name: &'a str,
    words: Vec<(&'a str, &'a str)>,
    /// The keys that were asked for.
    known: Vec<&'static str>,
    /// Multiplies numbers of files.
    scale: f64,
}

/// The largest number of files, of transactions or of clients.
const COUNT_MAX: u64 = 100_000_000;

impl<'a> Words<'a> {
    pub(super) fn new(text: &'a str) -> Result<Self, String> {
        let mut parts = text.split_ascii_whitespace();
        let name = parts.next().unwrap_or_default();
        let pairs = parts
            .map(|word| word.split_once('=').ok_or_else(|| format!("{word:?} in a load: write key=value")));
        let mut words =
            Self { name, words: pairs.collect::<Result<_, _>>()?, known: vec!["scale"], scale: 1.0 };
        if let Some(value) = words.take("scale") {
            words.scale =
                share(value).ok_or_else(|| wrong("scale", value, "from 1/1000 to 1, such as 1/8"))?;
        }
        Ok(words)
    }

    pub(super) fn name(&self) -> &'a str {
        self.name
    }

    fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.words.iter().position(|(known, _)| *known == key)?;
        Some(self.words.remove(at).1)
    }

    fn value(&mut self, key: &'static str) -> Option<&'a str> {
        self.known.push(key);
        self.take(key)
    }

    /// Reads a number of files or transactions, and scales it.
    pub(super) fn count(&mut self, key: &'static str, default: u64) -> Result<u64, String> {
        let count = self.unscaled(key, default)?;
        Ok(((count as f64 * self.scale).round() as u64).max(1))
    }

    /// Reads a number that is not scaled.
    pub(super) fn unscaled(&mut self, key: &'static str, default: u64) -> Result<u64, String> {
        let Some(value) = self.value(key) else { return Ok(default) };
        let count = value.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
        count.ok_or_else(|| wrong(key, value, "a whole number from 1 to 100000000"))
    }

    /// Reads a size.
    pub(super) fn size(&mut self, key: &'static str, default: Bytes) -> Result<Bytes, String> {
        let Some(value) = self.value(key) else { return Ok(default) };
        units::size(value).map_err(|allowed| wrong(key, value, &allowed))
    }

    /// Reads a range of sizes.
    pub(super) fn sizes(
        &mut self,
        key: &'static str,
        default: RangeInclusive<u64>,
    ) -> Result<RangeInclusive<u64>, String> {
        let Some(value) = self.value(key) else { return Ok(default) };
        let (least, most) = value.split_once('-').unwrap_or((value, value));
        let size = |text| units::size(text).map_err(|allowed| wrong(key, value, &allowed));
        let (least, most) = (size(least)?, size(most)?);
        if least > most {
            return Err(wrong(key, value, "from the smaller size to the larger: 1KiB-10KiB"));
        }
        Ok(least.0..=most.0)
    }

    /// Reads one of these values; the first is the default. Returns its number.
    pub(super) fn one_of(&mut self, key: &'static str, values: &[&str]) -> Result<usize, String> {
        let Some(value) = self.value(key) else { return Ok(0) };
        let found = values.iter().position(|one| *one == value);
        found.ok_or_else(|| wrong(key, value, &format!("one of {}", values.join(", "))))
    }

    /// Fails if a word was not read.
    pub(super) fn finish(&self) -> Result<(), String> {
        let Some((key, _)) = self.words.first() else { return Ok(()) };
        Err(format!("a load of {} has no {key:?}; there are {}", self.name, self.known.join(", ")))
    }
}

fn wrong(key: &str, value: &str, allowed: &str) -> String {
    format!("{value:?} in a load: {key} must be {allowed}")
}

/// Reads a share such as `1/8` or `0.125`.
fn share(text: &str) -> Option<f64> {
    let share = match text.split_once('/') {
        Some((above, below)) => above.parse::<f64>().ok()? / below.parse::<f64>().ok()?,
        None => text.parse().ok()?,
    };
    (0.001..=1.0).contains(&share).then_some(share)
}
