//! Units of what may be chosen.

/// Hundredths of the whole: 0 to 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(pub u8);
