//! Writes libCacheSim's oracleGeneral, whose records refer to the next access to their object, which is known
//! only at the trace's end.

use crate::record::Record;
use std::collections::BTreeMap;
use std::io::{self, Write};
use weir_model::{BLOCK, Nanos, Op};

/// Number of bits of an object number that hold its page; the disk is above them.
const PAGE_BITS: u32 = 49;

/// The requests so far: 24 bytes each.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    first: Option<u64>,
    requests: Vec<OracleRequest>,
}

#[derive(Clone, Copy, Debug)]
struct OracleRequest {
    /// Seconds since the first.
    at: u32,
    object: u64,
    size: u32,
}

impl Oracle {
    /// Adds a record; returns `false` if the format cannot represent it. It has no operations: reads and
    /// writes are accesses.
    pub(super) fn push(&mut self, record: &Record) -> bool {
        let (page, disk) = (record.offset.0 / BLOCK, u64::from(record.disk.0));
        let is_page = record.offset.0.is_multiple_of(BLOCK) && page >> PAGE_BITS == 0;
        let is_access = matches!(record.op, Op::Read | Op::Write);
        let Ok(size) = u32::try_from(record.len.0) else { return false };
        if !is_page || !is_access || disk >> (64 - PAGE_BITS) > 0 {
            return false;
        }
        let now = record.at.0 / Nanos::secs(1).0;
        let since = now.saturating_sub(*self.first.get_or_insert(now));
        let Ok(at) = u32::try_from(since) else { return false };
        self.requests.push(OracleRequest { at, object: disk << PAGE_BITS | page, size });
        true
    }

    /// Writes all records.
    pub(super) fn finish(self, mut out: impl Write) -> io::Result<()> {
        let mut next_of = BTreeMap::new();
        // Requests are counted from 1.
        let number_of = |at: usize| at as i64 + 1;
        let numbered = self.requests.iter().enumerate().rev();
        let nexts = numbered.map(|(at, asked)| next_of.insert(asked.object, number_of(at)).unwrap_or(-1));
        let nexts: Vec<i64> = nexts.collect();
        for (asked, next) in self.requests.iter().zip(nexts.iter().rev()) {
            out.write_all(&asked.at.to_le_bytes())?;
            out.write_all(&asked.object.to_le_bytes())?;
            out.write_all(&asked.size.to_le_bytes())?;
            out.write_all(&next.to_le_bytes())?;
        }
        Ok(())
    }
}
