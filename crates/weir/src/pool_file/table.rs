//! Reading TOML tables key by key, so that every mistake can say where it is and what to write.

use super::Mistake;
use std::fmt::Write as _;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The document's root table.
pub(crate) fn document(text: &str) -> Result<Spanned<DeTable<'_>>, Mistake> {
    DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        mistake(
            text,
            span,
            format!("not TOML: {}", error.message()),
            "write it as in docs/guide.md, \"The pool file\"",
        )
    })
}

/// One table of the file: takes keys out of it, refusing those it does not know.
pub(crate) struct Keys<'t, 'i> {
    text: &'t str,
    /// What the table is called in messages: `[pool]`, `[[device]] number 2`.
    title: String,
    table: &'t DeTable<'i>,
    span: Range<usize>,
}

impl<'t, 'i> Keys<'t, 'i> {
    /// Refuses a table with a key that is not among `known`.
    pub(crate) fn new(
        text: &'t str,
        title: impl Into<String>,
        table: &'t DeTable<'i>,
        span: Range<usize>,
        known: &[&'static str],
    ) -> Result<Self, Mistake> {
        let title = title.into();
        let unknown = table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        if let Some(key) = unknown.min_by_key(|key| key.span().start) {
            let given = key.get_ref().as_ref();
            let message = format!("{title} has no key {given:?}");
            let help = match known {
                [] => "it has no keys".to_owned(),
                _ => format!("{}its keys are {}", suggestion(given, known), known.join(", ")),
            };
            return Err(mistake(text, key.span(), message, &help));
        }
        Ok(Self { text, title, table, span })
    }

    /// The table under `key`, which must be there.
    pub(crate) fn table(&self, key: &str, known: &[&'static str]) -> Result<Self, Mistake> {
        let help =
            format!("begin it with a [{key}] section that has a name:\n\n  [{key}]\n  name = \"home\"");
        let Some(value) = self.table.get(key) else {
            return Err(mistake(self.text, 0..0, format!("{} has no [{key}] section", self.title), &help));
        };
        let Some(table) = value.get_ref().as_table() else {
            return Err(self.wrong_kind(key, value, &help));
        };
        Self::new(self.text, format!("[{key}]"), table, value.span(), known)
    }

    /// The tables in the table under `key`: of each its name and itself, its keys being those `known`
    /// gives for the name. Both may be absent.
    pub(crate) fn tables_by_name(
        &self,
        key: &str,
        names: &[&'static str],
        known: impl Fn(&'static str) -> Vec<&'static str>,
    ) -> Result<Vec<(&'static str, Self)>, Mistake> {
        let help = format!("write a [{key}.NAME] section, NAME one of {}", names.join(", "));
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let Some(table) = value.get_ref().as_table() else {
            return Err(self.wrong_kind(key, value, &help));
        };
        let outer = Self::new(self.text, format!("[{key}]"), table, value.span(), names)?;
        let given = names.iter().filter_map(|name| table.get(*name).map(|value| (*name, value)));
        let inner = given.map(|(name, value)| {
            let Some(table) = value.get_ref().as_table() else {
                return Err(outer.wrong_kind(name, value, &help));
            };
            let keys = Self::new(self.text, format!("[{key}.{name}]"), table, value.span(), &known(name))?;
            Ok((name, keys))
        });
        inner.collect()
    }

    /// The tables in the table under `key`, whatever their names, as far as `check` finds these good: of each
    /// its name and itself, its keys being those `known`. May be absent.
    pub(crate) fn tables_of(
        &self,
        key: &str,
        check: impl Fn(&str) -> Result<String, String>,
        known: &[&'static str],
    ) -> Result<Vec<(String, Self)>, Mistake> {
        let help = format!("write a [{key}.NAME] section");
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let Some(table) = value.get_ref().as_table() else {
            return Err(self.wrong_kind(key, value, &help));
        };
        let mut given: Vec<_> = table.iter().collect();
        given.sort_by_key(|(name, _)| name.span().start);
        let inner = given.into_iter().map(|(name, value)| {
            let text = name.get_ref().as_ref();
            let name = check(text).map_err(|allowed| {
                let message = format!("[{key}] has {text:?}");
                mistake(self.text, name.span(), message, &format!("a {key}'s name must be {allowed}"))
            })?;
            let Some(table) = value.get_ref().as_table() else {
                return Err(self.wrong_kind(text, value, &help));
            };
            let keys = Self::new(self.text, format!("[{key}.{name}]"), table, value.span(), known)?;
            Ok((name, keys))
        });
        inner.collect()
    }

    /// The number under `key`, checked by `check`, which on refusal says what is allowed.
    pub(crate) fn number(
        &self,
        key: &str,
        check: impl Fn(f64) -> Result<f64, String>,
    ) -> Result<Option<f64>, Mistake> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let allowed = || check(f64::NAN).err().unwrap_or_else(|| "a number".into());
        let number = value.get_ref().as_float().map(|f| f.as_str().parse()).or_else(|| {
            let integer = value.get_ref().as_integer()?;
            Some(i64::from_str_radix(integer.as_str(), integer.radix()).map_or("?".parse(), |i| Ok(i as f64)))
        });
        let Some(Ok(number)) = number else {
            return Err(self.wrong_kind(key, value, &format!("{key} must be {}, without quotes", allowed())));
        };
        check(number).map(Some).map_err(|allowed| {
            let message = format!("{}: {key} is {number}", self.title);
            mistake(self.text, value.span(), message, &format!("{key} must be {allowed}"))
        })
    }

    /// The array of tables under `key`, each read by `read`, which is also given those before it.
    pub(crate) fn tables<T>(
        &self,
        key: &str,
        known: &[&'static str],
        read: impl Fn(&Keys<'_, '_>, &[T]) -> Result<T, Mistake>,
    ) -> Result<Vec<T>, Mistake> {
        let help = format!("write one [[{key}]] section for each {key}");
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let Some(array) = value.get_ref().as_array() else {
            return Err(self.wrong_kind(key, value, &help));
        };
        let mut items = Vec::with_capacity(array.len());
        for (index, item) in array.iter().enumerate() {
            let Some(table) = item.get_ref().as_table() else {
                return Err(self.wrong_kind(key, item, &help));
            };
            let title = format!("[[{key}]] number {}", index + 1);
            let keys = Keys::new(self.text, title, table, item.span(), known)?;
            let item = read(&keys, &items)?;
            items.push(item);
        }
        Ok(items)
    }

    /// The text under `key`, checked by `check`, which on refusal says what is allowed.
    pub(crate) fn optional<T>(
        &self,
        key: &str,
        check: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Mistake> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let Some(text) = value.get_ref().as_str() else {
            let allowed = check("").err().unwrap_or_else(|| "text".into());
            return Err(self.wrong_kind(key, value, &format!("{key} must be {allowed}, in quotes")));
        };
        check(text).map(Some).map_err(|allowed| {
            let message = format!("{}: {key} is {text:?}", self.title);
            mistake(self.text, value.span(), message, &format!("{key} must be {allowed}"))
        })
    }

    /// As [`Self::optional`], but the key must be there.
    pub(crate) fn required<T>(
        &self,
        key: &str,
        check: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Mistake> {
        self.optional(key, check)?.ok_or_else(|| {
            let message = format!("{} has no {key}", self.title);
            mistake(self.text, self.span.clone(), message, &format!("add a line: {key} = \"...\""))
        })
    }

    /// The texts in the array under `key`, each checked by `check`, which is also given those before.
    pub(crate) fn list<T>(
        &self,
        key: &str,
        check: impl Fn(&str, &[T]) -> Result<T, String>,
    ) -> Result<Option<Vec<T>>, Mistake> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let allowed = || check("", &[]).err().unwrap_or_else(|| "text".into());
        let help = || format!("{key} must be a list in brackets, each item {}, in quotes", allowed());
        let Some(array) = value.get_ref().as_array() else {
            return Err(self.wrong_kind(key, value, &help()));
        };
        let mut items = Vec::with_capacity(array.len());
        for item in array.iter() {
            let Some(text) = item.get_ref().as_str() else {
                return Err(self.wrong_kind(key, item, &help()));
            };
            let item = check(text, &items).map_err(|allowed| {
                let message = format!("{}: {key} has {text:?}", self.title);
                mistake(self.text, item.span(), message, &format!("each item must be {allowed}"))
            })?;
            items.push(item);
        }
        Ok(Some(items))
    }

    /// The `true` or `false` under `key`.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, Mistake> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        match value.get_ref().as_bool() {
            Some(flag) => Ok(Some(flag)),
            None => Err(self.wrong_kind(key, value, &format!("{key} must be true or false, without quotes"))),
        }
    }

    /// Why the value under `key`, good by itself, does not go with the rest.
    pub(crate) fn refuse(&self, key: &str, message: &str, help: &str) -> Mistake {
        let span = self.table.get(key).map_or(self.span.clone(), Spanned::span);
        mistake(self.text, span, format!("{}: {message}", self.title), help)
    }

    fn wrong_kind(&self, key: &str, value: &Spanned<DeValue<'_>>, help: &str) -> Mistake {
        let given = self.text.get(value.span()).unwrap_or_default();
        let given: String = given.chars().take(40).take_while(|&c| c != '\n').collect();
        let kind = value.get_ref().type_str();
        mistake(self.text, value.span(), format!("{}: {key} is {given}, of type {kind}", self.title), help)
    }
}

/// `text` as one of `allowed`, or a refusal that lists them.
pub(crate) fn one_of(text: &str, allowed: &[&'static str]) -> Result<&'static str, String> {
    allowed.iter().copied().find(|&name| name == text).ok_or_else(|| {
        let mut help = String::from("one of ");
        for (index, name) in allowed.iter().enumerate() {
            let _ = write!(help, "{}{name:?}", if index > 0 { ", " } else { "" });
        }
        match closest(text, allowed) {
            Some(name) => format!("{help}; did you mean {name:?}?"),
            None => help,
        }
    })
}

fn suggestion(given: &str, known: &[&'static str]) -> String {
    closest(given, known).map(|name| format!("did you mean {name}? ")).unwrap_or_default()
}

/// The known name most like the given one, if any is like it.
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
