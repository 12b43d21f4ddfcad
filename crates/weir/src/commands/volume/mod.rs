//! `weir volume`: thin volumes are made, listed, changed, removed.

mod change;

pub(super) use change::{create, remove};

use super::show;
use crate::args::{Common, name, policies, size};
use crate::failure::Failure;
use crate::status::{POOLS_POLICY, VolumePart, volumes_table};
use crate::{output, pool};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Subcommand};
use serde_json::json;
use weir_model::Bytes;
use weir_serve::control::Hardening;

/// `weir volume ...`
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a thin volume; it takes space as it is written
    Create {
        /// The volume's name; NBD clients ask for it as the export name
        #[arg(value_parser = name)]
        name: String,
        /// The size clients see, with its unit: 100GiB or 100G, or decimal, 2TB; may exceed the devices
        #[arg(long, value_parser = size, allow_hyphen_values = true)]
        size: Bytes,
        /// When the map's part of a write is durable: with the next flush, as on a disk with a
        /// cache, or when the write is acknowledged
        #[arg(long, value_parser = hardening(), default_value = "flush")]
        hardening: Hardening,
        /// Copies kept of every block, each on another device: 2 survive the loss of either
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2), default_value = "1")]
        copies: u8,
    },
    /// Change a volume: its hardening for good, its policy until the server ends; at least one of them
    #[command(group(ArgGroup::new("change").required(true).multiple(true).args(["hardening", "policy"])))]
    Set {
        /// The volume's name
        #[arg(value_parser = name)]
        name: String,
        /// When the map's part of a write is durable, from now on: flush or write, as for create
        #[arg(long, value_parser = hardening())]
        hardening: Option<Hardening>,
        /// The placement policy that the running server is to use for this volume until it ends; `pool` for
        /// the pool's
        #[arg(long, value_name = "NAME", value_parser = own_policies())]
        policy: Option<String>,
    },
    /// List the volumes
    List,
    /// Remove a volume and give its space back
    Remove {
        /// The volume's name
        #[arg(value_parser = name)]
        name: String,
    },
}

/// Carries out the command.
///
/// # Errors
/// If it cannot be done.
pub(crate) fn run(command: VolumeCommand, common: &Common) -> Result<(), Failure> {
    let pool_file = &common.pool;
    match command {
        VolumeCommand::Create { name, size, hardening, copies } => {
            let volumes = create(pool_file, &name, size, hardening, copies)?;
            show(common, &json!({ "volumes": volumes }), |width| {
                let made = format!("volume {name} has {}", output::exact(size));
                format!("{made}\n\n{}", volumes_table(&volumes, width))
            });
        }
        VolumeCommand::Set { name, hardening, policy } => {
            show_volumes(common, &change::set(pool_file, &name, hardening, policy.as_deref())?);
        }
        VolumeCommand::List => show_volumes(common, &pool::status(pool_file)?.volumes),
        VolumeCommand::Remove { name } => show_volumes(common, &change::remove(pool_file, &name)?),
    }
    Ok(())
}

fn show_volumes(common: &Common, volumes: &[VolumePart]) {
    show(common, &json!({ "volumes": volumes }), |width| volumes_table(volumes, width));
}

/// The policies that a volume may have: one of its own, or the pool's.
fn own_policies() -> PossibleValuesParser {
    PossibleValuesParser::new(policies().into_iter().chain([POOLS_POLICY]))
}

fn hardening() -> impl TypedValueParser<Value = Hardening> {
    PossibleValuesParser::new(["flush", "write"])
        .map(|text| if text == "write" { Hardening::Write } else { Hardening::Flush })
}
