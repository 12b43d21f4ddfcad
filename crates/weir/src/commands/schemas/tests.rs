//! Tests that the schemas in the documentation match the types, and that they describe every field of every
//! command.

use super::*;
use crate::cli::Cli;
use clap::CommandFactory as _;
use std::collections::BTreeSet;
use std::path::Path;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/schemas");

#[test]
fn schema_files_match_the_types() {
    let help = "run: cargo run -p weir -- generate-schemas docs/reference/schemas";
    for document in DOCUMENTS {
        let path = Path::new(FOLDER).join(document.name).with_extension("json");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("no {}; {help}", path.display()));
        let file: Value = serde_json::from_str(&text).expect("JSON");
        assert!(file == document.schema(), "{} is not up to date; {help}", path.display());
    }
    let files = std::fs::read_dir(FOLDER).expect("the folder").flatten().count();
    assert_eq!(files, DOCUMENTS.len(), "{FOLDER} has a file of no document");
}

#[test]
fn every_command_has_a_document() {
    fn commands(of: &clap::Command, path: &str, all: &mut BTreeSet<String>) {
        for command in
            of.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
        {
            let path = format!("{path} {}", command.get_name()).trim().to_owned();
            match command.has_subcommands() {
                true => commands(command, &path, all),
                false => drop(all.insert(path)),
            }
        }
    }
    let mut all = BTreeSet::new();
    commands(&Cli::command(), "", &mut all);
    let known = DOCUMENTS.iter().flat_map(|document| document.commands);
    assert_eq!(all, known.map(|command| (*command).to_owned()).collect());
}

#[test]
fn fields_are_described_and_required() {
    fn check(schema: &Value, name: &str) {
        if let Some(fields) = schema.get("properties").and_then(Value::as_object) {
            // A variant's schema holds its description beside its only field.
            let of_variant = schema.get("description").filter(|_| fields.len() == 1);
            for (field, schema) in fields {
                let said = schema.get("description").or(of_variant).and_then(Value::as_str);
                assert!(said.is_some_and(|said| !said.contains("[`")), "{name}: {field}: {said:?}");
            }
            let required = schema.get("required").and_then(Value::as_array).map_or(0, Vec::len);
            let absent = |field: &Value| {
                field["description"].as_str().is_some_and(|said| said.to_lowercase().contains("absent if"))
            };
            let optional = fields.values().filter(|field| absent(field)).count();
            assert_eq!(required + optional, fields.len(), "{name}: {fields:?}");
        }
        match schema {
            Value::Object(parts) => parts.values().for_each(|part| check(part, name)),
            Value::Array(parts) => parts.iter().for_each(|part| check(part, name)),
            _ => {}
        }
    }
    DOCUMENTS.iter().for_each(|document| check(&document.schema(), document.name));
}

/// Validates the demo's document. Other tests validate the other documents when the program prints them.
#[test]
fn demo_document_matches_its_schema() {
    let schema = for_command("demo").expect("a document").schema();
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let document = demo::sample_document();
    let errors: Vec<_> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
}
