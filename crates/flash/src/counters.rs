//! What a log has done.

/// Number of pages and segments, since the log was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pages that the user wrote.
    pub user: u64,
    /// Pages copied by cleaning, each read and programmed.
    pub copied: u64,
    /// Of these, pages copied to level wear.
    pub levelled: u64,
    /// Pages of metadata programmed.
    pub metadata: u64,
    /// Valid pages that cleaning dropped.
    pub dropped: u64,
    /// Valid pages that were trimmed.
    pub trimmed: u64,
    /// Segments erased.
    pub erases: u64,
}

impl Counters {
    /// Returns the number of pages programmed.
    pub const fn programmed(&self) -> u64 {
        self.user + self.copied + self.metadata
    }

    /// Returns the write amplification: pages programmed per page that the user wrote. `None` without any.
    ///
    /// Of a log that is a device, this is FLWA; of a log on a device, FSWA. The product of the amplifications
    /// of the layers is TCWA.
    pub fn amplification(&self) -> Option<f64> {
        (self.user > 0).then(|| self.programmed() as f64 / self.user as f64)
    }

    /// Returns what was done since `earlier`, an earlier state of the same log.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user - earlier.user,
            copied: self.copied - earlier.copied,
            levelled: self.levelled - earlier.levelled,
            metadata: self.metadata - earlier.metadata,
            dropped: self.dropped - earlier.dropped,
            trimmed: self.trimmed - earlier.trimmed,
            erases: self.erases - earlier.erases,
        }
    }
}

/// Distribution of the erase counts of all segments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wear {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Of the least worn segment.
    pub least: u32,
    /// Of the most worn segment.
    pub most: u32,
}

impl Wear {
    /// Returns the distribution of these erase counts.
    pub fn of(erases: impl Iterator<Item = u32> + Clone) -> Self {
        let (count, sum) = erases.clone().fold((0_u64, 0_u64), |(n, sum), one| (n + 1, sum + u64::from(one)));
        let mean = sum as f64 / count.max(1) as f64;
        let squares: f64 = erases.clone().map(|one| (f64::from(one) - mean).powi(2)).sum();
        Self {
            mean,
            deviation: (squares / count.max(1) as f64).sqrt(),
            least: erases.clone().min().unwrap_or(0),
            most: erases.max().unwrap_or(0),
        }
    }
}
