//! Sizes, addresses and times as distinct types, so that none is mistaken for another.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// The smallest unit of any request, in bytes.
pub const SECTOR: u64 = 512;
/// The unit of a place's validity, in bytes.
pub const BLOCK: u64 = 4096;

macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// Returns the bare number.
            #[inline]
            pub const fn get(self) -> u64 {
                self.0
            }
        }
    };
}

newtype! {
    /// A number of bytes.
    Bytes
}
newtype! {
    /// A byte offset in a volume.
    VolumeOffset
}
newtype! {
    /// A byte offset on a device.
    DeviceOffset
}
newtype! {
    /// A time or a duration in nanoseconds. A time counts from an origin that the driver chose (start of the
    /// process, start of the simulation), and never goes backwards.
    Nanos
}

impl Bytes {
    /// Returns a number of kibibytes.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }
    /// Returns a number of mebibytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// Returns a number of gibibytes.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
}

impl Nanos {
    /// The far future: later than any time that occurs.
    pub const MAX: Self = Self(u64::MAX);
    /// Returns a number of microseconds.
    pub const fn micros(n: u64) -> Self {
        Self(n * 1_000)
    }
    /// Returns a number of milliseconds.
    pub const fn millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }
    /// Returns a number of seconds.
    pub const fn secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }
    /// Converts (fractional, non-negative) seconds; rounds down to the nanosecond.
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * 1e9) as u64)
    }
    /// Converts to fractional seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// Returns the time since `earlier`; zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
impl AddAssign for Nanos {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
impl Sub for Nanos {
    type Output = Self;
    /// Saturates at zero.
    #[inline]
    fn sub(self, other: Self) -> Self {
        self.since(other)
    }
}
impl Add for Bytes {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}
impl AddAssign for Bytes {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}
impl Sub for Bytes {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}
impl Add<Bytes> for DeviceOffset {
    type Output = Self;
    #[inline]
    fn add(self, len: Bytes) -> Self {
        Self(self.0 + len.0)
    }
}
impl Add<Bytes> for VolumeOffset {
    type Output = Self;
    #[inline]
    fn add(self, len: Bytes) -> Self {
        Self(self.0 + len.0)
    }
}

impl fmt::Display for Bytes {
    /// Displays the largest binary unit that keeps the number exact to one decimal: `4 GiB`, `1.5 MiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let power = (self.0.ilog2() / 10) as usize;
        let value = self.0 as f64 / (1u64 << (10 * power)) as f64;
        let unit = UNITS[power - 1];
        if value.fract() == 0.0 { write!(f, "{value} {unit}") } else { write!(f, "{value:.1} {unit}") }
    }
}

impl fmt::Display for Nanos {
    /// Displays the unit that leaves one to three digits before the point: `85 us`, `4.2 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.1} us", ns / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} ms", ns / 1e6),
            _ => write!(f, "{:.2} s", ns / 1e9),
        }
    }
}

impl fmt::Display for DeviceOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
impl fmt::Display for VolumeOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_displayed_in_readable_units() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes::gib(4).to_string(), "4 GiB");
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
        assert_eq!(Bytes(u64::MAX).to_string(), "16 EiB");
        assert_eq!(Nanos(850).to_string(), "850 ns");
        assert_eq!(Nanos::millis(4).to_string(), "4.0 ms");
        assert_eq!(Nanos::secs(61).to_string(), "61.00 s");
    }

    #[test]
    fn time_saturates_instead_of_wrapping() {
        assert_eq!(Nanos(3) - Nanos(5), Nanos(0));
        assert_eq!(Nanos::MAX + Nanos(1), Nanos::MAX);
    }
}
