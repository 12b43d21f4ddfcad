//! `weir explain` shows where a block of a volume is, since when, and why.

mod report;

use super::show;
use crate::args::{Accept, Common, name};
use crate::devices::PoolDescription;
use crate::failure::Failure;
use crate::pool::{self, CONTROL, IdlePool};
use crate::pool_file;
use clap::Args;
use std::path::Path;
use weir_model::{Bytes, VolumeOffset};
use weir_serve::control::{Answer, Request};
use weir_serve::explain::Explanation;

const EXAMPLES: &str = "Examples:
  weir explain disk 0
  weir explain disk 1.5GiB --json";

/// `weir explain ...`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// Name of the volume
    #[arg(value_parser = name)]
    pub volume: String,
    /// Offset of a byte of the block in the volume: 0, 64KiB, 1.5GiB, 12345B
    #[arg(value_parser = offset)]
    pub offset: Bytes,
}

/// Runs the command.
///
/// # Errors
/// Fails if there is no such volume, if the offset is past its end, or if the pool cannot be opened.
pub(crate) fn run(args: &ExplainArgs, common: &Common) -> Result<(), Failure> {
    let explained = explain(&common.pool, &args.volume, args.offset)?;
    show(common, &explained, |width| report::human(&explained, width));
    Ok(())
}

/// Returns the location of the block that holds this byte of a volume, since when it is there, and why.
///
/// # Errors
/// Fails if there is no such volume, if the offset is past its end, or if the pool cannot be opened.
fn explain(pool_file: &Path, volume: &str, at: Bytes) -> Result<Explanation, Failure> {
    let described = PoolDescription::read(pool_file)?;
    let request = Request::Explain { volume: volume.to_owned(), offset_bytes: at.get() };
    pool::retry_until_unlocked(&described, |pause| {
        match pool::ask(&described.sibling_path(CONTROL), &request)? {
            Some(Answer::Explained(explained)) => Ok(*explained),
            Some(answer) => Err(pool::unexpected_answer_failure(&answer)),
            None => {
                let idle = IdlePool::open(&described, &Accept::default(), pause)?;
                let explained = idle.explain(volume, VolumeOffset(at.get()));
                idle.close();
                explained.map_err(|error| Failure::from_message(error.kind(), &error.to_string()))
            }
        }
    })
}

fn offset(text: &str) -> Result<Bytes, String> {
    let zero = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()) == "0";
    let bytes = if zero { Ok(Bytes(0)) } else { pool_file::size(text) };
    bytes.map_err(|_| "write 0, or an offset with its unit, such as 64KiB, 1.5GiB or 12345B".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_have_units_but_for_zero() {
        assert_eq!((offset("0"), offset("0B")), (Ok(Bytes(0)), Ok(Bytes(0))));
        assert_eq!((offset("12345B"), offset("1.5KiB")), (Ok(Bytes(12345)), Ok(Bytes(1536))));
        for bad in ["", "4096", "KiB", "-4KiB", "4XB"] {
            assert!(offset(bad).is_err(), "{bad}");
        }
    }
}
