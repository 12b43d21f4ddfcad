//! What devices are measured to do, as part of the status.

use super::DevicePart;
use crate::output::{Width, table};
use serde::{Deserialize, Serialize};
use weir_engine::{CacheStatus, Load, MoverShare, MoverStatus, MovesStatus, ResponsesBySize};
use weir_model::{BLOCK, Bytes, Nanos};

/// What a device does of late: over the last second that is over, or longer if nothing ended since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadPart {
    /// Reads a second.
    pub reads_per_second: f64,
    /// Writes a second.
    pub writes_per_second: f64,
    /// Bytes read a second.
    pub read_bytes_per_second: f64,
    /// Bytes written a second.
    pub written_bytes_per_second: f64,
    /// Part of the time in which it had something to do, 0 to 1.
    pub busy_share: f64,
    /// Commands it had at once, on average.
    pub queue_depth: f64,
}

impl From<Load> for LoadPart {
    fn from(load: Load) -> Self {
        Self {
            reads_per_second: load.reads,
            writes_per_second: load.writes,
            read_bytes_per_second: load.read_bytes,
            written_bytes_per_second: load.written_bytes,
            busy_share: load.busy,
            queue_depth: load.depth,
        }
    }
}

impl LoadPart {
    /// For people.
    pub(super) fn human(self) -> String {
        format!("{:.0} %, {:.1} deep", 100.0 * self.busy_share, self.queue_depth)
    }
}

/// The extent cache, and what it was good for since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePart {
    /// Memory it may take; 0: there is none.
    pub size_bytes: u64,
    /// Memory it has taken.
    pub held_bytes: u64,
    /// Parts of reads, by extent, that it answered.
    pub hits: u64,
    /// Parts of reads, by extent, that it did not answer.
    pub misses: u64,
}

impl From<CacheStatus> for CachePart {
    fn from(cache: CacheStatus) -> Self {
        let CacheStatus { size, held, hits, misses } = cache;
        Self { size_bytes: size.get(), held_bytes: held.get(), hits, misses }
    }
}

/// What has been moved since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovesPart {
    /// Moves and copies under way.
    pub under_way: u64,
    /// Copied to another place.
    pub copied_bytes: u64,
    /// Given up in one of several places.
    pub dropped_bytes: u64,
    /// Left out of a copy because it was written meanwhile.
    pub left_out_bytes: u64,
    /// Not read for a copy, because a client's read brought it.
    #[serde(default)]
    pub fed_bytes: u64,
}

impl From<MoverStatus> for MovesPart {
    fn from(mover: MoverStatus) -> Self {
        Self {
            under_way: mover.under_way as u64,
            copied_bytes: mover.copied * BLOCK,
            dropped_bytes: mover.dropped * BLOCK,
            left_out_bytes: mover.left_out * BLOCK,
            fed_bytes: mover.piggybacked * BLOCK,
        }
    }
}

/// Whether what a policy moves makes requests faster, by the engine's estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedPart {
    /// It made them slower: nothing is moved for so long from now on.
    pub stopped_ns: Option<u64>,
    /// How often that has happened since the server started, or the policy was set.
    pub stops: u32,
    /// Sampled commands in the last window that was judged; 0 before the first.
    pub commands: u64,
    /// What one of them took on average, priced by its size and its device's queue.
    pub took_ns: u64,
    /// What one of them would have taken on average had nothing moved.
    pub without_ns: u64,
}

impl From<MovesStatus> for JudgedPart {
    fn from(moves: MovesStatus) -> Self {
        let last = moves.last.unwrap_or_default();
        let (took, without) = last.mean();
        Self {
            stopped_ns: moves.stopped.map(Nanos::get),
            stops: moves.stops,
            commands: last.commands,
            took_ns: took.get(),
            without_ns: without.get(),
        }
    }
}

impl JudgedPart {
    /// What must be said of the moves of `policy`.
    pub fn warning(&self, policy: &str) -> Option<String> {
        let (took, without) = (Nanos(self.took_ns), Nanos(self.without_ns));
        let again = Nanos(self.stopped_ns?);
        Some(format!(
            "policy {policy} moves nothing for {again}: requests took {took}, and would have taken {without} had \
             nothing moved; it then tries again"
        ))
    }

    /// What moves came to, for people; `None` if nothing is known.
    pub fn human(&self) -> Option<String> {
        let (took, without) = (Nanos(self.took_ns), Nanos(self.without_ns));
        (self.commands > 0).then(|| format!("{took} a command, and without moves {without}, as estimated"))
    }
}

/// What moves take of a device's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MoverPart {
    /// How much at most while clients use it, 0 to 1: `mover_share`, or less where moves get in the way.
    pub share: f64,
    /// What they have taken since the server started.
    pub taken_ns: u64,
    /// 99 of 100 of clients' commands that met no move were answered within about this time.
    pub p99_ns: Option<u64>,
    /// The same for clients' commands that met a move.
    pub p99_beside_moves_ns: Option<u64>,
}

impl From<MoverShare> for MoverPart {
    fn from(mover: MoverShare) -> Self {
        Self {
            share: mover.share,
            taken_ns: mover.taken.get(),
            p99_ns: mover.p99.map(Nanos::get),
            p99_beside_moves_ns: mover.p99_beside.map(Nanos::get),
        }
    }
}

/// Responses to commands of about one size in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponsesPart {
    /// `reads` or `writes`.
    pub of: String,
    /// The longest of these commands; absent for the class of the longest ones.
    pub up_to_bytes: Option<u64>,
    /// How many there were.
    pub count: u64,
    /// Half of them were answered within this time, or up to an eighth less; so for the others.
    pub median_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p999_ns: u64,
    /// All of them.
    pub longest_ns: u64,
}

impl From<&ResponsesBySize> for ResponsesPart {
    fn from(part: &ResponsesBySize) -> Self {
        let responses = part.responses;
        Self {
            of: if part.write { "writes" } else { "reads" }.to_owned(),
            up_to_bytes: part.size.most().map(Bytes::get),
            count: responses.count,
            median_ns: responses.median.get(),
            p99_ns: responses.p99.get(),
            p999_ns: responses.p999.get(),
            longest_ns: responses.longest.get(),
        }
    }
}

impl ResponsesPart {
    fn size(&self) -> String {
        self.up_to_bytes.map_or_else(|| "longer".to_owned(), |most| format!("to {}", Bytes(most)))
    }
}

/// The responses of all devices, for people; nothing if there are none.
pub(super) fn responses_table(devices: &[DevicePart], width: Width) -> String {
    let rows = devices.iter().flat_map(|device| device.responses.iter().map(move |part| (device, part)));
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return String::new();
    }
    let time = |ns| Nanos(ns).to_string();
    let cells = rows.map(|(device, part)| {
        [
            device.name.clone(),
            format!("{} {}", part.of, part.size()),
            part.count.to_string(),
            time(part.median_ns),
            time(part.p99_ns),
            time(part.p999_ns),
            time(part.longest_ns),
        ]
    });
    format!(
        "\n{}",
        table(width, ["DEVICE", "RESPONSES TO", "COUNT", "MEDIAN", "P99", "P99.9", "LONGEST"], cells)
    )
}
