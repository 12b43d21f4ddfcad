//! `weir pool set` changes how a served pool runs until its server ends.

use crate::devices::PoolDescription;
use crate::failure::Failure;
use crate::pool;
use crate::status::Status;
use std::path::Path;
use weir_serve::control::Request;

/// Makes the server use another policy, with its tuning from the pool file.
///
/// # Errors
/// Fails if the pool is not served.
pub(super) fn policy(pool_file: &Path, name: &str) -> Result<Status, Failure> {
    let described = PoolDescription::read(pool_file)?;
    let request = Request::SetPolicy { name: name.to_owned(), tuning: pool::tuning(&described, name) };
    pool::require_server(&described, &request, || format!("write policy = \"{name}\" under [pool]"))?;
    pool::status(pool_file)
}
