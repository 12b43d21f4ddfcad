//! The status of a pool as tables.

use super::parts::responses_table;
use super::{Commands, DevicePart, POOLS_POLICY, PoolPart, Status, VolumePart};
use crate::output::{Table, Width, table};
use weir_model::{Bytes, Nanos};

impl Status {
    /// Formats the status for people.
    pub fn human(&self, width: Width) -> String {
        let pool = &self.pool;
        let size = |bytes| Bytes(bytes).to_string();
        let mut text = format!(
            "pool {} ({}), {}{}, policy {}, extents of {}\n\n",
            pool.name,
            pool.id,
            pool.state,
            if pool.read_only { ", READ-ONLY: its metadata cannot be written" } else { "" },
            until_the_server_ends(&pool.policy, pool.policy_after_restart.as_deref()),
            size(pool.extent_bytes)
        );
        text += &pool.space();
        text += &pool.clients.map(|clients| clients.human()).unwrap_or_default();
        text.push('\n');
        let devices = Table::new(
            ["DEVICE", "CLASS", "USED", "OF", "READS", "WRITES", "FLUSHES", "FAILED", "BUSY", "NOTES"],
            self.devices.iter().map(|device| {
                let traffic = device.traffic.unwrap_or_default();
                [
                    device.name.clone(),
                    device.class.clone(),
                    size(device.used_bytes),
                    size(device.capacity_bytes),
                    traffic.reads.human(),
                    traffic.writes.human(),
                    traffic.flushes.to_string(),
                    traffic.failed.to_string(),
                    traffic.load.human(),
                    device.notes(),
                ]
            }),
        );
        text += &devices.text(width);
        text.push('\n');
        text += &volumes_table(&self.volumes, width);
        text + &responses_table(&self.devices, width)
    }
}

impl PoolPart {
    /// Formats for people how full the pool is, and what follows from that.
    pub(super) fn space(&self) -> String {
        let size = |bytes| Bytes(bytes).to_string();
        let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
        let mut text = format!(
            "space: {} of {} used ({:.0} %), {} provisioned to volumes",
            size(self.used_bytes),
            size(self.capacity_bytes),
            share(self.used_bytes, self.capacity_bytes),
            size(self.provisioned_bytes)
        );
        if let Some(ns) = self.full_in_ns {
            text += &format!("; full in about {} at the present rate", approximate_time(Nanos(ns)));
        }
        if self.waiting_writes > 0 {
            text += &format!("; {} parts of writes wait for space", self.waiting_writes);
        }
        text += &format!(
            "\nmetadata: {} of {} used; recovery would take about {}\n",
            size(self.metadata_used_bytes),
            size(self.metadata_capacity_bytes),
            approximate_time(Nanos(self.recovery_ns))
        );
        text += &self.fragmentation.human(self.used_bytes);
        let cache = &self.extent_cache;
        if cache.size_bytes > 0 {
            text += &format!(
                "extent cache: {} of {} in use, {:.0} % of reads answered from it\n",
                size(cache.used_bytes),
                size(cache.size_bytes),
                share(cache.hits, cache.hits + cache.misses)
            );
        }
        text + &self.migration_estimate.human().map_or(String::new(), |judged| format!("moves: {judged}\n"))
    }
}

/// Formats a time approximately.
fn approximate_time(time: Nanos) -> String {
    let seconds = time.as_secs_f64();
    match seconds as u64 {
        0 => format!("{:.0} ms", (seconds * 1e3).max(1.0)),
        1..120 => format!("{seconds:.0} s"),
        120..7_200 => format!("{:.0} min", seconds / 60.0),
        7_200..172_800 => format!("{:.0} h", seconds / 3600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    }
}

impl DevicePart {
    fn notes(&self) -> String {
        let page_cache = self.page_cache.then(|| "no O_DIRECT".to_owned());
        let lost = self.lost_reason.as_ref().map(|why| {
            // An idle pool that was opened for a moment does not know when the device was lost.
            match Nanos(self.lost_ns.unwrap_or_default()) {
                Nanos(0) => format!("LOST: {why}"),
                time => format!("LOST for {time}: {why}"),
            }
        });
        let removed = self.removed.then(|| "REMOVED: gone once the server ends".to_owned());
        let moved = self.moved.is_some().then(|| "MOVED: the next start does not find it".to_owned());
        let doubtful = self.blocks_in_doubt;
        let doubtful = (doubtful > 0).then(|| format!("{doubtful} blocks IN DOUBT"));
        let no_space = self.traffic.map_or(0, |traffic| traffic.no_space);
        let no_space = (no_space > 0).then(|| format!("{no_space} writes found NO SPACE below"));
        let pace = self.pace.as_ref().map(|pace| format!("paced as {pace}"));
        let metadata = match (self.absent, self.metadata, self.metadata_stale) {
            (true, ..) => Some("ABSENT".to_owned()),
            (_, true, _) => Some("metadata".to_owned()),
            (.., true) => Some("metadata LEFT BEHIND".to_owned()),
            _ => None,
        };
        let invalid =
            self.traffic.filter(|traffic| traffic.figures_invalid).map(|_| "figures invalid".to_owned());
        [lost, removed, moved, doubtful, no_space, metadata, pace, page_cache, invalid]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ")
    }
}

impl VolumePart {
    /// Formats for people the number of copies and the space that lacks one.
    fn copies(&self) -> String {
        match (self.copies, self.degraded_bytes) {
            (2.., Some(degraded @ 1..)) => format!("{}, {} DEGRADED", self.copies, Bytes(degraded)),
            _ => self.copies.to_string(),
        }
    }
}

impl Commands {
    /// Formats the mean response time for people.
    pub fn response(self) -> String {
        self.response_ns.map_or("-".into(), |mean| Nanos(mean).to_string())
    }

    fn human(self) -> String {
        match self.response_ns {
            Some(mean) => format!("{} in {}", self.count, Nanos(mean)),
            None => self.count.to_string(),
        }
    }
}

/// Formats for people the policy in force, and whether it ends with the server.
fn until_the_server_ends(policy: &str, after: Option<&str>) -> String {
    match after {
        Some(after) => format!("{policy} until the server ends, then {after}"),
        None => policy.to_owned(),
    }
}

/// Returns the table of volumes for people.
pub fn volumes_table(volumes: &[VolumePart], width: Width) -> String {
    if volumes.is_empty() {
        return "no volumes; make one with: weir volume create NAME --size 100GiB\n".into();
    }
    table(
        width,
        ["VOLUME", "SIZE", "USED", "HARDENING", "COPIES", "POLICY"],
        volumes.iter().map(|volume| {
            [
                volume.name.clone(),
                Bytes(volume.size_bytes).to_string(),
                Bytes(volume.used_bytes).to_string(),
                volume.hardening.to_string(),
                volume.copies(),
                until_the_server_ends(
                    volume.policy.as_deref().unwrap_or(POOLS_POLICY),
                    volume.policy_after_restart.as_deref(),
                ),
            ]
        }),
    )
}
