//! Closed forms of write amplification for uniform random writes of single pages, in the limit of many
//! segments.
//!
//! `spare` is the spare factor `(T - U) / T`, above 0 and below 1; `pages` the number of pages in a segment.
//! All forms assume that new and copied pages share an append point. In a log of few segments the open one
//! holds a part of the user's pages: [`with_open`] counts it.

/// Steady state of greedy cleaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Greedy {
    /// Closed segments have this many valid pages or more.
    pub fewest: u32,
    /// The share of closed segments with `i` valid pages, i above `fewest`, is `1 / (c * i)`.
    pub c: f64,
    /// Write amplification.
    pub amplification: f64,
}

/// Returns the steady state of greedy cleaning: its exact mean field.
///
/// It is the greedy limit of the mean-field models of B. Van Houdt and of Y. Li, P. P. C. Lee and J. C. S.
/// Lui (both SIGMETRICS 2013). With `H` the harmonic numbers, `d(m) = H(b) - H(m)`,
/// `c(m) = (b - m - m d(m)) / (rho b - m)` and `p(m) = m (c(m) - d(m))`, the share of victims with m - 1
/// valid pages, m is the number for which p is between 0 and 1. Cost: linear in `pages`.
pub fn greedy(spare: f64, pages: u32) -> Greedy {
    let (rho, b) = (1.0 - spare, f64::from(pages));
    // `d`, of each number of valid pages in turn, from the largest: there p is above 1.
    let (mut d, mut best) = (0.0, None);
    for m in (1..pages).rev() {
        d += 1.0 / f64::from(m + 1);
        let valid = f64::from(m);
        if rho * b <= valid {
            continue;
        }
        let c = (b - valid - valid * d) / (rho * b - valid);
        let p = valid * (c - d);
        if (0.0..=1.0).contains(&p) {
            best = Some(Greedy { fewest: m, c, amplification: 1.0 / (rho * c) });
            break;
        }
    }
    // Less than a page of a victim is valid: only with very much spare space.
    best.unwrap_or(Greedy { fewest: 0, c: 1.0 / rho, amplification: 1.0 })
}

impl Greedy {
    /// Returns how many of `segments` closed segments have each number of valid pages from 0 to `pages`,
    /// rounded.
    pub fn valid_pages(&self, segments: u32, pages: u32) -> Vec<u32> {
        let share = |valid: u32| match valid {
            _ if valid < self.fewest => 0.0,
            _ if valid == self.fewest => 1.0 - self.above(pages),
            _ => 1.0 / (self.c * f64::from(valid)),
        };
        // Rounding the sums keeps the total.
        let (mut sum, mut below) = (0.0, 0.0);
        let numbers = (0..=pages).map(|valid| {
            sum += share(valid) * f64::from(segments);
            let up_to = sum.round();
            (up_to - std::mem::replace(&mut below, up_to)) as u32
        });
        numbers.collect()
    }

    /// Returns the share of segments with more than the fewest valid pages.
    fn above(&self, pages: u32) -> f64 {
        (self.fewest + 1..=pages).map(|valid| 1.0 / (self.c * f64::from(valid))).sum()
    }
}

/// Returns the write amplification of cleaning the oldest segment first, which is also greedy's with
/// infinitely many pages in a segment: `1 / (1 - u)`, where the valid share u of a victim solves `(u - 1) /
/// ln u = 1 - spare`.
pub fn oldest(spare: f64) -> f64 {
    1.0 / (1.0 - oldest_victim(spare))
}

/// Returns the valid share of the oldest segment.
pub fn oldest_victim(spare: f64) -> f64 {
    solve(0.0, 1.0, |u| (u - 1.0) / u.ln() - (1.0 - spare))
}

