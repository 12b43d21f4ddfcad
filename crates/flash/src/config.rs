//! Settings of a log.

use crate::segments;
use thiserror::Error;

/// Settings of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogConfig {
    /// Number of segments.
    pub segments: u32,
    /// Number of pages in a segment, its summary included.
    pub pages: u32,
    /// The most valid pages; `None` for no limit, which suits a port that drops pages when cleaning.
    pub limit: Option<u64>,
    /// Number of append points, at least 1.
    pub append_points: u8,
    /// Where copies of valid pages go.
    pub copies: CopyTo,
    /// When cleaning starts and ends.
    pub thresholds: Thresholds,
    /// Pages for metadata.
    pub metadata: Metadata,
    /// How wear is levelled.
    pub wear: WearLevelling,
}

/// The append point for valid pages that cleaning copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CopyTo {
    /// That of the victim: new and copied data share segments.
    #[default]
    Same,
    /// The last one: what has stayed valid is apart from new data if the writer leaves that point to it.
    Last,
    /// The one after that of the victim, up to the last: data moves on with each time it is copied.
    Next,
}

/// Numbers of free segments between which cleaning works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thresholds {
    /// A new segment is opened only if this many remain free, at least 1: cleaning keeps them.
    pub start: u32,
    /// Once started, cleaning continues until this many are free; at least `start`.
    pub stop: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { start: 2, stop: 2 }
    }
}

/// Pages that the log programs for itself. They are never valid: checkpoints, which are not modelled, make
/// them obsolete before cleaning meets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// Pages at the end of each segment that list the addresses of the others.
    pub summary: u32,
    /// A page of the page map's journal follows this many programmed pages; 0 for no journal.
    pub journal_every: u32,
}

/// How wear is levelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WearLevelling {
    /// Dynamic: the least worn free segment is taken first, and the most worn for what [`CopyTo::Last`] and
    /// [`CopyTo::Next`] put at the last append point. Otherwise the one that has been free for longest.
    pub dynamic: bool,
    /// Static: if the least worn closed segment has this many erases fewer than the most worn segment, its
    /// valid pages move to the most worn free segment. At most one segment per victim.
    pub max_gap: Option<u32>,
}

/// Why settings are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A segment has too few or too many pages.
    #[error(
        "{pages} pages a segment, {summary} of them summary: there must be at least 2 for data, at most 2^24"
    )]
    Pages {
        /// Pages in a segment.
        pages: u32,
        /// Of these, pages of its summary.
        summary: u32,
    },
    /// Too many segments for the page map's places of 32 bits.
    #[error("{segments} segments of {pages} pages: at most {most} of this size are possible")]
    TooLarge {
        /// Number of segments.
        segments: u64,
        /// Pages in a segment.
        pages: u32,
        /// The most segments.
        most: u32,
    },
    /// No append point, or too many.
    #[error("{0} append points: there must be 1 to 250")]
    AppendPoints(u8),
    /// The thresholds contradict each other.
    #[error("cleaning starts at {start} free segments and stops at {stop}: write 1 <= start <= stop")]
    Thresholds {
        /// First threshold.
        start: u32,
        /// Second threshold.
        stop: u32,
    },
    /// The user's pages do not fit, or leave no spare space.
    #[error(
        "{segments} segments of {pages} pages for data, less {reserve} free and {open} open ones, leave no \
         spare space beside {limit} valid pages"
    )]
    NoSpare {
        /// Number of segments.
        segments: u32,
        /// Pages for data in each.
        pages: u32,
        /// Free segments that cleaning keeps.
        reserve: u32,
        /// Append points.
        open: u8,
        /// The most valid pages.
        limit: u64,
    },
    /// The spare factor is no share.
    #[error("the spare factor must be above 0 and below 1")]
    Spare,
}

