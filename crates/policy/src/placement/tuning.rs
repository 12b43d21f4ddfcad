//! Tuning: a policy's constants as keys of the pool file, named after the paper's parameters and with the
//! paper's defaults.

use weir_model::Nanos;

/// The type, notation and range of a key's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    /// A number: `2`, `0.5`.
    Number {
        /// The minimum.
        min: f64,
        /// The maximum.
        max: f64,
    },
    /// A whole number: `2`.
    Count {
        /// The minimum.
        min: u32,
        /// The maximum.
        max: u32,
    },
    /// A share, internally from 0 to 1: `"10%"`.
    Share,
    /// A time, internally in seconds: `"30s"`, `"500ms"`.
    Time,
    /// A size, internally in bytes: `"64KiB"`.
    Size,
    /// `true` or `false`, internally 1 or 0.
    Flag,
    /// One of these words, internally its index.
    Choice(&'static [&'static str]),
}

/// A key that tunes a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub kind: ValueKind,
    /// The default value.
    pub default: f64,
    /// A description in one line.
    pub description: &'static str,
}

impl Key {
    /// Defines a number.
    pub const fn number(
        name: &'static str,
        default: f64,
        range: (f64, f64),
        description: &'static str,
    ) -> Self {
        Self { name, kind: ValueKind::Number { min: range.0, max: range.1 }, default, description }
    }
    /// Defines a whole number.
    pub const fn count(
        name: &'static str,
        default: u32,
        range: (u32, u32),
        description: &'static str,
    ) -> Self {
        Self {
            name,
            kind: ValueKind::Count { min: range.0, max: range.1 },
            default: default as f64,
            description,
        }
    }
    /// Defines a share; the default is in percent.
    pub const fn percent(name: &'static str, default: f64, description: &'static str) -> Self {
        Self { name, kind: ValueKind::Share, default: default / 100.0, description }
    }
    /// Defines a time.
    pub const fn time(name: &'static str, default: Nanos, description: &'static str) -> Self {
        Self { name, kind: ValueKind::Time, default: default.0 as f64 / 1e9, description }
    }
    /// Defines a size in bytes.
    pub const fn size(name: &'static str, default: u64, description: &'static str) -> Self {
        Self { name, kind: ValueKind::Size, default: default as f64, description }
    }
    /// Defines a flag.
    pub const fn flag(name: &'static str, default: bool, description: &'static str) -> Self {
        Self { name, kind: ValueKind::Flag, default: if default { 1.0 } else { 0.0 }, description }
    }
    /// Defines a choice of words; the default is the first.
    pub const fn choice(
        name: &'static str,
        words: &'static [&'static str],
        description: &'static str,
    ) -> Self {
        Self { name, kind: ValueKind::Choice(words), default: 0.0, description }
    }

    /// Whether a value is in the key's range.
    pub fn allows(&self, value: f64) -> bool {
        match self.kind {
            ValueKind::Number { min: least, max: most } => (least..=most).contains(&value),
            ValueKind::Count { min: least, max: most } => {
                value.fract() == 0.0 && (f64::from(least)..=f64::from(most)).contains(&value)
            }
            ValueKind::Share => (0.0..=1.0).contains(&value),
            ValueKind::Time | ValueKind::Size => value >= 0.0 && value.is_finite(),
            ValueKind::Flag => value == 0.0 || value == 1.0,
            ValueKind::Choice(words) => value.fract() == 0.0 && (0.0..words.len() as f64).contains(&value),
        }
    }
}

/// The values given for a policy's keys. All others have their defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings(Vec<(&'static str, f64)>);

impl Settings {
    /// Sets a key's value. Returns `false`, changing nothing, if it is out of the key's range.
    pub fn set(&mut self, key: &Key, value: f64) -> bool {
        let good = key.allows(value);
        if good {
            self.0.retain(|(name, _)| *name != key.name);
            self.0.push((key.name, value));
        }
        good
    }

    /// Returns the given values.
    pub fn overrides(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.0.iter().copied()
    }

    /// Returns a key's value.
    pub fn get(&self, key: &Key) -> f64 {
        self.0.iter().find(|(name, _)| *name == key.name).map_or(key.default, |(_, value)| *value)
    }

    /// Returns the value of a time.
    pub fn time(&self, key: &Key) -> Nanos {
        Nanos::from_secs_f64(self.get(key))
    }

    /// Returns the value of a flag.
    pub fn flag(&self, key: &Key) -> bool {
        self.get(key) != 0.0
    }

    /// Returns the index of the chosen word.
    pub fn choice(&self, key: &Key) -> usize {
        self.get(key) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_key_has_default() {
        const DELTA: Key = Key::number("delta", 1.0, (0.0, 10.0), "a number");
        const EVERY: Key = Key::time("every", Nanos::millis(1500), "a time");
        const HOW: Key = Key::choice("how", &["this", "that"], "a word");
        let mut settings = Settings::default();
        assert_eq!((settings.get(&DELTA), settings.time(&EVERY)), (1.0, Nanos::millis(1500)));
        assert!(settings.set(&DELTA, 2.0) && settings.set(&DELTA, 3.0) && settings.set(&HOW, 1.0));
        assert!(!settings.set(&DELTA, 11.0) && !settings.set(&DELTA, f64::NAN) && !settings.set(&HOW, 2.0));
        assert_eq!((settings.get(&DELTA), settings.choice(&HOW)), (3.0, 1));
    }
}
