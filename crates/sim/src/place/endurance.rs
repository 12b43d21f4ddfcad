//! Endurance of a pool's flash devices: what weir writes to them per day, what their flash programs for it,
//! and how long cells of a rating last.
//!
//! The device is a [log](weir_flash) of 4 KiB pages and segments of [`SEGMENT_PAGES`] pages, cleaned
//! greedily. All of its capacity is written once; then the writes of the measurement are repeated until write
//! amplification is [steady], at most [`OVERWRITES_MAX`] times the capacity. Devices of more than
//! [`PAGES_MAX`] pages have the amplification of uniform random writes of single pages, by the closed form:
//! an upper estimate, because a load that rewrites some data more often costs less, and so do long writes.

use crate::SimError;
use crate::flash::{Endurance, Lifetime, steady};
use schemars::JsonSchema;
use serde::Serialize;
use weir_flash::{ConfigError, DenseMap, Log, LogConfig, Metadata, Simulated, Stream, analytic};
use weir_model::{Bytes, DeviceOffset};
use weir_policy::reclaim::Greedy;
use weir_timing::drives::{Drive, DriveKind};

/// Size of a page: what a device maps.
const PAGE: u64 = 4096;
/// Pages that are erased at once.
pub const SEGMENT_PAGES: u32 = 256;
/// The largest device whose log is simulated: 16 GiB.
pub const PAGES_MAX: u64 = 1 << 22;
/// The most overwrites of the capacity until amplification is steady.
pub const OVERWRITES_MAX: f64 = 10.0;
/// Windows per overwrite of the capacity.
const WINDOWS_PER_OVERWRITE: u64 = 4;
const SECONDS_PER_DAY: f64 = 86_400.0;

/// What is assumed of flash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlashRating {
    /// Erases until a cell wears out.
    pub cycles: u32,
    /// Spare factor: the over-provisioned share of the flash in use, `(T - U) / T`, above 0 and below 1.
    pub spare: f64,
}

/// Where the amplification of a device is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AmplificationSource {
    /// The log of the device under the writes of the measurement, repeated until amplification was steady.
    Log,
    /// The same, but amplification was not steady after ten overwrites of the capacity.
    UnsteadyLog,
    /// The closed form for uniform random writes.
    ClosedForm,
}

/// Endurance of a device's flash, if it is always written to as in the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DeviceEndurance {
    /// Device write amplification: bytes that the flash programs per byte written to the device.
    pub amplification: f64,
    /// Where the amplification is from.
    pub source: AmplificationSource,
    /// Spare factor that is assumed.
    pub spare_factor: f64,
    /// Bytes that the flash programs per day.
    pub programmed_bytes_per_day: f64,
    /// How long the flash lasts; its user is weir. Lives are `null` if nothing is written.
    pub lifetime: Lifetime,
}

/// A write to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceWrite {
    pub(crate) at: DeviceOffset,
    pub(crate) len: Bytes,
}

/// Reports whether a drive is flash, itself or behind a network or a limit.
pub fn is_flash(drive: &Drive) -> bool {
    match &drive.kind {
        DriveKind::Ssd(_) => true,
        DriveKind::Disk(_) | DriveKind::Memory(_) => false,
        DriveKind::Remote(_, drive) | DriveKind::Capped(_, drive) => is_flash(drive),
    }
}

impl DeviceEndurance {
    /// Returns the endurance of a device of this capacity to which this was written in a period.
    ///
    /// # Errors
    /// Fails if the spare factor is not between 0 and 1, or if cleaning is stuck.
    pub(crate) fn new(
        rating: FlashRating,
        capacity: Bytes,
        writes: &[DeviceWrite],
        seconds: f64,
    ) -> Result<Self, SimError> {
        let (amplification, source) = amplification(rating, capacity, writes)?;
        let written: u64 = writes.iter().map(|write| write.len.0).sum();
        let per_day = written as f64 / seconds.max(1e-9) * SECONDS_PER_DAY;
        Ok(Self::with_amplification(rating, capacity, per_day, (amplification, source)))
    }

    /// Returns the endurance of a device of this capacity for bytes per day at this amplification.
    pub fn with_amplification(
        FlashRating { cycles, spare }: FlashRating,
        capacity: Bytes,
        per_day: f64,
        (amplification, source): (f64, AmplificationSource),
    ) -> Self {
        let flash = Bytes((capacity.0 as f64 / (1.0 - spare)) as u64);
        let bytes_per_day = (per_day > 0.0).then_some(per_day);
        let endurance = Endurance { cycles, flash, capacity, amplification, bytes_per_day, unevenness: 1.0 };
        let lifetime = Lifetime { first_segment_life_years: None, ..endurance.lifetime() };
        Self {
            amplification,
            source,
            spare_factor: spare,
            programmed_bytes_per_day: per_day * amplification,
            lifetime,
        }
    }
}

/// Returns the amplification of uniform random writes of single pages to a device, by the closed form.
///
/// # Errors
/// Fails if the spare factor is not between 0 and 1.
pub fn uniform_amplification(rating: FlashRating, capacity: Bytes) -> Result<f64, ConfigError> {
    let pages = u32::try_from(capacity.0.div_ceil(PAGE)).unwrap_or(u32::MAX).max(1);
    let of = |spare| analytic::greedy(spare, SEGMENT_PAGES).amplification;
    if u64::from(pages) > PAGES_MAX {
        return if rating.spare > 0.0 && rating.spare < 1.0 {
            Ok(of(rating.spare))
        } else {
            Err(ConfigError::Spare)
        };
    }
    let config = LogConfig::for_device(pages, rating.spare, SEGMENT_PAGES, Metadata::default())?;
    Ok(analytic::with_open(pages.into(), config.in_use(), SEGMENT_PAGES, of))
}

