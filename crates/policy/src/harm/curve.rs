//! Response curves of a device by direction, size and queue depth, fitted to measurements.

use crate::placement::{MeasuredCommand, SizeClass};
use weir_model::Nanos;

/// The number of depth classes: 1, 2, 3 to 4, 5 to 8, and so on, the last one open.
const DEPTHS: usize = 8;
/// The age at which a point without new samples is ignored, as long as there is a younger one.
const STALE_AGE: Nanos = Nanos::secs(600);
/// The minimum device time of a write, in reads of its size.
const WRITE_TIME_MIN: f64 = 0.5;
/// The minimum weight of a sample.
const SAMPLE_WEIGHT_MIN: f32 = 0.02;
/// The number of samples up to which all have the same weight.
const EQUAL_WEIGHT_SAMPLES: u32 = 50;

/// One point of a curve: moving averages.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    depth: f32,
    /// The response time in nanoseconds.
    response: f32,
    samples: u32,
    at: Nanos,
}

impl Point {
    /// Adds a sample. Returns its weight.
    #[inline]
    fn add(&mut self, depth: u32, response: Nanos, now: Nanos) -> f32 {
        self.samples = self.samples.saturating_add(1);
        let weight =
            if self.samples > EQUAL_WEIGHT_SAMPLES { SAMPLE_WEIGHT_MIN } else { 1.0 / self.samples as f32 };
        self.depth += weight * (depth as f32 - self.depth);
        // Signed, because the processor converts that to a float directly.
        self.response += weight * (response.0 as i64 as f32 - self.response);
        self.at = now;
        weight
    }
}

/// The curve of commands of about one size in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Curve {
    points: [Point; DEPTHS],
    /// The time of the last sample.
    at: Option<Nanos>,
    /// The service time of a command in nanoseconds: its share of the device's time.
    service_time: f32,
}

impl Curve {
    /// Returns the expected response at this depth: interpolated between two points, else in proportion to
    /// the depth.
    fn response(&self, depth: f64) -> Option<f64> {
        let youngest = self.points.iter().map(|point| point.at).max()?;
        let known = |p: &&Point| p.samples > 0 && youngest.since(p.at) < STALE_AGE;
        let (mut below, mut above) = (None::<&Point>, None::<&Point>);
        for point in self.points.iter().filter(known) {
            if f64::from(point.depth) <= depth {
                below = Some(point);
            } else {
                above = above.or(Some(point));
            }
        }
        let (depth_of, response_of) = (|p: &Point| f64::from(p.depth), |p: &Point| f64::from(p.response));
        match (below, above) {
            (Some(a), Some(b)) => {
                let part = (depth - depth_of(a)) / (depth_of(b) - depth_of(a)).max(1e-9);
                Some(response_of(a) + part * (response_of(b) - response_of(a)))
            }
            (Some(p), None) | (None, Some(p)) => Some(response_of(p) * depth / depth_of(p).max(1.0)),
            (None, None) => None,
        }
    }
}

/// The curves of one device, about 3 KiB.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    all: Box<[[Curve; SizeClass::COUNT]; 2]>,
}

impl Curves {
    /// Adds a command that was one of `depth` when it began. Cost: a few additions.
    #[inline]
    pub fn note(&mut self, now: Nanos, command: &MeasuredCommand) {
        let curve = &mut self.all[usize::from(command.write)][command.size.index()];
        let depth = command.depth.max(1);
        let at = ((depth - 1).checked_ilog2().map_or(0, |log| log + 1) as usize).min(DEPTHS - 1);
        let point = &mut curve.points[at];
        let weight = point.add(depth, command.response, now);
        curve.service_time += weight * (command.service_time.0 as i64 as f32 - curve.service_time);
        curve.at = Some(now);
    }

    /// Returns the expected response in seconds to a command that is one of `depth`. Without samples of its
    /// size, that of the nearest size is used; for writes without any samples, that of reads. `None` before
    /// the first command.
    pub fn response(&self, write: bool, size: SizeClass, depth: f64) -> Option<f64> {
        self.nearest(write, size).and_then(|curve| curve.response(depth.max(1.0))).map(|ns| ns / 1e9)
    }

