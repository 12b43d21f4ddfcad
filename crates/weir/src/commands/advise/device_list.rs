//! Reads lists of devices on sale: the list that comes with weir, or the user's own.

use crate::failure::Failure;
use crate::pool_file::table::{Keys, MistakeLog, document};
use crate::pool_file::{self, Mistake, Mistakes};
use std::path::Path;
use weir_model::Bytes;
use weir_sim::advise::{Cents, Offer};

/// The list that comes with weir.
pub(super) const BUILT_IN_LIST: &str = include_str!("devices.toml");

/// A list of devices on sale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::commands) struct DeviceList {
    /// Currency of the prices.
    pub(in crate::commands) currency: String,
    /// The devices, at least one, with distinct names.
    pub(in crate::commands) offers: Vec<Offer>,
}

const KEYS: &[&str] = &["name", "about", "size", "price", "endurance", "model", "sources"];
/// Maximum number of devices on a list.
const DEVICES_MAX: usize = 500;
/// Lowest and highest price of a device.
pub(super) const PRICE_MIN: f64 = 0.01;
pub(super) const PRICE_MAX: f64 = 1e9;

/// Reads the list in the file, or the list that comes with weir.
///
/// # Errors
/// Fails if the file cannot be read or has a mistake. The message names each mistake with its line.
pub(in crate::commands) fn read(path: Option<&Path>) -> Result<DeviceList, Failure> {
    let (text, name) = match path {
        None => (BUILT_IN_LIST.to_owned(), "the list of devices".into()),
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Failure::usage(
                    format!("there is no list of devices {}", path.display()),
                    format!("write one to edit: weir advise --print-devices > {}", path.display()),
                ),
                _ => Failure::os("read", path, &error),
            })?;
            (text, path.display().to_string())
        }
    };
    parse(&text).map_err(|mistakes| mistakes.of_file(&name))
}

/// Parses the text of a list.
///
/// # Errors
/// Returns all mistakes.
pub(super) fn parse(text: &str) -> Result<DeviceList, Mistakes> {
    let document = document(text)?;
    let found = MistakeLog::default();
    let keys = &["currency", "device"];
    let root = Keys::new(text, "the list", document.get_ref(), document.span(), keys, &found);
    let currency = root.required("currency", |text| match text.trim() {
        currency if currency.is_empty() || currency.contains(char::is_control) => {
            Err("what prices are in, on one line, such as \"USD\"".into())
        }
        currency => Ok(currency.to_owned()),
    });
    let mut offers: Vec<Offer> = Vec::new();
    if let Some(devices) = root.tables("device", KEYS) {
        offers.extend(devices.iter().scan(Vec::new(), |names, keys| Some(offer(keys, names))).flatten());
        if devices.is_empty() || devices.len() > DEVICES_MAX {
            found.record(Mistake {
                line: 0,
                column: 0,
                message: format!("the list has {} devices", devices.len()),
                help: format!(
                    "give it 1 to {DEVICES_MAX} [[device]] sections, as the list has them that weir advise \
                     --print-devices prints"
                ),
            });
        }
    }
    found.into_result(currency.map(|currency| DeviceList { currency, offers }))
}

/// Parses one offer. `names` holds the names of the offers before it, and gets the name of this one.
fn offer(keys: &Keys<'_, '_>, names: &mut Vec<String>) -> Option<Offer> {
    let name = keys.required("name", |text| {
        let name = pool_file::name(text)?;
        match names.contains(&name) {
            true => Err("a name no other device of the list has".into()),
            false => Ok(name),
        }
    });
    names.extend(name.clone());
    let size = keys.required("size", pool_file::size);
    let price = keys.number("price", |price| match price {
        price if (PRICE_MIN..=PRICE_MAX).contains(&price) => Ok(price),
        _ => Err("a number from 0.01 up, of the list's currency".into()),
    });
    if !keys.has("price") {
        let name = name.as_deref().unwrap_or("it");
        keys.refuse("name", &format!("{name} has no price"), "add a line: price = 100");
    }
    let endurance = keys.optional("endurance", |text| {
        pool_file::size(text)
            .map_err(|_| "the bytes that may be written to it, with their unit, such as \"600TB\"".into())
    });
    let model = keys.required("model", pool_file::pace);
    let about = keys.optional("about", |text| Ok(text.to_owned()));
    let name = name?;
    let about = about.unwrap_or_else(|| name.clone());
    Some(Offer { name, about, size: size?, price: Cents::of(price?), endurance, model: model?.to_owned() })
}

