//! The experiments, by the names that rows use.

use super::super::parameters::Parameters;
use super::recordings::Recorded;
use crate::failure::Failure;
use std::fmt;

/// The name of the experiment that stands for the user's or the upper log's writes.
pub(super) const NO_AMPLIFICATION: &str = "no amplification";

/// An experiment.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Experiment {
    /// Every metric is 1.
    NoAmplification,
    Stack(Stack),
    /// A recording on one log.
    Recorded(Recorded),
    /// A figure of several stacks.
    Derived(Derived),
}

/// A stack of two layers under a load.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stack {
    Trace {
        trace: &'static str,
        uppers: Uppers,
        /// Capacity ratio.
        ratio: f64,
        /// Segments of the upper and of the lower log, in published MB.
        segments: (u32, u32),
    },
    Activity {
        /// Number of upper logs.
        logs: u32,
    },
}

/// The upper logs, and which of the layers has a fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Uppers {
    LowerFixed,
    UpperFixed,
    One,
    Two,
}

/// A figure of several stacks.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Derived {
    /// TCWA at the last of these lower segments to that at the first.
    Growth { trace: &'static str, uppers: Uppers, ratio: f64, upper: u32, lowers: (u32, u32) },
    /// The smallest lower segment at which the larger upper segment has a lower TCWA.
    TurningPoint { trace: &'static str, ratio: f64 },
}

const TRACES: [&str; 3] = ["tpce", "prn_0", "prn_1"];
const UPPERS: [(&str, Uppers); 4] = [
    ("lower fixed", Uppers::LowerFixed),
    ("upper fixed", Uppers::UpperFixed),
    ("1 upper log", Uppers::One),
    ("2 upper logs", Uppers::Two),
];
/// Lower segments between which a turning point is looked for, in published MB.
const LOWER_SEGMENTS: [u32; 8] = [2, 4, 8, 16, 32, 64, 128, 256];

impl Experiment {
    /// Parses a name; `None` if it is no experiment.
    pub(super) fn parse(name: &str) -> Option<Self> {
        if name == NO_AMPLIFICATION {
            return Some(Self::NoAmplification);
        }
        if let Some(recorded) = Recorded::parse(name) {
            return Some(Self::Recorded(recorded));
        }
        let parts: Vec<&str> = name.split(", ").collect();
        if let ["activity", logs] = parts[..] {
            let logs = logs.strip_suffix(" upper logs")?.parse().ok()?;
            return [2, 3, 6].contains(&logs).then_some(Self::Stack(Stack::Activity { logs }));
        }
        let trace = TRACES.into_iter().find(|known| Some(known) == parts.first())?;
        let uppers = |text: &str| UPPERS.iter().find(|(known, _)| *known == text).map(|(_, uppers)| *uppers);
        // The ratio comes before or after the upper logs.
        let ((uppers, ratio), segments) = match parts[1..] {
            [first, second, ..] => {
                let in_order = uppers(first).zip(second.parse().ok());
                (in_order.or_else(|| uppers(second).zip(first.parse().ok()))?, parts.get(3))
            }
            _ => return None,
        };
        let Some(segments) = segments.filter(|_| parts.len() == 4) else {
            let is_turning = parts.len() == 3 && uppers == Uppers::UpperFixed;
            return is_turning.then_some(Self::Derived(Derived::TurningPoint { trace, ratio }));
        };
        let (upper, lower) = segments.strip_suffix(" MB")?.split_once(" MB on ")?;
        let upper = upper.parse().ok()?;
        Some(match lower.split_once(" to ") {
            Some((first, last)) => {
                let lowers = (first.parse().ok()?, last.parse().ok()?);
                Self::Derived(Derived::Growth { trace, uppers, ratio, upper, lowers })
            }
            None => {
                let segments = (upper, lower.parse().ok()?);
                Self::Stack(Stack::Trace { trace, uppers, ratio, segments })
            }
        })
    }

    /// Returns the stacks that the experiment needs.
    ///
    /// # Errors
    /// Fails if a parameter is unusable.
    pub(super) fn stacks(&self, p: &Parameters) -> Result<Vec<Stack>, Failure> {
        Ok(match self {
            Self::NoAmplification | Self::Recorded(_) => Vec::new(),
            Self::Stack(stack) => vec![stack.clone()],
            Self::Derived(Derived::Growth { trace, uppers, ratio, upper, lowers }) => {
                let one =
                    |lower| Stack::Trace { trace, uppers: *uppers, ratio: *ratio, segments: (*upper, lower) };
                vec![one(lowers.0), one(lowers.1)]
            }
            Self::Derived(Derived::TurningPoint { trace, ratio }) => {
                let uppers: [u64; 2] = p.counts("turning_segments")?;
                let one = |(lower, upper): (u32, u64)| Stack::Trace {
                    trace,
                    uppers: Uppers::UpperFixed,
                    ratio: *ratio,
                    segments: (upper as u32, lower),
                };
                LOWER_SEGMENTS.iter().flat_map(|lower| uppers.map(|upper| one((*lower, upper)))).collect()
            }
        })
    }
}

impl Stack {
    /// Returns the segment of the lower log, in published MB; 0 if a parameter has it.
    pub(super) fn lower_segment(&self) -> u32 {
        match self {
            Self::Trace { segments, .. } => segments.1,
            Self::Activity { .. } => 0,
        }
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Activity { logs } => write!(f, "activity, {logs} upper logs"),
            Self::Trace { trace, uppers, ratio, segments: (upper, lower) } => {
                let name = UPPERS.iter().find(|(_, known)| known == uppers).map_or("", |(name, _)| name);
                match uppers {
                    Uppers::LowerFixed | Uppers::UpperFixed => write!(f, "{trace}, {name}, {ratio}")?,
                    Uppers::One | Uppers::Two => write!(f, "{trace}, {ratio}, {name}")?,
                }
                write!(f, ", {upper} MB on {lower} MB")
            }
        }
    }
}
