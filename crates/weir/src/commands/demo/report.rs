//! Formats the demo's result: a bar for each configuration, and the document of `--json`.

use super::load::Load;
use crate::commands::advise::device_list::decimal_size;
use crate::output::{Spill, Table, Width, grouped};
use crate::status::OVERRUN_EXPLANATION;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;
use weir_model::{Bytes, Nanos};

/// Minimum and maximum width of the bars, in columns.
const BAR_MIN: usize = 8;
const BAR_MAX: usize = 40;
/// Columns of the table besides the bars.
const OTHER_COLUMNS: usize = 59;

/// The result of `weir demo`: the document of `--json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(title = "weir demo")]
pub(crate) struct Report {
    /// The load, the same for every configuration.
    pub(super) load: Load,
    /// What prices are in, from the list that `weir advise` ships.
    pub(super) currency: String,
    /// The disk alone, the pool and the all-SSD configuration, in this order.
    pub(super) configurations: Vec<Outcome>,
    /// Devices that answered too late too often for valid figures, each with its configuration and its share
    /// of late commands; empty if all figures are valid.
    pub(super) figures_invalid: Vec<String>,
    /// The pool file of the pool that `--keep` left; `null` without `--keep`.
    pub(super) kept_pool_file: Option<PathBuf>,
}

/// One configuration and its figures.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Configuration")]
pub(super) struct Outcome {
    /// `disk alone`, `pool` or `all-SSD`.
    pub(super) name: &'static str,
    /// Its devices.
    pub(super) devices: Vec<Part>,
    /// Bytes that the devices on sale hold, together.
    pub(super) capacity_bytes: u64,
    /// Price of the devices on sale, together.
    pub(super) price: f64,
    /// Requests a second for 100 units of the currency.
    pub(super) requests_per_second_per_100: f64,
    /// Measured by the client under the load.
    pub(super) measured: Measured,
    /// Bytes a second of a sequential read afterwards, from the start of the volume.
    pub(super) scan_bytes_per_second: f64,
}

/// A device of a configuration.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Device")]
pub(super) struct Part {
    /// Its name in the pool.
    pub(super) name: &'static str,
    /// The device on sale that it stands for, by its name in the list.
    pub(super) stands_for: String,
    /// Maker and model of that device.
    pub(super) about: String,
    /// The modelled drive it is paced as.
    pub(super) pace: String,
    /// Size of the file that stands for it.
    pub(super) file_bytes: u64,
}

/// What the client measured; times are `null` if nothing was answered.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(super) struct Measured {
    /// Reads and writes a second.
    pub(super) requests_per_second: f64,
    /// Bytes read a second.
    pub(super) read_bytes_per_second: f64,
    /// Mean response to reads.
    pub(super) read_mean_ns: Option<u64>,
    /// Response to reads that 99 of 100 do not exceed.
    pub(super) read_p99_ns: Option<u64>,
    /// Mean response to writes.
    pub(super) write_mean_ns: Option<u64>,
    /// Mean response to reads in each second; seconds without reads are left out.
    pub(super) read_mean_ns_by_second: Vec<u64>,
}

/// Formats a response time; "-" if there is none.
pub(super) fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| Nanos(ns).to_string())
}

/// Formats values as block characters of rising height; the largest value has the full height.
pub(super) fn sparkline(values: impl IntoIterator<Item = u64>) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let values: Vec<u64> = values.into_iter().collect();
    let most = values.iter().copied().max().unwrap_or(0).max(1) as f64;
    let height = |value: &u64| HEIGHTS[((*value as f64 / most * 8.0).ceil() as usize).clamp(1, 8) - 1];
    values.iter().map(height).collect()
}

impl Outcome {
    fn price(&self, currency: &str) -> String {
        format!("{} {currency}", self.price)
    }

    fn rate(&self) -> String {
        grouped(self.measured.requests_per_second.round() as u64)
    }

    fn value(&self) -> String {
        grouped(self.requests_per_second_per_100.round() as u64)
    }

    fn scan(&self) -> String {
        format!("{}/s", Bytes(self.scan_bytes_per_second as u64))
    }
}

impl Report {
    /// Returns a line for each configuration, for output that is not a terminal.
    pub(super) fn lines(&self) -> String {
        let currency = &self.currency;
        let line = |outcome: &Outcome| {
            let Measured { read_mean_ns, read_p99_ns, .. } = outcome.measured;
            format!(
                "{}: {} for {}, {} requests/s ({} per 100 {currency}), mean read {}, p99 {}, scan {}\n",
                outcome.name,
                decimal_size(Bytes(outcome.capacity_bytes)),
                outcome.price(currency),
                outcome.rate(),
                outcome.value(),
                time(read_mean_ns),
                time(read_p99_ns),
                outcome.scan(),
            )
        };
        self.configurations.iter().map(line).collect()
    }

