//! The values of the parameters, read from the data file. Experiments have no other source of values, so each
//! one has a provenance.
//!
//! A value is text that people can read, such as `128 KiB`, `10 %, 40 %` or `500 to 10,000 bytes`. Its
//! numbers and their units are what experiments use, in that order; its other words are remarks.

use super::published::Publication;
use crate::failure::{Failure, REPORT_DEFECT};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use weir_engine::Percent;
use weir_model::{Bytes, Nanos};

/// The parameters of a reproduction.
#[derive(Clone, Debug, Default)]
pub(super) struct Parameters {
    all: BTreeMap<String, Value>,
    /// Names of the parameters that were read.
    read: RefCell<BTreeSet<String>>,
}

/// A value: as it is, its first word, and its numbers.
#[derive(Clone, Debug, Default)]
struct Value {
    text: String,
    word: String,
    numbers: Vec<Quantity>,
}

/// A number with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Quantity {
    /// In bytes, seconds or, for a share, from 0 to 1.
    number: f64,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    None,
    Size,
    Time,
    Share,
}

impl Parameters {
    pub(super) fn new(publication: &Publication) -> Self {
        let all = publication.parameters.iter().map(|one| (one.name.clone(), Value::parse(&one.value)));
        Self { all: all.collect(), read: RefCell::default() }
    }

    /// Returns the parameters with the numbers of one of them multiplied; `None` if it has no number.
    pub(super) fn scaled(&self, name: &str, factor: f64) -> Option<Self> {
        let mut scaled = Self { all: self.all.clone(), read: RefCell::default() };
        let value = scaled.all.get_mut(name).filter(|value| !value.numbers.is_empty())?;
        for quantity in &mut value.numbers {
            quantity.number *= factor;
            if quantity.unit == Unit::Share {
                quantity.number = quantity.number.min(1.0);
            }
        }
        Some(scaled)
    }

