//! `weir volume` creates, lists, changes and removes thin volumes.

mod change;

pub(super) use change::{create, remove};

use super::show;
use crate::args::{Common, name, policies, size};
use crate::failure::Failure;
use crate::status::{POOLS_POLICY, VolumePart, Volumes, volumes_table};
use crate::{output, pool};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Subcommand};
use weir_model::Bytes;
use weir_serve::control::Hardening;

const CREATE_EXAMPLES: &str = "Examples:
  weir volume create disk --size 100GiB
  weir volume create mail --size 2TB --hardening write";

const SET_USAGE: &str = "weir volume set <NAME> --hardening <HARDENING>
       weir volume set <NAME> --policy <NAME>
       weir volume set <NAME> --hardening <HARDENING> --policy <NAME>";

const SET_EXAMPLES: &str = "Examples:
  weir volume set disk --hardening write
  weir volume set disk --policy stripe
  weir volume set disk --policy pool";

/// `weir volume ...`
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Create a thin volume, which takes space as it is written
    #[command(after_help = CREATE_EXAMPLES)]
    Create {
        /// Name of the volume, and of its NBD export
        #[arg(value_parser = name)]
        name: String,
        /// Set the size that clients see: 100GiB or 100G, or decimal, 2TB; it may exceed the pool
        #[arg(long, value_parser = size, allow_hyphen_values = true)]
        size: Bytes,
        /// Make the map's part of a write durable with the next FLUSH, or before the write is acknowledged
        #[arg(long, value_parser = hardening(), default_value = "flush")]
        hardening: Hardening,
        /// Keep N copies of each block, each on another device; 2 survive the loss of either device
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2), default_value = "1")]
        copies: u8,
    },
    /// Change a volume's hardening for good, or its policy until the server ends
    #[command(override_usage = SET_USAGE, after_help = SET_EXAMPLES)]
    #[command(group(ArgGroup::new("change").required(true).multiple(true).args(["hardening", "policy"])))]
    Set {
        /// Name of the volume
        #[arg(value_parser = name)]
        name: String,
        /// Make the map's part of a write durable with the next FLUSH, or before the write is acknowledged
        #[arg(long, value_parser = hardening())]
        hardening: Option<Hardening>,
        /// Place the volume's data by this policy until the server ends; `pool`: the pool's policy
        #[arg(long, value_name = "NAME", value_parser = own_policies())]
        policy: Option<String>,
    },
    /// List the volumes
    List,
    /// Remove a volume and release its space
    #[command(visible_aliases = ["delete", "rm"])]
    Remove {
        /// Name of the volume
        #[arg(value_parser = name)]
        name: String,
    },
}

/// Runs the command.
///
/// # Errors
/// Fails if the command cannot be carried out.
pub(crate) fn run(command: VolumeCommand, common: &Common) -> Result<(), Failure> {
    let pool_file = &common.pool;
    match command {
        VolumeCommand::Create { name, size, hardening, copies } => {
            let volumes = create(pool_file, &name, size, hardening, copies)?;
            show(common, &Volumes { volumes: &volumes }, |width| {
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
    show(common, &Volumes { volumes }, |width| volumes_table(volumes, width));
}

/// Returns the policies that a volume may have: its own policy, or the pool's.
fn own_policies() -> PossibleValuesParser {
    PossibleValuesParser::new(policies().into_iter().chain([POOLS_POLICY]))
}

fn hardening() -> impl TypedValueParser<Value = Hardening> {
    PossibleValuesParser::new(["flush", "write"])
        .map(|text| if text == "write" { Hardening::Write } else { Hardening::Flush })
}
