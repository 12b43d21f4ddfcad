//! The status as metrics in the OpenMetrics text format, for a monitor that reads a file or runs a command.

use super::Status;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};
use std::sync::atomic::AtomicU64;

type Labels = Vec<(String, String)>;
type FloatGauge = Gauge<f64, AtomicU64>;

impl Status {
    /// Returns all metrics, each with the name of the pool in the label `pool`. The names are stable, as
    /// those of the JSON document are. A metric without a value is omitted. Sizes are in bytes, times in
    /// seconds.
    pub fn metrics(&self) -> String {
        let mut all = Metrics { registry: Registry::with_prefix("weir"), pool: self.pool.name.clone() };
        self.pool_metrics(&mut all);
        self.device_metrics(&mut all);
        self.volume_metrics(&mut all);
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut out, &all.registry);
        out
    }

    fn pool_metrics(&self, all: &mut Metrics) {
        let pool = &self.pool;
        let warning = |percent: Option<u8>| f64::from(percent.unwrap_or(0));
        let seconds = |ns: u64| ns as f64 / 1e9;
        let data = pool.full.as_deref() == Some("data");
        let metadata = pool.full.as_deref() == Some("metadata");
        for (name, help, value) in [
            ("capacity_bytes", "Capacity for data", pool.capacity_bytes as f64),
            ("used_bytes", "Capacity for data in use", pool.used_bytes as f64),
            ("provisioned_bytes", "Sum over the volumes of size times copies", pool.provisioned_bytes as f64),
            ("growth_bytes_per_second", "Net growth of the capacity in use", pool.growth_bytes_per_second),
            (
                "warning_percent",
                "Highest warning threshold that used space has passed, 0 for none",
                warning(pool.warning_percent),
            ),
            ("full", "1 if a write got no space for data last", f64::from(data)),
            ("waiting_writes", "Parts of writes that wait for space", pool.waiting_writes as f64),
            ("metadata_capacity_bytes", "Capacity for metadata", pool.metadata_capacity_bytes as f64),
            ("metadata_used_bytes", "Capacity for metadata in use", pool.metadata_used_bytes as f64),
            (
                "metadata_warning_percent",
                "Highest warning threshold that metadata has passed, 0 for none",
                warning(pool.metadata_warning_percent),
            ),
            ("metadata_full", "1 if a write got no space for metadata last", f64::from(metadata)),
            (
                "recovery_seconds",
                "Expected duration of recovery if the power failed now",
                seconds(pool.recovery_ns),
            ),
            ("map_memory_bytes", "Memory that the map occupies", pool.map_memory_bytes as f64),
            (
                "extent_cache_used_bytes",
                "Memory that the extent cache uses",
                pool.extent_cache.used_bytes as f64,
            ),
            ("extra_bytes", "Space beyond one place an extent", pool.fragmentation.extra_bytes as f64),
            (
                "fragmented_extents",
                "Extents that are not in one whole place for each copy",
                pool.fragmentation.fragmented_extents as f64,
            ),
            ("unreachable_bytes", "Data that only lost devices hold", pool.unreachable_bytes as f64),
            (
                "migration_stopped",
                "1 if migration is stopped because it made commands slower",
                f64::from(pool.migration_estimate.stopped_ns.is_some()),
            ),
            ("read_only", "1 if the pool refuses changes", f64::from(pool.read_only)),
        ] {
            all.gauges(name, help, [(None, value)]);
        }
        let full_in = pool.full_in_ns.map(|ns| (None, seconds(ns)));
        all.gauges("full_in_seconds", "Time until the pool is full at the present rate", full_in);
        let estimate = pool.migration_estimate;
        let ratio = estimate.mean_ns as f64 / estimate.counterfactual_mean_ns.max(1) as f64;
        let known = (estimate.commands > 0).then_some((None, ratio));
        all.gauges("migration_cost_ratio", "Cost of commands to their cost without migration", known);
        for (name, help, value) in [
            ("refused_writes", "Parts of writes that failed for lack of space", pool.refused_writes),
            ("metadata_written_bytes", "Metadata written", pool.metadata_written_bytes),
            ("data_written_bytes", "Data written for clients", pool.data_written_bytes),
            ("extent_cache_hits", "Parts of reads that the extent cache answered", pool.extent_cache.hits),
            (
                "extent_cache_misses",
                "Parts of reads that the extent cache did not answer",
                pool.extent_cache.misses,
            ),
        ] {
            all.counters(name, help, [(None, value)]);
        }
        self.client_metrics(all);
    }

    fn client_metrics(&self, all: &mut Metrics) {
        let Some(clients) = self.pool.clients else { return };
        for (name, help, value) in [
            ("clients", "NBD clients connected", clients.connected),
            ("clients_limit", "Most NBD clients that may be connected", clients.limit),
            ("clients_idle", "Connected clients without a recent request", clients.idle),
            ("handshakes", "Connections that have not chosen a volume", clients.handshakes),
            ("control_sessions", "Connections to the control socket", clients.control_sessions),
        ] {
            all.gauges(name, help, [(None, value as f64)]);
        }
        all.counters("clients_refused", "Clients refused beyond a limit", [(None, clients.refused)]);
        let dropped = clients.handshakes_dropped;
        all.counters("handshakes_dropped", "Handshakes that the server dropped", [(None, dropped)]);
    }

    fn device_metrics(&self, all: &mut Metrics) {
        let of = |name: &str| Some(("device", name.to_owned()));
        let lost = self.devices.iter().map(|d| (of(&d.name), f64::from(d.state == "lost")));
        all.gauges("device_lost", "1 if the device is lost and gets no more commands", lost);
        let removed = self.devices.iter().map(|d| (of(&d.name), f64::from(d.removed)));
        all.gauges(
            "device_removed",
            "1 if the device's file was removed or replaced while it was served",
            removed,
        );
        let moved = self.devices.iter().map(|d| (of(&d.name), f64::from(d.moved.is_some())));
        all.gauges("device_moved", "1 if the device's path no longer leads to it", moved);
        let damaged = self.devices.iter().map(|d| (of(&d.name), f64::from(d.damaged)));
        all.gauges(
            "device_damaged",
            "1 if the device was truncated or overwritten while it was served",
            damaged,
        );
        let page_cache = self.devices.iter().map(|d| (of(&d.name), f64::from(d.page_cache)));
        all.gauges("device_page_cache", "1 if the device's file system refuses O_DIRECT", page_cache);
        let sizes = |value: fn(&super::DevicePart) -> u64| {
            self.devices.iter().map(move |d| (of(&d.name), value(d) as f64))
        };
        all.gauges("device_capacity_bytes", "Capacity for data", sizes(|d| d.capacity_bytes));
        all.gauges("device_used_bytes", "Capacity for data in use", sizes(|d| d.used_bytes));
        all.gauges(
            "device_blocks_in_doubt",
            "Blocks that lost their last write",
            sizes(|d| d.blocks_in_doubt),
        );
        let traffic = || self.devices.iter().filter_map(|d| Some((of(&d.name), d.traffic?)));
        let load = |value: fn(super::LoadPart) -> f64| traffic().map(move |(name, t)| (name, value(t.load)));
        all.gauges("device_busy_ratio", "Share of the time with a command in flight", load(|l| l.busy_share));
        all.gauges("device_queue_depth", "Mean number of commands in flight", load(|l| l.queue_depth));
        let counts = |value: fn(super::Traffic) -> u64| traffic().map(move |(name, t)| (name, value(t)));
        all.counters("device_reads", "Reads", counts(|t| t.reads.count));
        all.counters("device_read_bytes", "Bytes read", counts(|t| t.reads.bytes));
        all.counters("device_writes", "Writes", counts(|t| t.writes.count));
        all.counters("device_written_bytes", "Bytes written", counts(|t| t.writes.bytes));
        all.counters("device_flushes", "Flushes", counts(|t| t.flushes));
        all.counters("device_failed", "Commands that failed", counts(|t| t.failed));
        all.counters("device_no_space", "Writes that got no space below the device", counts(|t| t.no_space));
    }

    fn volume_metrics(&self, all: &mut Metrics) {
        let of = |name: &str| Some(("volume", name.to_owned()));
        let sizes = |value: fn(&super::VolumePart) -> u64| {
            self.volumes.iter().map(move |v| (of(&v.name), value(v) as f64))
        };
        all.gauges("volume_size_bytes", "Size that clients see", sizes(|v| v.size_bytes));
        all.gauges("volume_used_bytes", "Space that it occupies on the devices", sizes(|v| v.used_bytes));
        all.gauges(
            "volume_unreachable_bytes",
            "Data of the volume that only lost devices hold",
            sizes(|v| v.unreachable_bytes),
        );
        let degraded = self.volumes.iter().filter_map(|v| Some((of(&v.name), v.degraded_bytes? as f64)));
        all.gauges("volume_degraded_bytes", "Space of the volume in extents that lack a copy", degraded);
    }
}