    /// Returns the parameters with other values.
    ///
    /// # Errors
    /// Fails with the name of a parameter that does not exist.
    pub(super) fn changed<'c>(&self, change: &'c BTreeMap<String, String>) -> Result<Self, &'c str> {
        let mut changed = Self { all: self.all.clone(), read: RefCell::default() };
        for (name, text) in change {
            *changed.all.get_mut(name).ok_or(name.as_str())? = Value::parse(text);
        }
        Ok(changed)
    }

    /// Reports whether an experiment has read the parameter.
    pub(super) fn is_read(&self, name: &str) -> bool {
        self.read.borrow().contains(name)
    }

    /// Returns the names of the parameters that experiments have read.
    #[cfg(test)]
    pub(super) fn names_read(&self) -> BTreeSet<String> {
        self.read.borrow().clone()
    }

    /// Returns the first number of a parameter.
    #[cfg(test)]
    pub(super) fn first_number(&self, name: &str) -> Option<f64> {
        self.all.get(name)?.numbers.first().map(|quantity| quantity.number)
    }

    fn value(&self, name: &str) -> Result<&Value, Failure> {
        self.read.borrow_mut().insert(name.to_owned());
        self.all.get(name).ok_or_else(|| unusable(name, "is not in the data file"))
    }

    /// Returns the numbers of a parameter with one of these units.
    fn numbers<const N: usize>(&self, name: &str, allowed: &[Unit]) -> Result<[f64; N], Failure> {
        let value = self.value(name)?;
        if value.numbers.iter().any(|quantity| !allowed.contains(&quantity.unit)) {
            return Err(unusable(name, &format!("has numbers with another unit than {allowed:?}")));
        }
        let numbers: Vec<f64> = value.numbers.iter().map(|quantity| quantity.number).collect();
        let count = numbers.len();
        numbers.try_into().map_err(|_| unusable(name, &format!("has {count} numbers instead of {N}")))
    }

    /// Returns a plain number.
    pub(super) fn number(&self, name: &str) -> Result<f64, Failure> {
        self.numbers(name, &[Unit::None]).map(|[number]| number)
    }

    /// Returns a number of things, at least one.
    pub(super) fn count(&self, name: &str) -> Result<u64, Failure> {
        self.counts(name).map(|[count]| count)
    }

    /// Returns several numbers of things, each at least one.
    pub(super) fn counts<const N: usize>(&self, name: &str) -> Result<[u64; N], Failure> {
        Ok(self.numbers(name, &[Unit::None])?.map(|number| number.round().max(1.0) as u64))
    }

    /// Returns a size.
    pub(super) fn size(&self, name: &str) -> Result<Bytes, Failure> {
        self.numbers(name, &[Unit::Size]).map(|[number]| Bytes(number.round() as u64))
    }

    /// Returns a size in whole blocks of 4 KiB, at least one.
    pub(super) fn blocks(&self, name: &str) -> Result<Bytes, Failure> {
        let size = self.size(name)?;
        Ok(Bytes((size.0 as f64 / BLOCK as f64).round().max(1.0) as u64 * BLOCK))
    }

    /// Returns several sizes.
    pub(super) fn several_sizes<const N: usize>(&self, name: &str) -> Result<[Bytes; N], Failure> {
        Ok(self.numbers(name, &[Unit::Size])?.map(|size| Bytes(size.round() as u64)))
    }

    /// Returns a number of things and a size.
    pub(super) fn count_and_size(&self, name: &str) -> Result<(u64, Bytes), Failure> {
        let [count, size] = self.numbers(name, &[Unit::None, Unit::Size])?;
        Ok((count.round().max(1.0) as u64, Bytes(size.round() as u64)))
    }

    /// Returns the length of an address range and the distance to the next, in bytes.
    pub(super) fn range_and_distance(&self, name: &str) -> Result<[f64; 2], Failure> {
        self.numbers(name, &[Unit::Size])
    }

    /// Returns a range of sizes in bytes. Its start may lack a unit.
    pub(super) fn sizes(&self, name: &str) -> Result<RangeInclusive<u64>, Failure> {
        let [least, most] = self.numbers(name, &[Unit::None, Unit::Size])?;
        Ok(least.round().max(1.0) as u64..=most.round().max(1.0) as u64)
    }

    /// Returns a time.
    pub(super) fn time(&self, name: &str) -> Result<Nanos, Failure> {
        self.numbers(name, &[Unit::Time]).map(|[seconds]| Nanos((seconds * 1e9).round() as u64))
    }

    /// Returns a share, from 0 to 1: a percentage or a fraction.
    pub(super) fn share(&self, name: &str) -> Result<f64, Failure> {
        self.shares(name).map(|[share]| share)
    }

    /// Returns several shares, from 0 to 1.
    pub(super) fn shares<const N: usize>(&self, name: &str) -> Result<[f64; N], Failure> {
        Ok(self.numbers(name, &[Unit::Share, Unit::None])?.map(|share| share.clamp(0.0, 1.0)))
    }

    /// Returns a share in whole percent.
    pub(super) fn percent(&self, name: &str) -> Result<Percent, Failure> {
        Ok(Percent((self.share(name)? * 100.0).round() as u8))
    }

    /// Returns the value as it is.
    pub(super) fn text(&self, name: &str) -> Result<&str, Failure> {
        Ok(&self.value(name)?.text)
    }

    /// Returns the first word.
    pub(super) fn word(&self, name: &str) -> Result<&str, Failure> {
        let value = self.value(name)?;
        if value.word.is_empty() { Err(unusable(name, "has no word")) } else { Ok(&value.word) }
    }

    /// Returns a drive: the name of its model, and its size.
    pub(super) fn drive(&self, name: &str) -> Result<(&str, Bytes), Failure> {
        Ok((self.word(name)?, self.size(name)?))
    }
}

const BLOCK: u64 = weir_model::BLOCK;

/// Returns the failure of a parameter that cannot be used.
pub(super) fn unusable(name: &str, why: &str) -> Failure {
    Failure::environment(format!("the parameter {name:?} {why}"), REPORT_DEFECT)
}