    /// Returns the text that is printed without `--json`: a bar for each configuration, and a legend.
    pub(super) fn human(&self, width: Width) -> String {
        let mut text = format!("\n{}\n\n{}\n", self.load.description(), self.bars(width));
        text += &self.response_line();
        text += &self.all_ssd_advantage();
        text += &self.legend();
        if let Some(warning) = self.warning() {
            text += &format!("\n{warning}\n");
        }
        if let Some(kept) = self.kept_pool_help() {
            text += &format!("\n{kept}");
        }
        text
    }

    fn bars(&self, width: Width) -> String {
        let currency = &self.currency;
        let columns = width.get().saturating_sub(OTHER_COLUMNS).clamp(BAR_MIN, BAR_MAX);
        let most = self.configurations.iter().map(|outcome| outcome.requests_per_second_per_100);
        let most = most.fold(1.0, f64::max);
        let bar =
            |value: f64| "█".repeat(((value / most * columns as f64).round() as usize).clamp(1, columns));
        let last = format!("REQUESTS/S PER 100 {currency}");
        let rows = self.configurations.iter().map(|outcome| {
            [
                outcome.name.to_owned(),
                decimal_size(Bytes(outcome.capacity_bytes)),
                outcome.price(currency),
                outcome.rate(),
                time(outcome.measured.read_mean_ns),
                format!("{} {}", bar(outcome.requests_per_second_per_100), outcome.value()),
            ]
        });
        let heading = ["", "CAPACITY", "PRICE", "REQUESTS/S", "MEAN READ", &last];
        let table = Table::new(heading, rows).removed_first(&["MEAN READ", "CAPACITY", "REQUESTS/S"]);
        table.spill(Spill::Below).text(width)
    }

    /// Returns a line that shows the pool's response time over the run.
    fn response_line(&self) -> String {
        let Some(pool) = self.configurations.get(1) else { return String::new() };
        let reads = &pool.measured.read_mean_ns_by_second;
        let (Some(first), Some(last)) = (reads.first(), reads.last()) else { return String::new() };
        let line = sparkline(reads.iter().copied());
        format!("The pool's mean read, second by second: {} {line} {}\n", Nanos(*first), Nanos(*last))
    }

    /// Returns a sentence about the load and the figures in which the all-SSD configuration is better.
    fn all_ssd_advantage(&self) -> String {
        let [_, pool, ssd] = &self.configurations[..] else { return String::new() };
        let p99 = |outcome: &Outcome| time(outcome.measured.read_p99_ns);
        format!(
            "All-SSD is faster: it reads sequentially {}, the pool {} from its disk; 99 of 100 of its \
             reads take at most {}, the pool's {}. It can also serve more than this load.\n",
            ssd.scan(),
            pool.scan(),
            p99(ssd),
            p99(pool),
        )
    }

    /// Returns the legend: the meaning of files and bars, and the prices.
    fn legend(&self) -> String {
        let [disk, pool, ssd] = &self.configurations[..] else { return String::new() };
        let names = |outcome: &Outcome| {
            let names: Vec<_> = outcome.devices.iter().map(|part| part.about.as_str()).collect();
            names.join(" + ")
        };
        let size = disk.devices.first().map_or(Bytes(0), |part| Bytes(part.file_bytes));
        format!(
            "Each drive is a file with the timing of the drive; {size} stand for {}. The pool \
             starts with all data on its disk.\nPrices (weir advise --print-devices): {}; {}; {}.\n",
            decimal_size(Bytes(disk.capacity_bytes)),
            names(disk),
            names(pool),
            names(ssd),
        )
    }

    /// Returns a warning if figures are invalid.
    pub(super) fn warning(&self) -> Option<String> {
        let late = &self.figures_invalid;
        (!late.is_empty()).then(|| format!("figures invalid: {}; {OVERRUN_EXPLANATION}", late.join(", ")))
    }