/// A registry of metrics that share the label of one pool.
struct Metrics {
    registry: Registry,
    pool: String,
}

/// The label of a value besides the pool: its name and its value.
type ValueLabel = Option<(&'static str, String)>;

impl Metrics {
    /// Registers gauges, whose values rise and fall.
    fn gauges(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (ValueLabel, f64)>) {
        let family = Family::<Labels, FloatGauge>::default();
        for (of, value) in values {
            family.get_or_create(&self.labels(of)).set(value);
        }
        self.register(name, help, family);
    }

    /// Registers counters, whose values only rise from the start of the server; their names get the suffix
    /// `_total`.
    fn counters(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (ValueLabel, u64)>) {
        let family = Family::<Labels, Counter>::default();
        for (of, value) in values {
            family.get_or_create(&self.labels(of)).inc_by(value);
        }
        self.register(name, help, family);
    }

    fn labels(&self, of: ValueLabel) -> Labels {
        let pool = ("pool".to_owned(), self.pool.clone());
        std::iter::once(pool).chain(of.map(|(what, name)| (what.to_owned(), name))).collect()
    }

    fn register(&mut self, name: &str, help: &str, metric: impl Metric) {
        self.registry.register(name, help, metric);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DevicePart, PoolPart, Traffic, VolumePart};
    use super::*;

    #[test]
    fn metrics_have_values_and_labels() {
        let pool = PoolPart {
            name: "home \"a\"".into(),
            used_bytes: 81,
            warning_percent: Some(80),
            full: Some("data".into()),
            full_in_ns: Some(1_500_000_000),
            refused_writes: 3,
            clients: Some(crate::status::ClientsPart { connected: 5, refused: 9, ..Default::default() }),
            ..PoolPart::default()
        };
        let traffic = Some(Traffic { flushes: 7, no_space: 4, ..Traffic::default() });
        let device = |name: &str, state: &str, traffic| DevicePart {
            name: name.into(),
            state: state.into(),
            traffic,
            ..DevicePart::default()
        };
        let devices = vec![device("fast", "ok", traffic), device("slow", "lost", None)];
        let volumes = vec![VolumePart { name: "disk".into(), size_bytes: 1 << 30, ..VolumePart::default() }];
        let text = Status { pool, devices, volumes }.metrics();
        for line in [
            "weir_used_bytes{pool=\"home \\\"a\\\"\"} 81.0",
            "weir_warning_percent{pool=\"home \\\"a\\\"\"} 80.0",
            "weir_full{pool=\"home \\\"a\\\"\"} 1.0",
            "weir_clients{pool=\"home \\\"a\\\"\"} 5.0",
            "weir_clients_refused_total{pool=\"home \\\"a\\\"\"} 9",
            "weir_full_in_seconds{pool=\"home \\\"a\\\"\"} 1.5",
            "weir_refused_writes_total{pool=\"home \\\"a\\\"\"} 3",
            "weir_device_lost{pool=\"home \\\"a\\\"\",device=\"slow\"} 1.0",
            "weir_device_flushes_total{pool=\"home \\\"a\\\"\",device=\"fast\"} 7",
            "weir_device_no_space_total{pool=\"home \\\"a\\\"\",device=\"fast\"} 4",
            "weir_device_moved{pool=\"home \\\"a\\\"\",device=\"fast\"} 0.0",
            "weir_volume_size_bytes{pool=\"home \\\"a\\\"\",volume=\"disk\"} 1073741824.0",
            "# TYPE weir_refused_writes counter",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(
            !text.contains("weir_device_flushes_total{pool=\"home \\\"a\\\"\",device=\"slow\"}"),
            "{text}"
        );
        assert!(text.ends_with("# EOF\n"));
    }

    /// Returns the row of the page for each metric.
    fn rows() -> Vec<String> {
        let pool = PoolPart {
            full_in_ns: Some(1),
            migration_estimate: crate::status::MigrationEstimate { commands: 1, ..Default::default() },
            clients: Some(crate::status::ClientsPart::default()),
            ..PoolPart::default()
        };
        let device = DevicePart { traffic: Some(Traffic::default()), ..DevicePart::default() };
        let volume = VolumePart { degraded_bytes: Some(0), ..VolumePart::default() };
        let text = Status { pool, devices: vec![device], volumes: vec![volume] }.metrics();
        let metrics = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
        let row = |(name, help): (&str, &str)| {
            let is_counter = text.contains(&format!("# TYPE {name} counter"));
            let total = if is_counter { "_total" } else { "" };
            let units = ["bytes_per_second", "bytes", "seconds", "percent", "ratio"];
            let unit = units.iter().find(|unit| name.ends_with(*unit)).copied();
            let unit = unit.unwrap_or(if help.starts_with("1 if ") { "0 or 1" } else { "count" });
            format!("| `{name}{total}` | {} | {} |", unit.replace('_', " "), help.trim_end_matches('.'))
        };
        metrics.map(row).collect()
    }

    #[test]
    fn the_page_lists_every_metric_and_no_other() {
        // The test reads the page at run time, so a correction of the page needs no build.
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let listed: Vec<_> = page.lines().filter(|line| line.starts_with("| `weir_")).collect();
        assert_eq!(listed, rows(), "the page should have these rows:\n{}", rows().join("\n"));
    }
}
