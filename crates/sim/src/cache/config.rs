//! Configuration of a cache, shared by the program and the Python package.

use super::{AdmissionPolicy, AdmissionSettings, BlockTrace, EvictionPolicy, Setup, Size, WriteMode};

/// The configuration of a cache, independent of a trace.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    /// Eviction policy.
    pub eviction: &'static EvictionPolicy,
    /// Admission policy.
    pub admission: &'static AdmissionPolicy,
    /// Settings of the admission policy.
    pub settings: AdmissionSettings,
    /// Cache size.
    pub size: Size,
    /// Write mode.
    pub mode: WriteMode,
}

impl CacheConfig {
    /// Returns the setup of the cache for this trace.
    pub fn setup(&self, trace: &BlockTrace) -> Setup {
        let Self { eviction, admission, settings, size, mode } = *self;
        Setup { eviction, admission, settings, capacity: size.of(trace), mode }
    }
}

impl WriteMode {
    /// Names of all write modes.
    pub const NAMES: [&str; 3] = ["through", "around", "back"];

    /// Returns the mode of this name; `dirty` matters to `back` only.
    pub fn named(name: &str, dirty: f64) -> Option<Self> {
        match name {
            "through" => Some(Self::Through),
            "around" => Some(Self::Around),
            "back" => Some(Self::Back { dirty }),
            _ => None,
        }
    }

    /// Returns the name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Through => "through",
            Self::Around => "around",
            Self::Back { .. } => "back",
        }
    }

    /// Returns the share of the cache that may be dirty with write-back.
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
