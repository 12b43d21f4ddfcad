//! The demo's live picture: what each device does at the moment, and how much data it holds.

use crate::output::table;
use crate::status::{Status, Traffic};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};
use weir_model::Bytes;

/// How often lines are printed where nothing can be redrawn.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Draws on standard error: again and again on a terminal, else a line now and then.
#[derive(Debug)]
pub(super) struct Picture {
    redraws: bool,
    /// Lines drawn last, to be drawn over.
    drawn: usize,
    last: Option<(Instant, Status)>,
}

impl Picture {
    pub(super) fn new() -> Self {
        Self { redraws: std::io::stderr().is_terminal(), drawn: 0, last: None }
    }

    /// Forgets what was shown, so that the next work is drawn below the last.
    pub(super) fn begin(&mut self) {
        *self = Self::new();
    }

    /// How long to wait between two calls of [`Self::show`].
    pub(super) fn pause(&self) -> Duration {
        if self.redraws { Duration::from_millis(500) } else { LINE_EVERY }
    }

    /// Shows what happened since the last call.
    pub(super) fn show(&mut self, heading: &str, status: Status) {
        let now = Instant::now();
        let Some((then, before)) = self.last.replace((now, status)) else { return };
        let Some((_, status)) = &self.last else { return };
        let rates = rates(&before, status, now.duration_since(then));
        let mut out = std::io::stderr().lock();
        if self.redraws {
            let text = format!("{heading}\n\n{}", drawn(&rates));
            if self.drawn > 0 {
                let _ = write!(out, "\x1b[{}A\x1b[J", self.drawn);
            }
            self.drawn = text.lines().count();
            let _ = writeln!(out, "{}", text.trim_end());
        } else {
            let _ = writeln!(out, "{heading}: {}", line(&rates));
        }
    }
}

/// One device's row.
#[derive(Debug)]
struct Rate {
    name: String,
    pace: String,
    reads: f64,
    writes: f64,
    bytes: Bytes,
    read_response: String,
    write_response: String,
    /// Of all data in the pool, the part that is here.
    share: f64,
}

fn rates(before: &Status, status: &Status, passed: Duration) -> Vec<Rate> {
    let seconds = passed.as_secs_f64().max(1e-3);
    let all = status.pool.used_bytes.max(1) as f64;
    let rate = |(index, device): (usize, &crate::status::DevicePart)| {
        let traffic = device.traffic.unwrap_or_default();
        let earlier = before.devices.get(index).and_then(|device| device.traffic).unwrap_or_default();
        let reads = traffic.reads.count.saturating_sub(earlier.reads.count) as f64;
        let writes = traffic.writes.count.saturating_sub(earlier.writes.count) as f64;
        let moved = |traffic: Traffic| traffic.reads.bytes + traffic.writes.bytes;
        Rate {
            name: device.name.clone(),
            pace: device.pace.clone().unwrap_or_default(),
            reads: reads / seconds,
            writes: writes / seconds,
            bytes: Bytes((moved(traffic).saturating_sub(moved(earlier)) as f64 / seconds) as u64),
            read_response: traffic.reads.response(),
            write_response: traffic.writes.response(),
            share: device.used_bytes as f64 / all,
        }
    };
    status.devices.iter().enumerate().map(rate).collect()
}

fn drawn(rates: &[Rate]) -> String {
    table(
        ["DEVICE", "PACED AS", "READS/S", "WRITES/S", "THROUGHPUT", "READ", "WRITE", "SHARE OF DATA"],
        rates.iter().map(|rate| {
            let filled = (rate.share * 20.0).round() as usize;
            [
                rate.name.clone(),
                rate.pace.clone(),
                format!("{:.0}", rate.reads),
                format!("{:.0}", rate.writes),
                format!("{}/s", rate.bytes),
                rate.read_response.clone(),
                rate.write_response.clone(),
                format!(
                    "{}{} {:.0} %",
                    "█".repeat(filled),
                    "░".repeat(20usize.saturating_sub(filled)),
                    rate.share * 100.0
                ),
            ]
        }),
    )
}

fn line(rates: &[Rate]) -> String {
    let mut text = String::new();
    for (index, rate) in rates.iter().enumerate() {
        let _ = write!(
            text,
            "{}{} {:.0} reads/s of {}, {:.0} writes/s of {}, {}/s, {:.0} % of the data",
            if index > 0 { "; " } else { "" },
            rate.name,
            rate.reads,
            rate.read_response,
            rate.writes,
            rate.write_response,
            rate.bytes,
            rate.share * 100.0
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Commands, DevicePart};

    #[test]
    fn rates_are_what_happened_between_two_looks() {
        let look = |count, used_bytes| {
            let reads = Commands { count, bytes: count * 4096, response_ns: Some(1000) };
            let traffic = Some(Traffic { reads, ..Traffic::default() });
            let device = DevicePart { name: "fast".into(), used_bytes, traffic, ..DevicePart::default() };
            let mut status = Status { devices: vec![device], ..Status::default() };
            status.pool.used_bytes = 4000;
            status
        };
        let rates = rates(&look(100, 0), &look(300, 1000), Duration::from_secs(2));
        assert_eq!((rates[0].reads, rates[0].writes), (100.0, 0.0));
        assert_eq!(rates[0].bytes, Bytes(409_600));
        assert!(drawn(&rates).contains("25 %"), "{}", drawn(&rates));
        assert!(
            line(&rates).contains("fast 100 reads/s of 1.0 us, 0 writes/s of -, 400 KiB/s, 25 % of the data")
        );
    }
}
