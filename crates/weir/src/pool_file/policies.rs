//! The placement policies of a pool file: their choice and tuning.

use super::table::{Keys, one_of};
use super::{duration, size};
use std::collections::BTreeMap;
use weir_policy::placement::{ALL, Key, Settings, ValueKind, find_policy};

/// Checks the name of a policy.
///
/// # Errors
/// The error says which names are allowed.
pub(super) fn name(text: &str) -> Result<&'static str, String> {
    one_of(text, &names())
}

fn names() -> Vec<&'static str> {
    ALL.iter().map(|info| info.name).collect()
}

/// Reads the `[policy.NAME]` tables.
pub(super) fn tuning(root: &Keys<'_, '_>) -> BTreeMap<&'static str, Settings> {
    let keys_of = |name| find_policy(name).map_or(&[][..], |info| info.keys);
    let names_of = |name| keys_of(name).iter().map(|key| key.name).collect();
    let mut tuning = BTreeMap::new();
    for (name, table) in root.tables_by_name("policy", &names(), names_of) {
        let mut settings = Settings::default();
        for key in keys_of(name) {
            if let Some(value) = read(&table, key) {
                settings.set(key, value);
            }
        }
        tuning.insert(name, settings);
    }
    tuning
}

/// Reads the `[volume.NAME]` tables: the policies of volumes that have their own.
pub(super) fn of_volumes(root: &Keys<'_, '_>) -> BTreeMap<String, &'static str> {
    let tables = root.tables_of("volume", super::name, &["policy"]);
    tables.into_iter().filter_map(|(volume, table)| Some((volume, table.required("policy", name)?))).collect()
}

/// Reads the value of a key and checks its range.
fn read(table: &Keys<'_, '_>, key: &Key) -> Option<f64> {
    match key.kind {
        ValueKind::Number { min: least, max: most } => table.number(key.name, |number| {
            if key.allows(number) { Ok(number) } else { Err(format!("a number from {least} to {most}")) }
        }),
        ValueKind::Count { min: least, max: most } => table.number(key.name, |number| {
            if key.allows(number) {
                Ok(number)
            } else {
                Err(format!("a whole number from {least} to {most}"))
            }
        }),
        ValueKind::Share => table.optional(key.name, share),
        ValueKind::Time => Some(table.optional(key.name, duration)?.as_secs_f64()),
        ValueKind::Size => Some(table.optional(key.name, size)?.0 as f64),
        ValueKind::Flag => Some(f64::from(u8::from(table.flag(key.name)?))),
        ValueKind::Choice(words) => table.optional(key.name, |text| {
            let word = one_of(text, words)?;
            Ok(words.iter().take_while(|w| **w != word).count() as f64)
        }),
    }
}

/// Parses a share such as `10%` or `0.003%`.
fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
    match number {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("a percentage from \"0%\" to \"100%\"".into()),
    }
}

#[cfg(test)]
mod tests {
    use crate::pool_file::parse;
    use weir_policy::placement::find_policy;

    fn file(sections: &str) -> Result<super::BTreeMap<&'static str, super::Settings>, String> {
        let device = "[[device]]\nname = \"a\"\npath = \"a.img\"\n";
        match parse(&format!("[pool]\nname = \"home\"\n{sections}\n{device}")) {
            Ok(file) => Ok(file.tuning),
            Err(mistakes) => Err(mistakes.to_string()),
        }
    }

    #[test]
    fn policies_are_tuned_by_their_keys() {
        assert_eq!(file(""), Ok(super::BTreeMap::new()));
        let tuning = file(
            "[policy.asymmetry]\ndelta = 0.5\nminimum = 8\nmemory = \"0.01%\"\nlarge_stay = true\n\
             allocation = \"slow-first\"\n[policy.wardrop]\nround = \"500ms\"\n",
        );
        let tuning = tuning.expect("it is good");
        let value = |policy: &str, key: &str| {
            let key = find_policy(policy).and_then(|info| info.keys.iter().find(|k| k.name == key));
            tuning[policy].get(key.expect("a key"))
        };
        let asymmetry = ["delta", "minimum", "memory", "large_stay", "allocation", "tokens"];
        assert_eq!(asymmetry.map(|key| value("asymmetry", key)), [0.5, 8.0, 0.0001, 1.0, 2.0, 16.0]);
        assert_eq!(["round", "beta"].map(|key| value("wardrop", key)), [0.5, 100.0]);
    }

    #[test]
    fn volumes_may_have_their_own_policy() {
        let of = |sections: &str| {
            let device = "[[device]]\nname = \"a\"\npath = \"a.img\"\n";
            let file = parse(&format!("[pool]\nname = \"home\"\n{sections}\n{device}"));
            file.map(|file| file.volumes.into_iter().collect::<Vec<_>>())
        };
        let two = "[volume.mail]\npolicy = \"hystor\"\n[volume.\"web.1\"]\npolicy = \"stripe\"\n";
        assert_eq!(of(two), Ok(vec![("mail".into(), "hystor"), ("web.1".into(), "stripe")]));
        let says = |sections: &str, parts: &[&str]| {
            let said = of(sections).expect_err("a mistake").to_string();
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        };
        says("[volume.mail]\n", &["[volume.mail] has no policy"]);
        says("[volume.mail]\npolicy = \"histor\"\n", &["policy is \"histor\"", "hystor"]);
        says("[volume.mail]\ncopies = 2\n", &["[volume.mail] has no key \"copies\""]);
        says("[volume.\"a b\"]\npolicy = \"stripe\"\n", &["[volume] has \"a b\"", "A-Z a-z"]);
        says("volume = 1\n", &["volume"]);
    }

    #[test]
    fn mistakes_list_the_alternatives() {
        let says = |sections: &str, parts: &[&str]| {
            let said = file(sections).expect_err("a mistake");
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        };
        says("[policy.wardrob]\n", &["[policy] has no key \"wardrob\"", "the nearest is wardrop"]);
        says("[policy.wardrop]\nalfa = 1\n", &["[policy.wardrop] has no key \"alfa\"", "alpha", "beta"]);
        says("[policy.stripe]\nwidth = 1\n", &["[policy.stripe] has no key \"width\"", "it has no keys"]);
        says("[policy.wardrop]\nalpha = \"1\"\n", &["type string", "a number from 0 to 1000"]);
        says("[policy.wardrop]\nalpha = -1\n", &["alpha is -1", "a number from 0 to 1000"]);
        says("[policy.wardrop]\nfloor = 1\n", &["floor is 1", "in quotes"]);
        says("[policy.wardrop]\nfloor = \"101%\"\n", &["a percentage"]);
        says("[policy.hystor]\nbuffer_copies = 3\n", &["buffer_copies is 3", "a whole number from 1 to 2"]);
        says(
            "[policy.hystor]\nbuffer_copies = 1.5\n",
            &["buffer_copies is 1.5", "a whole number from 1 to 2"],
        );
        says("[policy.asymmetry]\nallocation = \"fast\"\n", &["fast-first"]);
        says("[policy]\nwardrop = 1\n", &["wardrop is 1, of type integer", "[policy.NAME]"]);
        says("policy = 1\n", &["policy"]);
    }
}