impl LogConfig {
    /// Returns the settings of a device on which `user_pages` pages can be written and the share `spare` of
    /// the segments in use is over-provisioned: `(T - U) / T`. The reserve of two free segments and one
    /// append point are added to the segments in use, which are rounded up.
    ///
    /// Change other settings before the log is created; add the segments that more append points or larger
    /// thresholds need with [`with_thresholds`](Self::with_thresholds) and
    /// [`with_append_points`](Self::with_append_points).
    ///
    /// # Errors
    /// Fails if the share is not between 0 and 1, or the device is too large.
    pub fn for_device(
        user_pages: u32,
        spare: f64,
        pages: u32,
        metadata: Metadata,
    ) -> Result<Self, ConfigError> {
        if !(spare > 0.0 && spare < 1.0) {
            return Err(ConfigError::Spare);
        }
        let for_data = pages.saturating_sub(metadata.summary);
        if for_data < 2 {
            return Err(ConfigError::Pages { pages, summary: metadata.summary });
        }
        let in_use = (f64::from(user_pages) / (1.0 - spare) / f64::from(for_data)).ceil();
        let thresholds = Thresholds::default();
        let segments = in_use as u64 + u64::from(thresholds.start) + 1;
        let config = Self {
            segments: u32::try_from(segments).unwrap_or(u32::MAX),
            pages,
            limit: Some(user_pages.into()),
            append_points: 1,
            copies: CopyTo::Same,
            thresholds,
            metadata,
            wear: WearLevelling::default(),
        };
        config.validate()?;
        Ok(config)
    }

    /// Changes the thresholds, and the number of segments so that those in use remain the same.
    #[must_use]
    pub fn with_thresholds(self, thresholds: Thresholds) -> Self {
        let segments = (self.segments + thresholds.start).saturating_sub(self.thresholds.start);
        Self { segments, thresholds, ..self }
    }

    /// Changes the number of append points and the target of copies, and the number of segments so that those
    /// in use remain the same.
    #[must_use]
    pub fn with_append_points(self, append_points: u8, copies: CopyTo) -> Self {
        let segments = (self.segments + u32::from(append_points)).saturating_sub(self.append_points.into());
        Self { segments, append_points, copies, ..self }
    }

    /// Returns the number of pages for data in a segment.
    pub const fn data_pages(&self) -> u32 {
        self.pages - self.metadata.summary
    }

    /// Returns the number of segments in use: all but the reserve and the open ones.
    pub fn in_use(&self) -> u32 {
        self.segments.saturating_sub(self.thresholds.start + u32::from(self.append_points))
    }

    /// Returns the spare factor for this many valid pages: `(T - U) / T`.
    pub fn spare(&self, valid: u64) -> f64 {
        1.0 - valid as f64 / (f64::from(self.in_use()) * f64::from(self.data_pages()))
    }

    /// Checks the settings, as [`Log::new`](crate::Log::new) does.
    ///
    /// # Errors
    /// Fails if they are invalid.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self { segments, pages, append_points, thresholds: Thresholds { start, stop }, .. } = *self;
        let for_data = pages.saturating_sub(self.metadata.summary);
        if for_data < 2 || pages > 1 << 24 {
            return Err(ConfigError::Pages { pages, summary: self.metadata.summary });
        }
        let most = (u32::MAX >> segments::shift(pages)).min(1 << 26);
        if segments > most {
            return Err(ConfigError::TooLarge { segments: segments.into(), pages, most });
        }
        if !(1..=250).contains(&append_points) {
            return Err(ConfigError::AppendPoints(append_points));
        }
        if start < 1 || stop < start {
            return Err(ConfigError::Thresholds { start, stop });
        }
        let in_use = u64::from(self.in_use()) * u64::from(for_data);
        match self.limit.unwrap_or(0) {
            limit if limit >= in_use => Err(ConfigError::NoSpare {
                segments,
                pages: for_data,
                reserve: start,
                open: append_points,
                limit,
            }),
            _ => Ok(()),
        }
    }
}
