//! Reads TOML tables key by key, so that every mistake has a position and says what to write.
//!
//! The reader records a mistake and continues, so that all mistakes are reported at once. A value with a
//! mistake counts as absent; the caller refuses the file at the end if anything was recorded.

use super::{Mistake, Mistakes};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The mistakes found so far.
#[derive(Debug, Default)]
pub(crate) struct MistakeLog(RefCell<Vec<Mistake>>);

impl MistakeLog {
    /// Records a mistake.
    pub(crate) fn record(&self, mistake: Mistake) {
        self.0.borrow_mut().push(mistake);
    }

    /// Returns the value read, or all mistakes in the order of the file if there are any.
    pub(crate) fn into_result<T>(self, read: Option<T>) -> Result<T, Mistakes> {
        let mut found = self.0.into_inner();
        // Mistakes that concern the whole file come last.
        found.sort_by_key(|mistake| (mistake.line == 0, mistake.line, mistake.column));
        match read {
            Some(read) if found.is_empty() => Ok(read),
            _ => Err(Mistakes(found)),
        }
    }
}

/// Parses the text and returns its root table.
pub(crate) fn document(text: &str) -> Result<Spanned<DeTable<'_>>, Mistakes> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(table);
    }
    let found = MistakeLog::default();
    for error in errors {
        let message = format!("not TOML: {}", error.message());
        let help = "write it as in docs/guide/pool-file.md";
        found.record(mistake(text, error.span().unwrap_or(0..0), message, help));
    }
    found.into_result(None)
}

/// One table of the file. Its methods read keys; unknown keys are mistakes.
pub(crate) struct Keys<'t, 'i> {
    text: &'t str,
    /// Title of the table in messages: `[pool]`, `[[device]] number 2`.
    title: String,
    table: &'t DeTable<'i>,
    span: Range<usize>,
    /// Keys that are absent while the table has a similar unknown key; that mistake is already recorded.
    misspelt: Vec<&'static str>,
    mistakes: &'t MistakeLog,
}

impl<'t, 'i> Keys<'t, 'i> {
    /// Creates the reader of a table and records its keys that are not among `known`.
    pub(crate) fn new(
        text: &'t str,
        title: impl Into<String>,
        table: &'t DeTable<'i>,
        span: Range<usize>,
        known: &[&'static str],
        mistakes: &'t MistakeLog,
    ) -> Self {
        let title = title.into();
        let mut misspelt = Vec::new();
        for key in table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let given = key.get_ref().as_ref();
            let message = format!("{title} has no key {given:?}");
            let help = match known {
                [] => "it has no keys".to_owned(),
                _ => format!("{}its keys are {}", suggestion(given, known), known.join(", ")),
            };
            misspelt.extend(closest(given, known));
            mistakes.record(mistake(text, key.span(), message, &help));
        }
        Self { text, title, table, span, misspelt, mistakes }
    }

