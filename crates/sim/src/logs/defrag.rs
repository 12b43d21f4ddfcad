//! The virtual-log defragger: writes segments of the first layer again, so that each is contiguous below.

use super::layer::{Layer, StackError, write};
use super::plan::Defragger;

/// A segment that a run may take.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    log: usize,
    segment: u32,
    /// Pages of its log since it was written, as a share of the log: logs of different activity have
    /// different clocks.
    age: f64,
    erases: u32,
}

/// Runs once; returns the number of pages written to the layer below.
///
/// Cost: a pass over the segments of the first layer, besides the writes.
pub(super) fn run(layers: &mut [Layer], plan: &Defragger) -> Result<u64, StackError> {
    let Some((first, below)) = layers.split_first_mut() else { return Ok(0) };
    let all: usize = first.logs.iter().map(|one| one.history.len()).sum();
    let most = (all as f64 * plan.share).ceil() as usize;
    let mut chosen = candidates(first);
    chosen.sort_by(|a, b| b.age.total_cmp(&a.age).then((a.log, a.segment).cmp(&(b.log, b.segment))));
    chosen.truncate(most);
    let mut pages = 0;
    for Candidate { log, segment, .. } in in_classes(chosen, plan.classes) {
        let one = &mut first.logs[log];
        for address in one.below(segment) {
            write(below, address)?;
            pages += 1;
        }
        one.mark_defragmented(segment);
    }
    Ok(pages)
}

fn candidates(layer: &Layer) -> Vec<Candidate> {
    let of_log = |(log, one): (usize, &super::layer::StackedLog)| {
        let pages = f64::from(one.log.config().segments) * f64::from(one.log.config().pages);
        let candidate = |(segment, history, erases)| Candidate {
            log,
            segment,
            age: one.age(history) as f64 / pages,
            erases,
        };
        one.fragmented().map(candidate).collect::<Vec<_>>()
    };
    layer.logs.iter().enumerate().flat_map(of_log).collect()
}

/// Puts segments into classes of about equal number, the most often erased first; in the order of addresses
/// within each.
fn in_classes(mut chosen: Vec<Candidate>, classes: u32) -> Vec<Candidate> {
    chosen.sort_by_key(|one| (std::cmp::Reverse(one.erases), one.log, one.segment));
    let size = chosen.len().div_ceil(classes.max(1) as usize).max(1);
    for class in chosen.chunks_mut(size) {
        class.sort_by_key(|one| (one.log, one.segment));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_by_erases_and_in_order_within() {
        let one = |log, segment, erases| Candidate { log, segment, age: 0.0, erases };
        let all = vec![one(0, 0, 1), one(0, 1, 9), one(0, 2, 1), one(1, 0, 8)];
        let order = |classes| {
            let sorted = in_classes(all.clone(), classes);
            sorted.iter().map(|one| (one.log, one.segment)).collect::<Vec<_>>()
        };
        assert_eq!(order(1), [(0, 0), (0, 1), (0, 2), (1, 0)]);
        assert_eq!(order(2), [(0, 1), (1, 0), (0, 0), (0, 2)]);
    }
}
