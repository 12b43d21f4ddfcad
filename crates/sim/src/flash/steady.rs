//! Detects the steady state of write amplification, by a rule of the form of SNIA's Solid State Storage
//! Performance Test Specification: over the last five windows, neither the range nor the linear trend exceeds
//! a share of the mean. Amplification without queueing varies less than the throughput that SNIA measures, so
//! the shares are smaller (there 20 % and 10 %).

/// Windows that must agree.
pub const WINDOWS: usize = 5;
/// Largest difference between two of these windows, as a share of their mean.
pub const RANGE_MAX: f64 = 0.04;
/// Largest change along the line fitted to these windows, as a share of their mean.
pub const TREND_MAX: f64 = 0.01;

/// Reports whether the last windows are steady.
pub fn is_steady(amplifications: &[f64]) -> bool {
    let Some(last) = amplifications.len().checked_sub(WINDOWS).map(|from| &amplifications[from..]) else {
        return false;
    };
    let mean = last.iter().sum::<f64>() / WINDOWS as f64;
    let range = last.iter().copied().fold(f64::MIN, f64::max) - last.iter().copied().fold(f64::MAX, f64::min);
    // Least squares over the positions -2, -1, 0, 1, 2.
    let middle = (WINDOWS - 1) as f64 / 2.0;
    let positions = (0..WINDOWS).map(|at| at as f64 - middle);
    let squares: f64 = positions.clone().map(|at| at * at).sum();
    let slope = positions.zip(last).map(|(at, value)| at * value).sum::<f64>() / squares;
    range <= RANGE_MAX * mean && (slope * (WINDOWS - 1) as f64).abs() <= TREND_MAX * mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_windows_agree_and_have_no_trend() {
        assert!(!is_steady(&[2.0; 4]), "too few");
        assert!(is_steady(&[9.0, 2.0, 2.01, 1.99, 2.0, 2.01]), "the first is not among the last five");
        assert!(!is_steady(&[2.0, 2.0, 2.1, 2.0, 2.0]), "a range of 5 %");
        assert!(!is_steady(&[2.0, 2.015, 2.03, 2.045, 2.06]), "a trend of 3 %");
        assert!(is_steady(&[2.0, 2.005, 2.01, 2.015, 2.02]), "a trend of 1 %");
    }
}