    /// Returns whether the table has this key, with any value, or a misspelling of it.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key) || self.misspelt.contains(&key)
    }

    /// Returns the table under `key`, which is required.
    pub(crate) fn table(&self, key: &str, known: &[&'static str]) -> Option<Self> {
        let help =
            format!("begin it with a [{key}] section that has a name:\n\n  [{key}]\n  name = \"home\"");
        if !self.has(key) {
            let message = format!("{} has no [{key}] section", self.title);
            return self.record(mistake(self.text, 0..0, message, &help));
        }
        let value = self.table.get(key)?;
        let Some(table) = value.get_ref().as_table() else {
            return self.record(self.wrong_kind(key, value, &help));
        };
        Some(Self::new(self.text, format!("[{key}]"), table, value.span(), known, self.mistakes))
    }

    /// Returns the table under `key`, if there is one.
    pub(crate) fn optional_table(&self, key: &str, known: &[&'static str]) -> Option<Self> {
        self.has(key).then(|| self.table(key, known)).flatten()
    }

    /// Returns the name and the contents of each table in the table under `key`; `known` gives the known keys
    /// for a name. The table under `key` and the tables in it are optional.
    pub(crate) fn tables_by_name(
        &self,
        key: &str,
        names: &[&'static str],
        known: impl Fn(&'static str) -> Vec<&'static str>,
    ) -> Vec<(&'static str, Self)> {
        let help = format!("write a [{key}.NAME] section, NAME one of {}", names.join(", "));
        let Some(value) = self.table.get(key) else { return Vec::new() };
        let Some(table) = value.get_ref().as_table() else {
            self.mistakes.record(self.wrong_kind(key, value, &help));
            return Vec::new();
        };
        let outer = Self::new(self.text, format!("[{key}]"), table, value.span(), names, self.mistakes);
        let given = names.iter().filter_map(|name| table.get(*name).map(|value| (*name, value)));
        let inner = given.filter_map(|(name, value)| {
            let Some(table) = value.get_ref().as_table() else {
                return self.record(outer.wrong_kind(name, value, &help));
            };
            let title = format!("[{key}.{name}]");
            Some((name, Self::new(self.text, title, table, value.span(), &known(name), self.mistakes)))
        });
        inner.collect()
    }

    /// Returns the name and the contents of each table in the table under `key`. `check` checks the names;
    /// all the tables have the same `known` keys. The table under `key` is optional.
    pub(crate) fn tables_of(
        &self,
        key: &str,
        check: impl Fn(&str) -> Result<String, String>,
        known: &[&'static str],
    ) -> Vec<(String, Self)> {
        let help = format!("write a [{key}.NAME] section");
        let Some(value) = self.table.get(key) else { return Vec::new() };
        let Some(table) = value.get_ref().as_table() else {
            self.mistakes.record(self.wrong_kind(key, value, &help));
            return Vec::new();
        };
        let inner = table.iter().filter_map(|(name, value)| {
            let text = name.get_ref().as_ref();
            let name = match check(text) {
                Ok(name) => name,
                Err(allowed) => {
                    let message = format!("[{key}] has {text:?}");
                    let help = format!("a {key}'s name must be {allowed}");
                    return self.record(mistake(self.text, name.span(), message, &help));
                }
            };
            let Some(table) = value.get_ref().as_table() else {
                return self.record(self.wrong_kind(text, value, &help));
            };
            let title = format!("[{key}.{name}]");
            Some((name, Self::new(self.text, title, table, value.span(), known, self.mistakes)))
        });
        inner.collect()
    }

    /// Returns the number under `key`. `check` checks it; its error says what is allowed.
    pub(crate) fn number(&self, key: &str, check: impl Fn(f64) -> Result<f64, String>) -> Option<f64> {
        let value = self.table.get(key)?;
        let allowed = || check(f64::NAN).err().unwrap_or_else(|| "a number".into());
        let number = value.get_ref().as_float().map(|f| f.as_str().parse()).or_else(|| {
            let integer = value.get_ref().as_integer()?;
            Some(i64::from_str_radix(integer.as_str(), integer.radix()).map_or("?".parse(), |i| Ok(i as f64)))
        });
        let Some(Ok(number)) = number else {
            let help = format!("{key} must be {}, without quotes", allowed());
            return self.record(self.wrong_kind(key, value, &help));
        };
        check(number).map(Some).unwrap_or_else(|allowed| {
            let message = format!("{}: {key} is {number}", self.title);
            self.record(mistake(self.text, value.span(), message, &format!("{key} must be {allowed}")))
        })
    }

    /// Returns the tables of the array under `key`; `None` if the value is no such array or the key is
    /// misspelt, which is recorded.
    pub(crate) fn tables(&self, key: &str, known: &[&'static str]) -> Option<Vec<Self>> {
        let help = format!("write one [[{key}]] section for each {key}");
        let Some(value) = self.table.get(key) else { return (!self.has(key)).then(Vec::new) };
        let Some(array) = value.get_ref().as_array() else {
            return self.record(self.wrong_kind(key, value, &help));
        };
        let mut items = Vec::with_capacity(array.len());
        for (index, item) in array.iter().enumerate() {
            let Some(table) = item.get_ref().as_table() else {
                return self.record(self.wrong_kind(key, item, &help));
            };
            let title = format!("[[{key}]] number {}", index + 1);
            items.push(Self::new(self.text, title, table, item.span(), known, self.mistakes));
        }
        Some(items)
    }

    /// Returns the text under `key`. `check` checks it; its error says what is allowed.
    pub(crate) fn optional<T>(&self, key: &str, check: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value = self.table.get(key)?;
        let Some(text) = value.get_ref().as_str() else {
            let allowed = check("").err().unwrap_or_else(|| "text".into());
            return self.record(self.wrong_kind(key, value, &format!("{key} must be {allowed}, in quotes")));
        };
        check(text).map(Some).unwrap_or_else(|allowed| {
            let message = format!("{}: {key} is {text:?}", self.title);
            self.record(mistake(self.text, value.span(), message, &format!("{key} must be {allowed}")))
        })
    }

    /// Works as [`Self::optional`], but the key is required.
    pub(crate) fn required<T>(&self, key: &str, check: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        if !self.has(key) {
            let message = format!("{} has no {key}", self.title);
            let help = format!("add a line: {key} = \"...\"");
            return self.record(mistake(self.text, self.span.clone(), message, &help));
        }
        self.optional(key, check)
    }

    /// Returns the texts in the array under `key`. `check` checks each of them; it also gets those before.
    pub(crate) fn list<T>(
        &self,
        key: &str,
        check: impl Fn(&str, &[T]) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let value = self.table.get(key)?;
        let allowed = || check("", &[]).err().unwrap_or_else(|| "text".into());
        let help = || format!("{key} must be a list in brackets, each item {}, in quotes", allowed());
        let Some(array) = value.get_ref().as_array() else {
            return self.record(self.wrong_kind(key, value, &help()));
        };
        let mut items = Vec::with_capacity(array.len());
        for item in array.iter() {
            let Some(text) = item.get_ref().as_str() else {
                return self.record(self.wrong_kind(key, item, &help()));
            };
            match check(text, &items) {
                Ok(item) => items.push(item),
                Err(allowed) => {
                    let message = format!("{}: {key} has {text:?}", self.title);
                    let help = format!("each item must be {allowed}");
                    self.mistakes.record(mistake(self.text, item.span(), message, &help));
                }
            }
        }
        Some(items)
    }

    /// Returns the boolean under `key`.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        let value = self.table.get(key)?;
        value.get_ref().as_bool().or_else(|| {
            let help = format!("{key} must be true or false, without quotes");
            self.record(self.wrong_kind(key, value, &help))
        })
    }

    /// Records that the value under `key`, valid by itself, conflicts with other values.
    pub(crate) fn refuse(&self, key: &str, message: &str, help: &str) {
        let span = self.table.get(key).map_or(self.span.clone(), Spanned::span);
        self.mistakes.record(mistake(self.text, span, format!("{}: {message}", self.title), help));
    }

    /// Records a mistake and returns `None` in place of a value.
    fn record<T>(&self, mistake: Mistake) -> Option<T> {
        self.mistakes.record(mistake);
        None
    }

    fn wrong_kind(&self, key: &str, value: &Spanned<DeValue<'_>>, help: &str) -> Mistake {
        let given = self.text.get(value.span()).unwrap_or_default();
        let given: String = given.chars().take(40).take_while(|&c| c != '\n').collect();
        let kind = value.get_ref().type_str();
        mistake(self.text, value.span(), format!("{}: {key} is {given}, of type {kind}", self.title), help)
    }
}

/// Returns `text` as one of `allowed`; the error lists them.
pub(crate) fn one_of(text: &str, allowed: &[&'static str]) -> Result<&'static str, String> {
    allowed.iter().copied().find(|&name| name == text).ok_or_else(|| {
        let mut help = String::from("one of ");
        for (index, name) in allowed.iter().enumerate() {
            let _ = write!(help, "{}{name:?}", if index > 0 { ", " } else { "" });
        }
        match closest(text, allowed) {
            Some(name) => format!("{help}; the nearest is {name:?}"),
            None => help,
        }
    })
}

fn suggestion(given: &str, known: &[&'static str]) -> String {
    closest(given, known).map(|name| format!("the nearest is {name}; ")).unwrap_or_default()
}

/// Returns the known name most similar to the given one, if any is similar.
fn closest(given: &str, known: &[&'static str]) -> Option<&'static str> {
    if given.len() > 64 {
        return None;
    }
    let likeness = |name: &str| strsim::jaro_winkler(given, name);
    let best = known.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) > 0.75).then_some(best)
}

fn mistake(text: &str, span: Range<usize>, message: String, help: &str) -> Mistake {
    let mut at = span.start.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Mistake { line, column, message, help: help.to_owned() }
}
