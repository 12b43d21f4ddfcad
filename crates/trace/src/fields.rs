//! Splits a line into fields and parses them.

use weir_model::Nanos;

/// Separator of a line's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separator {
    Comma,
    /// One or more blanks or tabs.
    Blanks,
}

/// An error in a line: where, and what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldError<'l> {
    /// Column, from 1.
    pub(crate) column: usize,
    pub(crate) wanted: &'static str,
    pub(crate) found: &'l [u8],
}

/// Iterates over the fields of a line.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'l> {
    line: &'l [u8],
    at: usize,
    separator: Separator,
}

/// One field, and its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'l> {
    pub(crate) text: &'l [u8],
    start: usize,
}

/// A number, and its field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number<'l> {
    pub(crate) value: u64,
    pub(crate) field: Field<'l>,
}

impl<'l> Fields<'l> {
    pub(crate) fn new(line: &'l [u8], separator: Separator) -> Self {
        Self { line, at: 0, separator }
    }

    /// Returns the next field, which should be `wanted`.
    #[inline]
    pub(crate) fn next(&mut self, wanted: &'static str) -> Result<Field<'l>, FieldError<'l>> {
        let rest = self.line.get(self.at..).unwrap_or_default();
        let (start, len) = match self.separator {
            Separator::Comma if self.at > self.line.len() => (self.line.len(), 0),
            Separator::Comma => (self.at, comma(rest)),
            Separator::Blanks => {
                let skipped = rest.iter().take_while(|byte| is_blank(**byte)).count();
                let len = rest[skipped..].iter().take_while(|byte| !is_blank(**byte)).count();
                (self.at.min(self.line.len()) + skipped, len)
            }
        };
        self.at = start + len + 1;
        let text = &self.line[start..start + len];
        let text = if self.separator == Separator::Comma { text.trim_ascii() } else { text };
        let field = Field { text, start };
        if text.is_empty() { Err(field.error(wanted)) } else { Ok(field) }
    }

    /// Skips fields.
    pub(crate) fn skip(&mut self, count: usize) {
        for _ in 0..count {
            let _ = self.next("anything");
        }
    }

    /// Parses a whole number, in units of `unit`.
    #[inline]
    pub(crate) fn number(&mut self, wanted: &'static str, unit: u64) -> Result<Number<'l>, FieldError<'l>> {
        let field = match self.digits() {
            Some(Number { value, field }) => match value.checked_mul(unit) {
                Some(value) => return Ok(Number { value, field }),
                None => field,
            },
            None => self.next(wanted)?,
        };
        Ok(Number { value: field.number(wanted, unit)?, field })
    }

    /// Parses the next field, if it consists only of digits and is small enough, as numbers almost always
    /// are.
    #[inline]
    fn digits(&mut self) -> Option<Number<'l>> {
        let mut start = self.at;
        if self.separator == Separator::Blanks {
            start += self.line.get(start..)?.iter().take_while(|byte| is_blank(**byte)).count();
        }
        let rest = self.line.get(start..)?;
        let (value, len) = digits_from(self.line, start)?;
        let ends = match (rest.get(len), self.separator) {
            (None, _) => true,
            (Some(byte), Separator::Comma) => *byte == b',',
            (Some(byte), Separator::Blanks) => is_blank(*byte),
        };
        self.at = if ends { start + len + 1 } else { self.at };
        ends.then_some(Number { value, field: Field { text: &rest[..len], start } })
    }

    /// Parses a hexadecimal number.
    pub(crate) fn hex(&mut self, wanted: &'static str) -> Result<u64, FieldError<'l>> {
        let field = self.next(wanted)?;
        let number = field.text.iter().try_fold(0u64, |sum, byte| {
            let digit = char::from(*byte).to_digit(16)?;
            sum.checked_mul(16)?.checked_add(digit.into())
        });
        number.ok_or_else(|| field.error(wanted))
    }

    /// Parses a time with an optional fraction, in units of `unit` nanoseconds; rounds down.
    #[inline]
    pub(crate) fn time(&mut self, wanted: &'static str, unit: u64) -> Result<Nanos, FieldError<'l>> {
        let field = self.next(wanted)?;
        let point = memchr::memchr(b'.', field.text).unwrap_or(field.text.len());
        let (whole, rest) = field.text.split_at(point);
        let whole = decimal(whole).and_then(|n| n.checked_mul(unit));
        let time = whole.zip(fraction(rest.get(1..).unwrap_or_default(), unit));
        time.and_then(|(whole, part)| whole.checked_add(part)).map(Nanos).ok_or_else(|| field.error(wanted))
    }

    /// Parses one of these words.
    #[inline]
    pub(crate) fn word<T: Copy>(
        &mut self,
        wanted: &'static str,
        words: &[(&[u8], T)],
    ) -> Result<T, FieldError<'l>> {
        let field = self.next(wanted)?;
        let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(field.text));
        found.map(|(_, meaning)| *meaning).ok_or_else(|| field.error(wanted))
    }

    /// Checks that nothing follows.
    pub(crate) fn end(&mut self) -> Result<(), FieldError<'l>> {
        match self.next("anything") {
            Ok(field) => Err(field.error("the line's end")),
            Err(_) => Ok(()),
        }
    }

    /// Returns the text from a field to the end of the last one.
    pub(crate) fn text_from(&self, first: Field<'l>) -> &'l [u8] {
        &self.line[first.start..(self.at - 1).min(self.line.len())]
    }
}