/// Returns the bytes programmed per byte written.
fn amplification(
    rating: FlashRating,
    capacity: Bytes,
    writes: &[DeviceWrite],
) -> Result<(f64, AmplificationSource), SimError> {
    let pages = capacity.0.div_ceil(PAGE);
    let range = |write: &DeviceWrite| write.at.0 / PAGE..(write.at.0 + write.len.0).div_ceil(PAGE).min(pages);
    if pages > PAGES_MAX || writes.iter().all(|write| range(write).is_empty()) {
        return Ok((uniform_amplification(rating, capacity)?, AmplificationSource::ClosedForm));
    }
    let user = pages as u32;
    let config = LogConfig::for_device(user, rating.spare, SEGMENT_PAGES, Metadata::default())?;
    let mut log = Log::new(config, DenseMap::new(user), Greedy::new)?;
    for page in 0..pages {
        log.write(page, Stream(0), &mut Simulated)?;
    }
    let (mut before, mut windows, mut bytes) = (*log.counters(), Vec::new(), 0);
    let window = (pages / WINDOWS_PER_OVERWRITE).max(1);
    let most = (OVERWRITES_MAX * WINDOWS_PER_OVERWRITE as f64) as usize;
    let mut count = 0;
    for write in writes.iter().cycle() {
        for page in range(write) {
            log.write(page, Stream(0), &mut Simulated)?;
        }
        bytes += write.len.0;
        let done = log.counters().since(&before);
        if done.user < window {
            continue;
        }
        let amplification = (done.programmed() * PAGE) as f64 / bytes as f64;
        // Until the first segment is erased, there is spare space left to write.
        if done.erases > 0 {
            windows.push(amplification);
        }
        (before, bytes, count) = (*log.counters(), 0, count + 1);
        if steady::is_steady(&windows) {
            return Ok((mean_of_last(&windows), AmplificationSource::Log));
        }
        if count >= most {
            break;
        }
    }
    Ok((mean_of_last(&windows), AmplificationSource::UnsteadyLog))
}

/// Returns the mean of the last windows; 1 without any.
fn mean_of_last(windows: &[f64]) -> f64 {
    let last = &windows[windows.len().saturating_sub(steady::WINDOWS)..];
    if last.is_empty() { 1.0 } else { last.iter().sum::<f64>() / last.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Rng, Seed};

    const RATING: FlashRating = FlashRating { cycles: 3_000, spare: 0.2 };

    fn write(page: u64, pages: u64) -> DeviceWrite {
        DeviceWrite { at: DeviceOffset(page * PAGE), len: Bytes(pages * PAGE) }
    }

    /// Random writes of single pages have the amplification of the closed form, sequential ones none, and
    /// those that change a few pages again and again less than random ones.
    #[test]
    fn amplification_is_that_of_the_writes() {
        let capacity = Bytes::mib(64);
        let pages = capacity.0 / PAGE;
        let of =
            |writes: &[DeviceWrite]| amplification(RATING, capacity, writes).expect("there is spare space");
        let mut random = Rng::new(Seed(1));
        let uniform: Vec<_> = (0..10 * pages).map(|_| write(random.below(pages), 1)).collect();
        let (found, source) = of(&uniform);
        let exact = uniform_amplification(RATING, capacity).expect("a spare factor");
        assert!((found / exact - 1.0).abs() < 0.03, "{found} for {exact}");
        assert_eq!(source, AmplificationSource::Log);
        let sequential: Vec<_> = (0..pages / 256).map(|segment| write(segment * 256, 256)).collect();
        assert!(of(&sequential).0 < 1.01, "{:?}", of(&sequential));
        let few: Vec<_> = (0..pages).map(|_| write(random.below(pages / 20), 1)).collect();
        assert!(of(&few).0 < 0.9 * exact, "{:?}", of(&few));
        // Half a page is programmed as a whole one.
        let half: Vec<_> =
            uniform.iter().map(|write| DeviceWrite { len: Bytes(PAGE / 2), ..*write }).collect();
        assert!((of(&half).0 / found - 2.0).abs() < 0.1);
    }

    #[test]
    fn large_devices_and_unwritten_ones_have_the_closed_form() {
        let large = Bytes::gib(1000);
        let of = |capacity, writes: &[DeviceWrite]| {
            DeviceEndurance::new(RATING, capacity, writes, 86_400.0).expect("a spare factor")
        };
        let found = of(large, &[write(0, 256)]);
        assert_eq!(found.source, AmplificationSource::ClosedForm);
        assert!((found.amplification - 2.6684).abs() < 1e-3, "{found:?}");
        let writable = large.0 as f64 / 0.8 * 3_000.0 / found.amplification;
        let years = writable / (256.0 * 4096.0) / 365.25;
        assert!((found.lifetime.life_years.expect("written") / years - 1.0).abs() < 1e-6, "{found:?}");
        assert!((found.programmed_bytes_per_day / found.amplification - f64::from(256 << 12)).abs() < 1.0);
        assert_eq!(of(Bytes::mib(64), &[]).lifetime.life_years, None);
        let impossible = FlashRating { spare: 1.0, ..RATING };
        assert!(uniform_amplification(impossible, large).is_err());
        assert!(uniform_amplification(impossible, Bytes::mib(64)).is_err());
    }
}
