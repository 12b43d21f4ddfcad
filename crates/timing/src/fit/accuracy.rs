//! Accuracy of predicted times against measured ones.

use weir_model::Nanos;

/// Accuracy of a prediction.
#[derive(Clone, Copy, Debug)]
pub struct Accuracy {
    /// Number of requests.
    pub count: usize,
    /// Mean of the measured times.
    pub mean: Nanos,
    /// Mean of the predicted times.
    pub predicted_mean: Nanos,
    /// Root mean square of the horizontal distance between the two distributions, as a share of the measured
    /// mean: Ruemmler and Wilkes' demerit figure.
    pub distance: f64,
    /// 99th percentile of the measured times.
    pub p99: Nanos,
    /// 99th percentile of the predicted times.
    pub predicted_p99: Nanos,
    /// Spearman's rank correlation over the requests, from -1 to 1.
    pub rank: f64,
    /// Mean absolute difference over the requests, as a share of the measured mean.
    pub error: f64,
}

impl Accuracy {
    /// Returns the relative error of the predicted 99th percentile.
    pub fn p99_error(&self) -> f64 {
        self.predicted_p99.0 as f64 / self.p99.0.max(1) as f64 - 1.0
    }
}

/// Compares predicted and measured times of the same requests; both slices have the same length. Time: n log
/// n.
pub fn compare(measured: &[Nanos], predicted: &[Nanos]) -> Accuracy {
    let count = measured.len().min(predicted.len()).max(1);
    let sorted = |times: &[Nanos]| {
        let mut times = times.to_vec();
        times.sort_unstable();
        times
    };
    let (real, model) = (sorted(measured), sorted(predicted));
    let mean = |times: &[Nanos]| times.iter().map(|t| t.0 as f64).sum::<f64>() / count as f64;
    let apart = |a: &Nanos, b: &Nanos| a.0 as f64 - b.0 as f64;
    let square: f64 = real.iter().zip(&model).map(|(a, b)| apart(a, b).powi(2)).sum();
    let error: f64 = measured.iter().zip(predicted).map(|(a, b)| apart(a, b).abs()).sum();
    let p99 = |times: &[Nanos]| times.get(times.len() * 99 / 100).copied().unwrap_or_default();
    let whole = mean(&real).max(1.0);
    Accuracy {
        count: measured.len(),
        mean: Nanos(mean(&real) as u64),
        predicted_mean: Nanos(mean(&model) as u64),
        distance: (square / count as f64).sqrt() / whole,
        p99: p99(&real),
        predicted_p99: p99(&model),
        rank: correlation(&ranks(measured), &ranks(predicted)),
        error: error / count as f64 / whole,
    }
}

/// Returns each time's rank; equal times share the mean of their ranks.
fn ranks(times: &[Nanos]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by_key(|&i| times[i]);
    let mut ranks = vec![0.0; times.len()];
    let mut begin = 0;
    for equal in order.chunk_by(|&a, &b| times[a] == times[b]) {
        let rank = begin as f64 + (equal.len() - 1) as f64 / 2.0;
        equal.iter().for_each(|&i| ranks[i] = rank);
        begin += equal.len();
    }
    ranks
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len().max(1) as f64;
    let (ma, mb) = (mean(a), mean(b));
    let sum = |f: &dyn Fn(f64, f64) -> f64| a.iter().zip(b).map(|(x, y)| f(x - ma, y - mb)).sum::<f64>();
    let spread = (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt();
    if spread == 0.0 { 0.0 } else { sum(&|x, y| x * y) / spread }
}
