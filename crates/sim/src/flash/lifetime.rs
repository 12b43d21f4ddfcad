//! How long flash lasts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_model::Bytes;

/// The rating of a cell: how often it can be erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Name, in commands and reports.
    pub name: &'static str,
    /// Erases until it wears out.
    pub cycles: u32,
}

impl Cell {
    /// Usual ratings, as recalled from datasheets. Devices differ: take that of yours if you know it.
    pub const ALL: [Self; 5] = [
        Self { name: "slc", cycles: 100_000 },
        Self { name: "mlc", cycles: 3_000 },
        Self { name: "tlc", cycles: 3_000 },
        Self { name: "qlc", cycles: 1_000 },
        Self { name: "plc", cycles: 300 },
    ];

    /// Returns the cell of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cell| cell.name == name)
    }
}

/// How long the device lasts under the load. Retention, read disturbance and failures of other parts are left
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lifetime {
    /// Erases until a cell wears out.
    pub rated_cycles: u32,
    /// Bytes that the user can write until the flash wears out, evenly.
    pub writable_bytes: f64,
    /// Bytes that the user writes per day; `null` if unknown: without times of the load, or in a closed loop.
    pub bytes_per_day: Option<f64>,
    /// Device capacities written per day; `null` if unknown.
    pub drive_writes_per_day: Option<f64>,
    /// Years until the flash wears out, evenly; `null` if unknown.
    pub life_years: Option<f64>,
    /// Years until the first segment wears out, if the most worn one continues to wear faster than the mean
    /// as in the simulation; `null` if unknown.
    pub first_segment_life_years: Option<f64>,
}

/// Mean number of days in a year.
pub const DAYS_PER_YEAR: f64 = 365.25;

/// What decides a lifetime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endurance {
    pub(crate) cycles: u32,
    /// Flash in use, and the user's part of it.
    pub(crate) flash: Bytes,
    pub(crate) capacity: Bytes,
    /// Bytes programmed per byte that the user writes.
    pub(crate) amplification: f64,
    pub(crate) bytes_per_day: Option<f64>,
    /// Erases of the most worn segment per mean erase; at least 1.
    pub(crate) unevenness: f64,
}

impl Endurance {
    pub(crate) fn lifetime(&self) -> Lifetime {
        let writable = self.flash.0 as f64 * f64::from(self.cycles) / self.amplification;
        let life = self.bytes_per_day.map(|per_day| writable / per_day / DAYS_PER_YEAR);
        Lifetime {
            rated_cycles: self.cycles,
            writable_bytes: writable,
            bytes_per_day: self.bytes_per_day,
            drive_writes_per_day: self.bytes_per_day.map(|per_day| per_day / self.capacity.0.max(1) as f64),
            life_years: life,
            first_segment_life_years: life.map(|life| life / self.unevenness),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 GB for the user on 125 GB of flash, amplification 2.5, 3,000 cycles, half a drive write a day.
    #[test]
    fn life_is_flash_times_cycles_over_what_is_programmed() {
        let endurance = Endurance {
            cycles: 3_000,
            flash: Bytes(125_000_000_000),
            capacity: Bytes(100_000_000_000),
            amplification: 2.5,
            bytes_per_day: Some(50e9),
            unevenness: 1.5,
        };
        let lifetime = endurance.lifetime();
        assert!((lifetime.writable_bytes - 150e12).abs() < 1.0);
        assert_eq!(lifetime.drive_writes_per_day, Some(0.5));
        let years = lifetime.life_years.expect("known");
        assert!((years - 3000.0 / 365.25).abs() < 1e-9, "{years}");
        assert!((lifetime.first_segment_life_years.expect("known") - years / 1.5).abs() < 1e-9);
        let unknown = Endurance { bytes_per_day: None, ..endurance }.lifetime();
        assert_eq!((unknown.life_years, unknown.drive_writes_per_day), (None, None));
    }
}