impl<'l> Field<'l> {
    /// Parses the field as a whole number, in units of `unit`.
    fn number(self, wanted: &'static str, unit: u64) -> Result<u64, FieldError<'l>> {
        decimal(self.text).and_then(|n| n.checked_mul(unit)).ok_or_else(|| self.error(wanted))
    }

    pub(crate) fn error(self, wanted: &'static str) -> FieldError<'l> {
        FieldError { column: self.start + 1, wanted, found: self.text }
    }
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Parses decimal digits; returns `None` if there are none, other characters among them, or too many.
fn decimal(text: &[u8]) -> Option<u64> {
    let number = text.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        sum.checked_mul(10)?.checked_add(digit.into())
    });
    number.filter(|_| !text.is_empty())
}

const ZEROS: u64 = u64::from_ne_bytes([b'0'; 8]);
const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; 8]);
const ONES: u64 = u64::from_ne_bytes([1; 8]);
const COMMAS: u64 = u64::from_ne_bytes([b','; 8]);
/// The powers of ten up to the eighth.
const TENS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// Parses the digits from `start` on, eight at a time in one word; returns the number and how many digits it
/// has, or `None` if there are none, or so many that it may overflow.
#[inline]
fn digits_from(line: &[u8], start: usize) -> Option<(u64, usize)> {
    let (mut number, mut len) = (0, 0);
    loop {
        // The XOR maps digits to 0 to 9; any other byte has its highest bit set, or gets it by the addition.
        let digits = eight_from(line, start + len) ^ ZEROS;
        let others = (((digits & !HIGH_BITS) + (0x76 * ONES)) | digits) & HIGH_BITS;
        let count = others.trailing_zeros() / 8;
        if count == 0 {
            break;
        }
        len += count as usize;
        // Shifting adds as many leading zeros as there are other bytes.
        let whole = eight_digits(digits << (64 - 8 * count));
        if len > 19 {
            return None;
        }
        number = number * TENS[count as usize] + whole;
        if count < 8 {
            break;
        }
    }
    (len > 0).then_some((number, len))
}

/// Returns the eight bytes from `start` on, the first in the lowest; zero beyond the end of the line.
#[inline]
fn eight_from(line: &[u8], start: usize) -> u64 {
    let rest = line.get(start..).unwrap_or_default();
    if let Some(eight) = rest.first_chunk() {
        return u64::from_le_bytes(*eight);
    }
    match line.last_chunk() {
        // The line's last eight bytes, without those before `start`.
        Some(last) => u64::from_le_bytes(*last).checked_shr(64 - 8 * rest.len() as u32).unwrap_or(0),
        None => rest.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    }
}

/// Converts eight digits, the first in the lowest byte: neighbours are combined to pairs, then fours, then
/// the eight.
#[inline]
const fn eight_digits(digits: u64) -> u64 {
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    (fours * 10_000 + (fours >> 32)) & 0xffff_ffff
}

/// Returns the position of the first comma; the length if there is none.
#[inline]
fn comma(text: &[u8]) -> usize {
    let (eights, rest) = text.as_chunks();
    for (number, eight) in eights.iter().enumerate() {
        let commas = u64::from_le_bytes(*eight) ^ COMMAS;
        // The lowest set bit is exact; higher ones may be false.
        let found = commas.wrapping_sub(ONES) & !commas & HIGH_BITS;
        if found != 0 {
            return 8 * number + found.trailing_zeros() as usize / 8;
        }
    }
    let start = 8 * eights.len();
    start + rest.iter().position(|byte| *byte == b',').unwrap_or(rest.len())
}