/// Formats a size in decimal units, as drives are sold.
pub(in crate::commands) fn decimal_size(size: Bytes) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1, "B")];
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| size.0 >= *unit).unwrap_or((1, "B"));
    let number = format!("{:.2}", size.0 as f64 / unit as f64);
    format!("{} {name}", number.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_list_is_valid_and_names_its_sources() {
        let list = parse(BUILT_IN_LIST).expect("no mistake");
        assert!(list.offers.len() > 10 && list.currency == "USD");
        let table: toml::Table = BUILT_IN_LIST.parse().expect("TOML");
        for device in table["device"].as_array().expect("devices") {
            let sources = device["sources"].as_table().expect("sources");
            for key in ["size", "price", "endurance", "model"] {
                let source = sources.get(key).and_then(toml::Value::as_str);
                assert!(device.get(key).is_none() || source.is_some(), "{key} of {device}");
                assert!(
                    source.is_none_or(|source| ["published", "recalled", "derived"]
                        .iter()
                        .any(|kind| source.starts_with(kind))),
                    "{source:?}"
                );
            }
        }
        let disks = list.offers.iter().filter(|offer| offer.endurance.is_none());
        assert!(disks.clone().count() > 0 && disks.clone().all(|offer| offer.model.starts_with("hdd")));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let list = |change: &str, to: &str| {
            let good = "currency = \"EUR\"\n[[device]]\nname = \"a\"\nsize = \"1TB\"\nprice = 99.5\n\
                        endurance = \"600TB\"\nmodel = \"ssd-sata\"\n";
            assert!(good.contains(change), "{change}");
            parse(&good.replace(change, to))
        };
        let good = list("a", "a").expect("good");
        assert_eq!((good.offers[0].price, &*good.offers[0].about), (Cents(9950), "a"));
        for (change, to, line, part) in [
            ("1TB", "1", 4, "size must be a size with its unit"),
            ("99.5", "-1", 5, "price must be a number from 0.01 up"),
            ("99.5", "0.001", 5, "price must be a number from 0.01 up"),
            ("EUR", "E\\nUR", 1, "on one line"),
            ("99.5", "\"99\"", 5, "without quotes"),
            ("price = 99.5", "", 3, "price = 100"),
            ("600TB", "forever", 6, "such as \"600TB\""),
            ("ssd-sata", "ssd-satan", 7, "the nearest is \"ssd-sata\""),
            ("endurance", "endurence", 6, "the nearest is endurance"),
            ("currency = \"EUR\"", "", 1, "currency = "),
            ("[[device]]", "[device]", 2, "[[device]] section"),
        ] {
            let mistakes = list(change, to).expect_err(to);
            assert_eq!(mistakes.0[0].line, line, "{to}: {mistakes}");
            assert!(mistakes.to_string().contains(part), "{to}: {mistakes}");
        }
        assert!(parse("currency = \"EUR\"\n").expect_err("empty").to_string().contains("0 devices"));
    }

    #[test]
    fn sizes_have_decimal_units() {
        let sold: Vec<_> = [250_000_000_000, 15_360_000_000_000, 1_920_000_000_000, 7]
            .into_iter()
            .map(|n| decimal_size(Bytes(n)))
            .collect();
        assert_eq!(sold, ["250 GB", "15.36 TB", "1.92 TB", "7 B"]);
    }
}
