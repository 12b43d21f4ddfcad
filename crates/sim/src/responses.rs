//! Response times: their collection, mean and quantiles.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;
use weir_model::Nanos;

/// Response times of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(into = "ResponsesPart")]
pub struct Responses {
    /// Number of requests.
    pub count: u64,
    /// Their mean response time.
    pub mean: Nanos,
    /// The median.
    pub p50: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
    /// The 99.9th percentile.
    pub p999: Nanos,
    /// The maximum.
    pub max: Nanos,
}

/// Response times of requests; times are `null` if there were no requests.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Responses")]
pub(crate) struct ResponsesPart {
    /// Requests that were answered.
    count: u64,
    /// Mean.
    mean_ns: Option<u64>,
    /// Median.
    p50_ns: Option<u64>,
    /// 99th percentile.
    p99_ns: Option<u64>,
    /// 99.9th percentile.
    p999_ns: Option<u64>,
    /// Maximum.
    max_ns: Option<u64>,
}

impl Responses {
    /// Returns one of the response times; `None` if there were no requests.
    pub fn time_if_any(&self, time: Nanos) -> Option<Nanos> {
        (self.count > 0).then_some(time)
    }

    /// Returns a warning if the slowest 1 % of the requests account for most of the mean, which is then far
    /// above the 99th percentile.
    pub fn heavy_tail(&self) -> Option<String> {
        let Self { mean, p99, p999, max, .. } = *self;
        // The largest possible contribution of the other requests to the mean.
        let others = 0.99 * p99.as_secs_f64();
        let share = 1.0 - others / mean.as_secs_f64().max(f64::MIN_POSITIVE);
        (self.count > 0 && share > 0.5).then(|| {
            format!(
                "the mean ({mean}) is above what 99 of 100 requests take ({p99}): the slowest 1 in 100 make \
                 up {:.0} % of it or more (999 of 1000 take at most {p999}, the slowest {max}), as where a \
                 burst comes faster than the devices answer",
                (share * 100.0).floor()
            )
        })
    }
}

impl From<Responses> for ResponsesPart {
    fn from(responses: Responses) -> Self {
        let time = |time| responses.time_if_any(time).map(|time| time.0);
        Self {
            count: responses.count,
            mean_ns: time(responses.mean),
            p50_ns: time(responses.p50),
            p99_ns: time(responses.p99),
            p999_ns: time(responses.p999),
            max_ns: time(responses.max),
        }
    }
}

/// Collects response times.
#[derive(Clone, Debug)]
pub(crate) struct ResponseHistogram(Histogram<u64>);

impl ResponseHistogram {
    pub(crate) fn new() -> Self {
        // Three digits, over the whole range of times.
        Self(Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are possible")))
    }

    #[inline]
    pub(crate) fn add(&mut self, response: Nanos) {
        // The histogram resizes itself, so recording never fails.
        let _always = self.0.record(response.0);
    }

    /// Adds the times of another collection.
    pub(crate) fn merge(&mut self, other: &Self) {
        // The histogram resizes itself, so adding never fails.
        let _always = self.0.add(&other.0);
    }

    pub(crate) fn take(&mut self) -> Responses {
        let responses = self.responses();
        self.0.reset();
        responses
    }

    pub(crate) fn responses(&self) -> Responses {
        if self.0.is_empty() {
            return Responses::default();
        }
        let quantile = |q| Nanos(self.0.value_at_quantile(q));
        Responses {
            count: self.0.len(),
            mean: Nanos(self.0.mean() as u64),
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: Nanos(self.0.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_tail_is_reported_only_if_certain() {
        let of =
            |mean| Responses { count: 1000, mean: Nanos(mean), p99: Nanos(77_100), ..Responses::default() };
        // 99 of 100 may take 77.1 us each, which is 76.3 us of the mean.
        for mean in [77_000, 77_140, 99_000, 152_000] {
            assert_eq!(of(mean).heavy_tail(), None, "{mean}");
        }
        let said = of(308_000).heavy_tail().expect("a word");
        assert!(said.contains("the mean (308.0 us) is above"), "{said}");
        assert!(said.contains("the slowest 1 in 100 make up 75 % of it or more"), "{said}");
        assert_eq!(Responses { count: 0, ..of(308_000) }.heavy_tail(), None);
    }
}