impl Value {
    /// Reads the numbers of a text. A number without a unit has that of the next one if both are a range.
    fn parse(text: &str) -> Self {
        let word = text.split([' ', ',', ':', ';']).next().unwrap_or_default().to_owned();
        let mut numbers: Vec<Quantity> = Vec::new();
        let mut is_range = false;
        let mut words = text.split_ascii_whitespace().peekable();
        while let Some(word) = words.next() {
            if let Some(number) = number(word) {
                let ends = word.ends_with([',', ';', ':']);
                let (factor, unit) =
                    words.peek().filter(|_| !ends).and_then(|next| unit(next)).unwrap_or((1.0, Unit::None));
                if let Some(before) =
                    numbers.last_mut().filter(|before| is_range && before.unit == Unit::None)
                {
                    *before = Quantity { number: before.number * factor, unit };
                }
                numbers.push(Quantity { number: number * factor, unit });
                is_range = false;
            } else if word == "to" {
                is_range = true;
            }
        }
        Self { text: text.to_owned(), word, numbers }
    }
}

/// Reads a number such as `10,000`, `0.9` or `1/3`, which punctuation may follow.
fn number(word: &str) -> Option<f64> {
    let word = word.trim_end_matches([',', ';', ':', '.']);
    if !word.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let plain = |text: &str| text.replace(',', "").parse::<f64>().ok();
    match word.split_once('/') {
        Some((above, below)) => Some(plain(above)? / plain(below)?),
        None => plain(word),
    }
}

/// Returns the factor and the kind of a unit.
fn unit(word: &str) -> Option<(f64, Unit)> {
    Some(match word.trim_end_matches([',', ';', ':', '.']) {
        "byte" | "bytes" => (1.0, Unit::Size),
        "KiB" => (1024.0, Unit::Size),
        "MiB" => (1_048_576.0, Unit::Size),
        "GiB" => (1_073_741_824.0, Unit::Size),
        "GB" => (1e9, Unit::Size),
        "us" => (1e-6, Unit::Time),
        "ms" => (1e-3, Unit::Time),
        "s" => (1.0, Unit::Time),
        "min" => (60.0, Unit::Time),
        "h" => (3600.0, Unit::Time),
        "%" => (0.01, Unit::Share),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(value: &str) -> Parameters {
        let text = format!(
            "source = \"a paper\"\n[[parameter]]\nname = \"p\"\nwhat = \"a parameter\"\nvalue = \"{value}\"\n\
             provenance = \"default\"\nloads = [\"\"]\n"
        );
        Parameters::new(&Publication::read(&text).expect("valid"))
    }

    #[test]
    fn values_are_read_with_their_units() {
        assert_eq!(parameters("128 KiB").size("p").ok(), Some(Bytes::kib(128)));
        assert_eq!(parameters("500 to 10,000 bytes").sizes("p").ok(), Some(500..=10_000));
        assert_eq!(parameters("4 KiB to 8 KiB").sizes("p").ok(), Some(4096..=8192));
        assert_eq!(parameters("10 %, 40 %").shares("p").ok(), Some([0.1, 0.4]));
        assert_eq!(parameters("1/3 of the duration").share("p").ok(), Some(1.0 / 3.0));
        assert_eq!(parameters("4,000 files, 30 directories").counts("p").ok(), Some([4000, 30]));
        assert_eq!(parameters("200 us").time("p").ok(), Some(Nanos::micros(200)));
        assert_eq!(parameters("3 h").time("p").ok(), Some(Nanos::secs(10_800)));
        let drive = parameters("sp2504c, 250 GB: Samsung SP2504C");
        assert_eq!(drive.drive("p").ok(), Some(("sp2504c", Bytes(250_000_000_000))));
    }

    #[test]
    fn a_value_of_another_kind_is_an_error() {
        assert!(parameters("128 KiB").time("p").is_err(), "a size");
        assert!(parameters("10 %, 40 %").share("p").is_err(), "two numbers");
        assert!(parameters("all").number("p").is_err(), "no number");
        assert!(parameters("1").number("q").is_err(), "no such parameter");
    }

    #[test]
    fn scaled_numbers_stay_in_their_units() {
        let scaled = |value: &str, factor| parameters(value).scaled("p", factor).expect("numbers");
        assert_eq!(scaled("4 to 8 KiB", 1.25).sizes("p").ok(), Some(5120..=10_240));
        assert_eq!(scaled("90 %", 1.25).share("p").ok(), Some(1.0));
        assert_eq!(scaled("1 file", 0.25).count("p").ok(), Some(1), "never none");
        assert!(parameters("all").scaled("p", 1.25).is_none());
    }
}