/// Converts the digits after the decimal point, in units of which `unit` make one.
fn fraction(digits: &[u8], unit: u64) -> Option<u64> {
    let mut place = unit;
    let mut sum = 0;
    for digit in digits {
        place /= 10;
        sum += place * u64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_split_at_commas_or_blanks() {
        let mut fields = Fields::new(b"a, b,,c", Separator::Comma);
        assert_eq!(fields.next("x").unwrap().text, b"a");
        assert_eq!(fields.next("x").unwrap().text, b"b");
        assert_eq!(fields.next("x").unwrap_err(), FieldError { column: 6, wanted: "x", found: b"" });
        assert_eq!(fields.next("x").unwrap().text, b"c");
        assert_eq!(fields.next("x").unwrap_err().column, 8);
        assert!(fields.end().is_ok());
        let mut fields = Fields::new(b"  a \t b ", Separator::Blanks);
        let first = fields.next("x").unwrap();
        assert_eq!(fields.next("x").unwrap().text, b"b");
        assert_eq!(fields.text_from(first), b"a \t b");
        assert!(fields.end().is_ok());
    }

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        let time = |text: &str, unit| Fields::new(text.as_bytes(), Separator::Comma).time("t", unit).ok();
        assert_eq!(time("1456095145.133076001", 1_000_000_000), Some(Nanos(1_456_095_145_133_076_001)));
        assert_eq!(time("22.8101239", 1_000_000), Some(Nanos(22_810_123)));
        assert_eq!(time("7", 100), Some(Nanos(700)));
        assert_eq!(time("7.", 100), Some(Nanos(700)));
        for bad in ["", ".5", "-1", "1.2.3", "1e3", "99999999999999999999", "18446744073709551615.9"] {
            assert_eq!(time(bad, 1_000_000_000), None, "{bad}");
        }
    }

    #[test]
    fn numbers_fill_their_field_and_do_not_overflow() {
        let number = |text: &'static str, unit| {
            Fields::new(text.as_bytes(), Separator::Comma).number("n", unit).ok().map(|number| number.value)
        };
        assert_eq!(number("12", 512), Some(6144));
        for bad in ["12x", "", "-3", "36028797018963968512"] {
            assert_eq!(number(bad, 1), None, "{bad}");
        }
        assert_eq!(number("18446744073709551615", 1), Some(u64::MAX));
        assert_eq!(number("18446744073709551615", 2), None);
        assert_eq!(number("18446744073709551616", 1), None);
        assert_eq!(number("0000000000000000000000000012", 1), Some(12));
        let hex = |text: &'static str| Fields::new(text.as_bytes(), Separator::Comma).hex("h").ok();
        assert_eq!((hex("2a"), hex("fFffffFFffffffff")), (Some(42), Some(u64::MAX)));
        assert_eq!((hex("2g"), hex("-1"), hex("10000000000000000")), (None, None, None));
    }

    proptest! {
        /// Digits are parsed as by the standard library, which also allows a sign, whatever precedes and
        /// follows them.
        #[test]
        fn digits_parse_like_std(
            text in "[0-9]{0,22}|[0-9/:+-]{1,17}|[ -~]{8,9}",
            n: u64,
            behind in "(,[ -~]{0,9})?",
        ) {
            let known = |text: &str| text.parse().ok().filter(|_: &u64| !text.starts_with('+'));
            prop_assert_eq!(decimal(text.as_bytes()), known(&text));
            let field = text.split(',').next().unwrap_or_default();
            for (text, known) in [(&text[..], known(field.trim())), (&n.to_string(), Some(n))] {
                let line = format!("{text}{behind}");
                let mut fields = Fields::new(line.as_bytes(), Separator::Comma);
                let number = fields.number("n", 1).ok();
                prop_assert_eq!(number.map(|number| number.value), known);
                let next = fields.next("anything").ok().map(|field| field.text);
                let meant = line.split(',').nth(1).map(str::trim).filter(|text| !text.is_empty());
                prop_assert_eq!(next, meant.map(str::as_bytes));
                let mut fields = Fields::new(line.as_bytes(), Separator::Blanks);
                let number = fields.number("n", 1).ok();
                let meant = line.split([' ', '\t']).find(|text| !text.is_empty()).unwrap_or_default();
                let meant = meant.parse().ok().filter(|_: &u64| !meant.starts_with('+'));
                prop_assert_eq!(number.map(|number| number.value), meant);
            }
        }
    }
}
