use super::*;

#[test]
fn every_file_is_a_drive() {
    for (name, text) in FILES {
        assert!(read(text).is_ok(), "{name}: {:?}", read(text).err());
        assert!(drive(name).is_some_and(|drive| !drive.about.is_empty()));
    }
    assert_eq!(all().count(), FILES.len());
    assert!(drive("no such drive").is_none());
}

/// Every value has a source, every source is of a known kind, and every source belongs to an existing value.
#[test]
fn every_value_has_its_source() {
    for (name, text) in FILES {
        let file: toml::Table = toml::from_str(text).unwrap();
        let sources = file["sources"].as_table().unwrap();
        for key in file.keys().filter(|key| !["about", "kind", "sources"].contains(&key.as_str())) {
            let source = sources.get(key).unwrap_or_else(|| panic!("{name}: {key} has no source"));
            let source = source.as_str().unwrap();
            let sorts = ["measured: ", "published: ", "recalled: ", "derived: ", "fitted: "];
            assert!(sorts.iter().any(|sort| source.starts_with(sort)), "{name}, {key}: {source}");
        }
        assert!(sources.keys().all(|key| file.contains_key(key)), "{name}");
    }
}
