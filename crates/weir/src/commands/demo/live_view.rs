//! Draws the demo's live picture: the traffic and the share of data of each device, and the response time
//! second by second.

use super::report::sparkline;
use crate::output::{Spill, Table, Width};
use crate::status::{Status, Traffic};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};
use terminal_size::terminal_size_of;
use unicode_width::UnicodeWidthStr as _;
use weir_model::{Bytes, Nanos};

/// Time between two drawings.
const REDRAW_INTERVAL: Duration = Duration::from_millis(500);

/// Draws repeatedly on standard error if that is a terminal; otherwise draws nothing.
#[derive(Debug)]
pub(super) struct LiveView {
    redraws: bool,
    screen: Screen,
    last: Option<(Instant, Status)>,
}

impl LiveView {
    pub(super) fn new() -> Self {
        Self { redraws: std::io::stderr().is_terminal(), screen: Screen::default(), last: None }
    }

    /// Returns the time between two calls of [`Self::show`]; `None` if nothing is drawn.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.redraws.then_some(REDRAW_INTERVAL)
    }

    /// Draws the changes since the last call. `reads` holds the mean response time of reads in each second.
    pub(super) fn show(&mut self, heading: &str, status: Status, reads: &[Nanos]) {
        let now = Instant::now();
        let Some((then, before)) = self.last.replace((now, status)) else { return };
        let Some((_, status)) = &self.last else { return };
        let rates = rates(&before, status, now.duration_since(then));
        let mut out = std::io::stderr().lock();
        let size =
            terminal_size_of(&out).map_or((80, 24), |(width, height)| (width.0.into(), height.0.into()));
        let width = Width::columns(size.0);
        let text = width.fold(heading)
            + &format_rates(&rates, width)
            + &width.fold(&migration_line(status))
            + &response_line(reads, width);
        let _ = out.write_all(self.screen.redraw(&text, size).as_bytes());
    }
}

/// Returns the usage of the fast device and the bytes that the mover copied; empty if there is one device.
fn migration_line(status: &Status) -> String {
    let [fast, _, ..] = &status.devices[..] else { return String::new() };
    let moves = &status.pool.migration;
    format!(
        "on {}: {} of {}; copied by the mover: {}",
        fast.name,
        Bytes(fast.used_bytes),
        Bytes(fast.capacity_bytes),
        Bytes(moves.copied_bytes)
    )
}

/// Columns on the line of response times that the bars do not use.
const RESPONSE_LABEL_COLUMNS: usize = 40;

/// Returns a line with the response time second by second: the latest seconds, if not all fit.
fn response_line(reads: &[Nanos], width: Width) -> String {
    let most = width.get().saturating_sub(RESPONSE_LABEL_COLUMNS).clamp(1, 60);
    let shown = &reads[reads.len().saturating_sub(most)..];
    let (Some(first), Some(last)) = (shown.first(), shown.last()) else { return String::new() };
    format!("mean read by second: {first} {} {last}", sparkline(shown.iter().map(|read| read.get())))
}

/// The lines that were drawn last on a terminal; the next drawing replaces them.
#[derive(Debug, Default)]
struct Screen {
    drawn_lines: Vec<String>,
}

impl Screen {
    /// Returns the control sequences and text that replace the last drawing, on a terminal of that many
    /// columns and rows.
    ///
    /// Omits lines below the last row and cuts long lines: lines that have scrolled off the terminal cannot
    /// be cleared.
    fn redraw(&mut self, text: &str, (columns, rows): (usize, usize)) -> String {
        let mut out = String::new();
        // A terminal that has become narrower has wrapped the lines on it.
        let up: usize =
            self.drawn_lines.iter().map(|line| line.width().div_ceil(columns.max(1)).max(1)).sum();
        if up > 0 {
            let _ = write!(out, "\x1b[{}A\r\x1b[J", up.min(rows.saturating_sub(1)));
        }
        let lines = text.trim_end().lines().take(rows.saturating_sub(1).max(1));
        self.drawn_lines = lines.map(|line| truncate_line(line, columns)).collect();
        for line in &self.drawn_lines {
            out += line;
            out.push('\n');
        }
        out
    }
}

/// Returns as much of a line as fits.
fn truncate_line(line: &str, columns: usize) -> String {
    let mut end = line.len();
    while line[..end].width() > columns {
        end = line.floor_char_boundary(end - 1);
    }
    line[..end].to_owned()
}

/// The row of one device.
#[derive(Debug)]
struct DeviceRate {
    name: String,
    pace: String,
    reads: f64,
    writes: f64,
    bytes: Bytes,
    read_response: String,
    write_response: String,
    /// Share of the pool's data that is on this device.
    share: f64,
}