    /// Returns the service time of such a command in seconds; a write answered from a cache takes some of it
    /// later.
    pub fn service_time(&self, write: bool, size: SizeClass) -> Option<f64> {
        let took = |write| self.nearest(write, size).map(|curve| f64::from(curve.service_time) / 1e9);
        let read = took(false)?;
        if write { Some(took(true)?.max(WRITE_TIME_MIN * read)) } else { Some(read) }
    }

    /// Returns the time since a read of this size was last answered; `None` if there was none.
    pub fn age(&self, size: SizeClass, now: Nanos) -> Option<Nanos> {
        self.all[0][size.index()].at.map(|at| now.since(at))
    }

    fn nearest(&self, write: bool, size: SizeClass) -> Option<&Curve> {
        let directions = if write { &[1, 0][..] } else { &[0, 1][..] };
        directions.iter().find_map(|direction| {
            let known = self.all[*direction].iter().enumerate().filter(|(_, curve)| curve.at.is_some());
            known.min_by_key(|(i, _)| i.abs_diff(size.index())).map(|(_, curve)| curve)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_model::Bytes;

    fn read(kib: u64, depth: u32, us: u64) -> MeasuredCommand {
        MeasuredCommand::new(
            false,
            Bytes::kib(kib),
            depth,
            Nanos::micros(us),
            Nanos::micros(us / u64::from(depth)),
        )
    }

    fn us(curves: &Curves, kib: u64, depth: f64) -> u64 {
        let response = curves.response(false, SizeClass::of(Bytes::kib(kib)), depth);
        (response.unwrap_or(0.0) * 1e6).round() as u64
    }

    #[test]
    fn response_is_interpolated_and_extrapolated() {
        let mut curves = Curves::default();
        assert_eq!(curves.response(true, SizeClass::of(Bytes::kib(4)), 1.0), None);
        (0..100).for_each(|_| curves.note(Nanos(1), &read(4, 2, 200)));
        assert_eq!([1.0, 2.0, 4.0].map(|depth| us(&curves, 4, depth)), [100, 200, 400]);
        (0..100).for_each(|_| curves.note(Nanos(2), &read(4, 8, 1400)));
        assert_eq!([2.0, 5.0, 8.0, 16.0].map(|depth| us(&curves, 4, depth)), [200, 800, 1400, 2800]);
        assert_eq!(us(&curves, 64, 2.0), 200, "of the nearest size");
        let writes = curves.response(true, SizeClass::of(Bytes::kib(4)), 2.0);
        assert!(writes.is_some_and(|s| (s - 200e-6).abs() < 1e-9), "of reads");
    }

    #[test]
    fn stale_points_are_ignored() {
        let mut curves = Curves::default();
        curves.note(Nanos(0), &read(4, 8, 8000));
        assert_eq!(us(&curves, 4, 8.0), 8000);
        assert_eq!(curves.age(SizeClass::of(Bytes::kib(4)), Nanos::secs(700)), Some(Nanos::secs(700)));
        curves.note(Nanos::secs(700), &read(4, 1, 10));
        assert_eq!(us(&curves, 4, 8.0), 80);
        assert_eq!(curves.age(SizeClass::of(Bytes::kib(64)), Nanos(0)), None);
    }

    proptest! {
        /// The response of a device grows linearly with its queue, and does not depend on the size: the curve
        /// is that line where there were commands.
        #[test]
        fn linear_response_is_recovered(
            seed: u64,
            base in 50.0f64..5000.0,
            more in 0.0f64..2000.0,
            depth in 1u32..64,
        ) {
            let mut random = weir_model::Rng::new(weir_model::Seed(seed));
            let response = |depth: f64| base + more * (depth - 1.0);
            let mut curves = Curves::default();
            for i in 0..4000 {
                let depth = 1 + random.below(64) as u32;
                let exact = response(depth.into());
                let noise = 0.9 + random.below(200) as f64 / 1000.0;
                curves.note(Nanos(i), &read(4, depth, (exact * noise) as u64));
            }
            let found = us(&curves, 4, depth.into()) as f64;
            let exact = response(depth.into());
            // At the ends, points represent depths on one side of them only.
            prop_assert!(found > 0.5 * exact && found < 1.5 * exact, "{found} for {exact}");
        }
    }
}
