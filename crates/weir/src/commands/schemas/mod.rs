//! Generates the JSON Schemas of the documents that `--json` prints, from their types.

use super::{advise, demo, fs, pool, repro, serve, sim, trace};
use crate::failure::{Failure, FailureDocument};
use crate::status::{Status, Volumes};
use clap::Args;
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::Value;
use std::path::PathBuf;
use weir_serve::explain::Explanation;

/// `weir generate-schemas ...`
#[derive(Debug, Args)]
pub struct SchemasArgs {
    /// Folder to write the schemas to
    pub folder: PathBuf,
}

/// A document and the commands that print it.
#[derive(Debug)]
pub struct Document {
    /// Name of the schema's file, without `.json`.
    pub name: &'static str,
    /// The commands, without `weir`.
    pub commands: &'static [&'static str],
    schema: fn() -> Schema,
}

/// The documents of all commands.
pub const DOCUMENTS: &[Document] = &[
    document::<Status>("pool-status", &["pool create", "pool replace", "pool set", "pool status"]),
    document::<pool::check::CheckDocument>("pool-check", &["pool check"]),
    document::<pool::dump::DumpDocument<'_>>("pool-dump", &["pool dump", "pool restore"]),
    document::<Volumes<'_>>("volume-list", &["volume create", "volume list", "volume remove", "volume set"]),
    document::<Explanation>("explain", &["explain"]),
    document::<serve::ReadyDocument<'_>>("serve", &["serve"]),
    document::<weir_fs::report::Status>(
        "fs-status",
        &["fs create", "fs status", "fs add-tier", "fs move-tier", "fs remove-tier"],
    ),
    document::<fs::MountDocument>("fs-mount", &["fs mount"]),
    document::<fs::UnmountDocument>("fs-unmount", &["fs unmount"]),
    document::<fs::CheckDocument>("fs-check", &["fs check"]),
    document::<weir_fs::report::Explanation>("fs-explain", &["fs explain"]),
    document::<fs::MoveDocument>("fs-move", &["fs evict", "fs promote", "fs pin", "fs unpin"]),
    document::<weir_fs::report::Quota>("fs-quota", &["fs quota"]),
    document::<fs::RescueDocument>("fs-rescue", &["fs rescue"]),
    document::<demo::Report>("demo", &["demo"]),
    document::<sim::place::PlaceDocument<'_>>("sim-place", &["sim place"]),
    document::<sim::cache::CacheDocument<'_>>("sim-cache", &["sim cache"]),
    document::<sim::flash::FlashDocument<'_>>("sim-flash", &["sim flash"]),
    document::<sim::logs::LogsDocument<'_>>("sim-logs", &["sim logs"]),
    document::<sim::fs::FsDocument<'_>>("sim-fs", &["sim fs"]),
    document::<trace::Converted>("trace-convert", &["trace convert"]),
    document::<trace::Generated>("trace-generate", &["trace generate"]),
    document::<trace::Recorded>("trace-record", &["trace record"]),
    document::<weir_sim::analysis::TraceAnalysis>("trace-analyze", &["trace analyze"]),
    document::<trace::Plotted>("trace-plot", &["trace plot"]),
    document::<trace::FormatList>("trace-formats", &["trace formats"]),
    document::<advise::AdviceDocument<'_>>("advise", &["advise"]),
    document::<repro::ReproDocument<'_>>("repro", &["repro"]),
    ERROR,
];

/// The document of a command that fails.
pub const ERROR: Document = document::<FailureDocument<'_>>("error", &[]);

const fn document<T: JsonSchema>(name: &'static str, commands: &'static [&'static str]) -> Document {
    Document { name, commands, schema: schema_of::<T> }
}

/// Returns the document that a command prints; `None` if there is no such command.
pub fn for_command(command: &str) -> Option<&'static Document> {
    DOCUMENTS.iter().find(|document| document.commands.contains(&command))
}

impl Document {
    /// Returns the JSON Schema (2020-12) that the file holds.
    pub fn schema(&self) -> Value {
        (self.schema)().to_value()
    }

    fn text(&self) -> String {
        format!("{:#}\n", self.schema())
    }
}

/// Writes the schemas of all documents, each to its own file.
///
/// # Errors
/// Fails if a file cannot be written.
pub(crate) fn run(args: &SchemasArgs) -> Result<(), Failure> {
    DOCUMENTS.iter().try_for_each(|document| {
        let path = args.folder.join(document.name).with_extension("json");
        std::fs::write(&path, document.text()).map_err(|error| Failure::os("write", &path, &error))
    })
}

fn schema_of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize().with_transform(ClosedSchemas);
    settings.into_generator().into_root_schema_for::<T>()
}

/// Transforms a schema: forbids undescribed fields, removes defaults, which matter to readers of documents
/// only, and joins the lines of descriptions.
#[derive(Clone, Debug)]
struct ClosedSchemas;

impl Transform for ClosedSchemas {
    fn transform(&mut self, schema: &mut Schema) {
        schema.remove("default");
        if let Some(Value::String(text)) = schema.get_mut("description") {
            let paragraphs: Vec<_> = text.split("\n\n").map(|text| text.replace('\n', " ")).collect();
            *text = paragraphs.join("\n\n");
        }
        if schema.get("properties").is_some() && schema.get("additionalProperties").is_none() {
            schema.insert("additionalProperties".to_owned(), false.into());
        }
        transform_subschemas(self, schema);
    }
}

#[cfg(test)]
mod tests;