/// Returns the write amplification of a log with few segments, from the closed form `of` of a spare factor.
///
/// The closed forms put all valid pages on the segments in use. While the log writes, its open segment holds
/// valid pages too: from the share u of a segment that was copied from the victim up to a whole one. So T is
/// `(segments + (1 + u) / 2) * pages`, u the valid share of a victim, `1 - 1 / amplification`. That follows
/// for cleaning the oldest segment first: with w pages written per victim, U valid ones and `e = exp(-w /
/// U)`, a victim has m valid pages, `m (1 - e^N) = U e^(N - 1) (1 - e)`, N the segments in use and the open
/// one; a log of `N - w / (2 pages)` segments has the same m in the limit of many. For other policies it is
/// an approximation, which the tests bound. Cost: that of ten calls of `of`.
pub fn with_open(valid: u64, segments: u32, pages: u32, of: impl Fn(f64) -> f64) -> f64 {
    let spare = |amplification: f64| {
        let victim = 1.0 - 1.0 / amplification;
        let in_use = f64::from(segments) + f64::midpoint(1.0, victim);
        1.0 - valid as f64 / (in_use * f64::from(pages))
    };
    // More spare space, less is copied, and less is in the open segment: each step is nearer.
    (0..10).fold(1.0, |amplification, _| of(spare(amplification)))
}

/// A class of pages that are written equally often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// Share of the writes.
    pub writes: f64,
    /// Share of the user's pages.
    pub pages: f64,
}

/// Returns the write amplification of cleaning the oldest segment first, with classes of pages at one append
/// point: `alpha / tau`, where tau solves `tau * sum(r / (1 - exp(-r tau / f))) = alpha`, with r and f the
/// shares of writes and pages and `alpha = 1 / (1 - spare)`.
pub fn oldest_mixed(spare: f64, classes: &[Class]) -> f64 {
    let alpha = 1.0 / (1.0 - spare);
    let programmed = |tau: f64| -> f64 {
        let of = |class: &Class| class.writes / -(-class.writes * tau / class.pages).exp_m1();
        classes.iter().map(of).sum()
    };
    alpha / solve(1e-12, alpha, |tau| tau * programmed(tau) - alpha)
}

/// Returns the root of a function that rises from `low` to `high`.
fn solve(mut low: f64, mut high: f64, f: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if f(middle) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts agreement with a value printed with four decimals.
    fn assert_prints(found: f64, printed: f64) {
        assert!((found - printed).abs() < 6e-5, "{found} for {printed}");
    }

    #[test]
    fn greedy_has_the_published_amplifications() {
        for (spare, printed) in [
            (0.07, [6.6155, 6.9450, 7.1240]),
            (0.125, [3.9485, 4.0616, 4.1204]),
            (0.20, [2.5993, 2.6449, 2.6684]),
            (0.28, [1.9425, 1.9667, 1.9791]),
        ] {
            for (pages, printed) in [64, 128, 256].into_iter().zip(printed) {
                assert_prints(greedy(spare, pages).amplification, printed);
            }
        }
    }

    #[test]
    fn oldest_has_the_published_amplifications() {
        let mixes = [(0.8, 0.2), (0.9, 0.1), (0.95, 0.05)];
        for (spare, uniform, mixed) in [
            (0.07, 7.3177, [7.6817, 8.3582, 9.4225]),
            (0.125, 4.1820, [4.5369, 5.1309, 5.9261]),
            (0.20, 2.6927, [3.0345, 3.5329, 4.0745]),
            (0.28, 1.9916, [2.3173, 2.7266, 3.0863]),
        ] {
            assert_prints(oldest(spare), uniform);
            assert_prints(oldest_mixed(spare, &[Class { writes: 1.0, pages: 1.0 }]), uniform);
            for ((writes, pages), printed) in mixes.into_iter().zip(mixed) {
                let cold = Class { writes: 1.0 - writes, pages: 1.0 - pages };
                assert_prints(oldest_mixed(spare, &[Class { writes, pages }, cold]), printed);
            }
        }
    }

    #[test]
    fn greedy_distribution_holds_the_users_pages() {
        for (spare, pages) in [(0.07, 64), (0.2, 128), (0.28, 256), (0.5, 64), (0.9, 64)] {
            let segments = 10_000;
            let numbers = greedy(spare, pages).valid_pages(segments, pages);
            assert_eq!(numbers.iter().sum::<u32>(), segments);
            let valid: f64 = (0..).zip(&numbers).map(|(valid, number)| f64::from(valid * number)).sum();
            let share = valid / f64::from(segments * pages);
            assert!((share - (1.0 - spare)).abs() < 0.01, "{share} valid with {spare} spare");
        }
    }
}
