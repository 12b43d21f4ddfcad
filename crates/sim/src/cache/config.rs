//! What a cache is to be like, as the program and the Python package are told it.

use super::{AdmissionPolicy, BlockTrace, EvictionPolicy, Setup, Size, WriteMode};

/// A cache of any trace.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    /// Which block leaves.
    pub eviction: &'static EvictionPolicy,
    /// Which blocks come in.
    pub admission: &'static AdmissionPolicy,
    /// How large it is.
    pub size: Size,
    /// Where writes go.
    pub mode: WriteMode,
}

impl CacheConfig {
    /// The cache of this trace.
    pub fn setup(&self, trace: &BlockTrace) -> Setup {
        let Self { eviction, admission, size, mode } = *self;
        Setup { eviction, admission, capacity: size.of(trace), mode }
    }
}

impl WriteMode {
    /// The names of all.
    pub const NAMES: [&str; 3] = ["through", "around", "back"];

    /// The one of this name; what may be dirty matters to `back` only.
    pub fn named(name: &str, dirty: f64) -> Option<Self> {
        match name {
            "through" => Some(Self::Through),
            "around" => Some(Self::Around),
            "back" => Some(Self::Back { dirty }),
            _ => None,
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Through => "through",
            Self::Around => "around",
            Self::Back { .. } => "back",
        }
    }

    /// The share of the cache that may be dirty, if writes go back.
    pub const fn dirty(&self) -> Option<f64> {
        match self {
            Self::Back { dirty } => Some(*dirty),
            Self::Through | Self::Around => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_found_by_their_names() {
        for name in WriteMode::NAMES {
            let mode = WriteMode::named(name, 0.5).expect(name);
            assert_eq!((mode.name(), mode.dirty()), (name, (name == "back").then_some(0.5)));
        }
        assert_eq!(WriteMode::named("beside", 0.5), None);
    }
}
