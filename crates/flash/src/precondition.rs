//! Fills a device near its steady state at once, by the closed forms of [`analytic`].
//!
//! All addresses up to the log's limit become valid. Segments get as many valid pages as in the steady state
//! of uniform random writes, or of classes of pages; which addresses, is drawn at random.

use crate::analytic::{self, Class};
use crate::{AddressMap, Log, LogError};
use weir_model::Rng;
use weir_policy::reclaim::Reclaim;

/// Fills an empty log as greedy cleaning leaves it. Cost: linear in the pages.
///
/// # Errors
/// Fails if the log is not empty or has no limit.
pub fn greedy<M: AddressMap, R: Reclaim>(log: &mut Log<M, R>, random: &mut Rng) -> Result<(), LogError> {
    let (addresses, segments, pages) = size(log)?;
    let steady = analytic::greedy(log.config().spare(addresses), pages);
    let numbers = steady.valid_pages(segments, pages);
    let sizes = (0..).zip(numbers).flat_map(|(valid, number)| std::iter::repeat_n(valid, number as usize));
    let mut plan = Plan { pages, segments: sizes.map(|valid| vec![valid]).collect() };
    // The order in which segments were closed is that of no property of theirs.
    shuffle(&mut plan.segments, random);
    plan.preload(log, vec![shuffled(0..addresses, random)])
}

/// Fills an empty log as cleaning the oldest segment first leaves it. The classes are consecutive ranges of
/// the addresses, in this order. Cost: linear in the pages.
///
/// # Errors
/// Fails if the log is not empty or has no limit.
pub fn oldest<M: AddressMap, R: Reclaim>(
    log: &mut Log<M, R>,
    classes: &[Class],
    random: &mut Rng,
) -> Result<(), LogError> {
    let (addresses, segments, pages) = size(log)?;
    let spare = log.config().spare(addresses);
    // Pages that the user writes per segment and page while a segment passes through the log.
    let new = 1.0 / analytic::oldest_mixed(spare, classes);
    let tau = new / (1.0 - spare);
    let mut plan = Plan { pages, segments: vec![vec![0; classes.len()]; segments as usize] };
    let mut shares = Vec::new();
    let mut first = 0;
    for (class, Class { writes, pages: share }) in classes.iter().enumerate() {
        let rate = writes * tau / share;
        let programmed = new * writes / -(-rate).exp_m1() * f64::from(pages);
        let (mut sum, mut below) = (0.0, 0.0);
        for (at, segment) in plan.segments.iter_mut().enumerate() {
            // The first one is the oldest.
            let age = 1.0 - (at as f64 + 0.5) / f64::from(segments);
            sum += programmed * (-rate * age).exp();
            // Rounded up, all classes together could exceed a segment.
            let room = pages - segment.iter().sum::<u32>();
            segment[class] = ((sum.round() - below) as u32).min(room);
            below = sum.round();
        }
        let is_last = class + 1 == classes.len();
        let end = if is_last { addresses } else { first + (addresses as f64 * share) as u64 };
        shares.push(shuffled(first..end, random));
        first = end;
    }
    plan.preload(log, shares)
}

/// Returns the number of addresses, of segments in use and of pages for data in each.
fn size<M: AddressMap, R: Reclaim>(log: &Log<M, R>) -> Result<(u64, u32, u32), LogError> {
    let limit = log.config().limit.filter(|_| log.valid() == 0);
    let limit = limit.ok_or(LogError::Full { limit: log.valid() })?;
    Ok((limit, log.config().in_use(), log.config().data_pages()))
}

/// Numbers of valid pages of each class, for each segment in the order of closing.
struct Plan {
    pages: u32,
    segments: Vec<Vec<u32>>,
}

impl Plan {
    /// Adds the segments with these addresses of each class. Rounding is made up for where there is room.
    fn preload<M: AddressMap, R: Reclaim>(
        mut self,
        log: &mut Log<M, R>,
        mut addresses: Vec<Vec<u64>>,
    ) -> Result<(), LogError> {
        for (class, addresses) in addresses.iter().enumerate() {
            let planned =
                |plan: &Self| plan.segments.iter().map(|valid| u64::from(valid[class])).sum::<u64>();
            let mut missing = addresses.len() as i64 - planned(&self) as i64;
            while missing != 0 {
                for valid in &mut self.segments {
                    let step = missing.signum();
                    let fits =
                        if step > 0 { valid.iter().sum::<u32>() < self.pages } else { valid[class] > 0 };
                    if fits {
                        valid[class] = valid[class].saturating_add_signed(step as i32);
                        missing -= step;
                    }
                }
            }
        }
        for valid in &self.segments {
            let mut these = Vec::with_capacity(self.pages as usize);
            for (number, addresses) in valid.iter().zip(&mut addresses) {
                these.extend(addresses.drain(addresses.len().saturating_sub(*number as usize)..));
            }
            log.preload(&these)?;
        }
        Ok(())
    }
}

fn shuffled(range: std::ops::Range<u64>, random: &mut Rng) -> Vec<u64> {
    let mut all: Vec<u64> = range.collect();
    shuffle(&mut all, random);
    all
}

fn shuffle<T>(all: &mut [T], random: &mut Rng) {
    for last in (1..all.len()).rev() {
        all.swap(last, random.below(last as u64 + 1) as usize);
    }
}