    /// Returns instructions to use and to remove the kept pool.
    pub(super) fn kept_pool_help(&self) -> Option<String> {
        let pool_file = self.kept_pool_file.as_ref()?;
        let folder = pool_file.parent()?.display();
        Some(format!(
            "The pool is kept in {folder}. There, these commands serve it, show its devices, and show \
             its volume to an NBD client:\n  \
             weir serve --nbd unix:nbd.sock\n  \
             weir pool status\n  \
             nbdinfo 'nbd+unix:///demo?socket=nbd.sock'\n\
             Remove it: rm -r '{folder}'\n"
        ))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use unicode_width::UnicodeWidthStr as _;

    pub(in super::super) fn report() -> Report {
        let part = |name, about: &str| Part {
            name,
            stands_for: "a-drive".into(),
            about: about.into(),
            pace: "hdd-7200".into(),
            file_bytes: 1 << 30,
        };
        let (disk, ssd) =
            (part("disk", "Seagate Exos 7E10 4 TB, 7,200 rpm"), part("ssd", "Samsung 870 EVO, SATA"));
        let outcome = |name, devices, tb: f64, price: f64, rate: f64, read| Outcome {
            name,
            devices,
            capacity_bytes: (tb * 1e12) as u64,
            price,
            requests_per_second_per_100: rate / price * 100.0,
            measured: Measured {
                requests_per_second: rate,
                read_mean_ns: Some(read),
                read_p99_ns: Some(10 * read),
                read_mean_ns_by_second: (1..=12).map(|second| read / second).collect(),
                ..Measured::default()
            },
            scan_bytes_per_second: 264.0 * 1048576.0,
        };
        Report {
            load: Load::new(Bytes::mib(768), 12),
            currency: "USD".into(),
            configurations: vec![
                outcome("disk alone", vec![disk.clone()], 4.0, 130.0, 544.0, 20_900_000),
                outcome("pool", vec![disk, ssd.clone()], 4.5, 190.0, 956.0, 11_800_000),
                outcome("all-SSD", vec![ssd], 4.0, 320.0, 1001.0, 326_000),
            ],
            figures_invalid: Vec::new(),
            kept_pool_file: None,
        }
    }

    #[test]
    fn three_bars_fit_80_columns() {
        let text = Width::columns(80).fold(&report().human(Width::columns(80)));
        assert!(text.lines().all(|line| line.width() <= 80), "{text}");
        let at = |name: &str| text.lines().find(|line| line.starts_with(name)).expect("a row").to_owned();
        let bar = |name: &str| at(name).matches('█').count();
        let bars = ["disk alone", "pool ", "all-SSD "].map(bar);
        assert_eq!(bars[1], 21, "{text}");
        assert!(bars[0] < bars[1] && bars[2] < bars[0], "{bars:?} in\n{text}");
        assert!(at("pool ").starts_with("pool        4.5 TB    190 USD  956         11.8 ms"), "{text}");
        assert!(at("pool ").ends_with(" 503") && !text.contains('\x1b'), "{text}");
        assert!(text.contains("20.9 ms █▄▃") || text.contains("11.8 ms █▄▃"), "{text}");
        assert!(!text.contains("figures invalid") && !text.contains("is kept"), "{text}");
    }

    #[test]
    fn every_width_has_every_figure() {
        for columns in [24, 40, 60, 80, 100, 200] {
            let width = Width::columns(columns);
            let text = width.fold(&report().human(width));
            for word in ["418", "503", "313", "4.5 TB", "1,001"] {
                assert!(text.contains(word), "{word} at {columns} columns:\n{text}");
            }
            for line in text.lines() {
                let is_word = line.split_whitespace().count() == 1;
                assert!(line.width() <= columns || is_word, "{columns} columns: {line:?}");
            }
        }
    }

    #[test]
    fn without_a_terminal_there_are_three_lines() {
        let text = report().lines();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert_eq!(
            text.lines().nth(1),
            Some(
                "pool: 4.5 TB for 190 USD, 956 requests/s (503 per 100 USD), mean read 11.8 ms, \
                 p99 118.0 ms, scan 264 MiB/s"
            )
        );
    }

    #[test]
    fn no_answers_have_no_response_time() {
        let mut report = report();
        report.configurations[0].measured = Measured::default();
        let text = report.human(Width::UNLIMITED) + &report.lines();
        assert!(text.contains("mean read -, p99 -") && !text.contains("0 ns"), "{text}");
    }

    #[test]
    fn a_warning_and_a_kept_pool_are_reported() {
        let report = Report {
            figures_invalid: vec!["disk alone: disk 12.3 %".into()],
            kept_pool_file: Some("/srv/weir-demo/pool.toml".into()),
            ..report()
        };
        let text = report.human(Width::UNLIMITED);
        assert!(text.contains("figures invalid: disk alone: disk 12.3 %; "), "{text}");
        assert!(text.contains("The pool is kept in /srv/weir-demo. "), "{text}");
        for command in [
            "  weir serve --nbd unix:nbd.sock\n",
            "  weir pool status\n",
            "Remove it: rm -r '/srv/weir-demo'\n",
        ] {
            assert!(text.contains(command), "{command} in {text}");
        }
        let document = serde_json::to_value(&report).expect("JSON");
        assert_eq!(document["kept_pool_file"], "/srv/weir-demo/pool.toml");
        assert_eq!(document["configurations"][1]["measured"]["read_mean_ns"], 11_800_000);
    }

    #[test]
    fn a_sparkline_has_the_largest_value_full() {
        assert_eq!(sparkline([8, 4, 1, 0]), "█▄▁▁");
        assert_eq!(sparkline([]), "");
    }
}