fn rates(before: &Status, status: &Status, passed: Duration) -> Vec<DeviceRate> {
    let seconds = passed.as_secs_f64().max(1e-3);
    let all = status.pool.used_bytes.max(1) as f64;
    let rate = |(index, device): (usize, &crate::status::DevicePart)| {
        let traffic = device.traffic.unwrap_or_default();
        let earlier = before.devices.get(index).and_then(|device| device.traffic).unwrap_or_default();
        let reads = traffic.reads.count.saturating_sub(earlier.reads.count) as f64;
        let writes = traffic.writes.count.saturating_sub(earlier.writes.count) as f64;
        let moved = |traffic: Traffic| traffic.reads.bytes + traffic.writes.bytes;
        DeviceRate {
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

fn format_rates(rates: &[DeviceRate], width: Width) -> String {
    // The bar is short if the full table does not fit.
    let bar = if width == width.at_most(99) { 10 } else { 20 };
    let table = Table::new(
        ["DEVICE", "PACED AS", "READS/S", "WRITES/S", "THROUGHPUT", "READ", "WRITE", "SHARE OF DATA"],
        rates.iter().map(|rate| {
            let filled = ((rate.share * bar as f64).round() as usize).min(bar);
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
                    "░".repeat(bar.saturating_sub(filled)),
                    rate.share * 100.0
                ),
            ]
        }),
    );
    table.removed_first(&["PACED AS", "THROUGHPUT", "WRITE", "READ"]).spill(Spill::Dropped).text(width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Commands, DevicePart};

    #[test]
    fn rates_are_differences_of_two_samples() {
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
        assert!(format_rates(&rates, Width::UNLIMITED).contains("25 %"));
    }

    #[test]
    fn data_on_the_fast_device_and_the_response_over_time_are_shown() {
        let device = |name: &str| DevicePart {
            name: name.into(),
            used_bytes: 1 << 20,
            capacity_bytes: 2 << 20,
            ..DevicePart::default()
        };
        let mut status = Status { devices: vec![device("ssd")], ..Status::default() };
        assert_eq!(migration_line(&status), "", "a disk alone moves nothing");
        status.devices.push(device("disk"));
        status.pool.migration.copied_bytes = 4096;
        assert_eq!(migration_line(&status), "on ssd: 1 MiB of 2 MiB; copied by the mover: 4 KiB");
        let reads: Vec<_> = (1..=70).rev().map(Nanos::millis).collect();
        let text = response_line(&reads, Width::columns(80));
        assert!(text.starts_with("mean read by second: 40.0 ms █") && text.ends_with("▁ 1.0 ms"), "{text}");
        assert!(text.width() <= 80, "{text}");
        assert_eq!(response_line(&[], Width::columns(40)), "");
    }

    fn three() -> Vec<DeviceRate> {
        let rate = |name: &str| DeviceRate {
            name: name.into(),
            pace: "hdd-7200".into(),
            reads: 1_234_567.0,
            writes: 234_567.0,
            bytes: Bytes(98_765_432_109),
            read_response: "123.4 ms".into(),
            write_response: "999.9 us".into(),
            share: 1.0,
        };
        [
            rate("nvm"),
            rate("a-name-that-is-as-long-as-names-of-devices-may-be-and-a-little-longer"),
            rate("磁盘"),
        ]
        .into()
    }

    /// Returns the contents of the terminal after the last drawing.
    fn screen_contents(drawings: &[(usize, usize)]) -> String {
        let (columns, rows) = drawings[0];
        let mut terminal = vt100::Parser::new(rows as u16, columns as u16, 0);
        terminal.process(b"$ weir demo\r\n");
        let mut screen = Screen::default();
        let heading =
            "the pool of all three: 70 % reads, 30 % writes of 4 KiB, and a sequential reader, for 30 s";
        for (turn, (columns, rows)) in drawings.iter().enumerate() {
            terminal.screen_mut().set_size(*rows as u16, *columns as u16);
            let text = Width::columns(*columns).fold(&format!("turn {turn}; {heading}"))
                + &format_rates(&three(), Width::columns(*columns));
            let bytes = screen.redraw(&text, (*columns, *rows));
            assert!(
                screen.drawn_lines.iter().all(|line| line.width() <= *columns),
                "{:#?}",
                screen.drawn_lines
            );
            terminal.process(bytes.replace('\n', "\r\n").as_bytes());
        }
        terminal.screen().contents()
    }

    #[test]
    fn redraw_clears_the_previous_drawing() {
        for columns in [200, 100, 99, 80, 60, 40, 24] {
            let text = screen_contents(&[(columns, 24); 5]);
            assert!(text.starts_with("$ weir demo\nturn 4; the pool"), "{columns} columns:\n{text}");
            assert_eq!(text.matches("turn").count(), 1, "{columns} columns:\n{text}");
            assert_eq!(text.matches("nvm").count(), 1, "{columns} columns:\n{text}");
        }
        // A terminal with too few rows shows the start of the drawing.
        let text = screen_contents(&[(60, 4); 5]);
        assert!(text.starts_with("turn 4"), "{text}");
        assert_eq!(text.matches("turn").count(), 1, "{text}");
    }

    #[test]
    fn redraw_clears_lines_wrapped_by_a_resize() {
        let mut screen = Screen::default();
        assert_eq!(screen.redraw("12345678\n12\n\n", (10, 24)), "12345678\n12\n");
        assert_eq!(screen.redraw("1", (4, 24)), "\x1b[3A\r\x1b[J1\n", "two lines of 8, one of 2");
        assert_eq!(screen.redraw("1\n2\n3\n4\n5", (4, 3)), "\x1b[1A\r\x1b[J1\n2\n");
        assert_eq!(screen.redraw("磁盘磁盘", (7, 3)), "\x1b[2A\r\x1b[J磁盘磁\n");
    }
}
