//! Creates, changes and removes volumes, through the server if the pool is served, or else on the idle pool.

use crate::devices::PoolDescription;
use crate::failure::Failure;
use crate::pool;
use crate::status::{POOLS_POLICY, VolumePart};
use std::path::Path;
use weir_model::Bytes;
use weir_serve::control::{Hardening, Request};

/// Creates a thin volume. Returns all volumes.
///
/// # Errors
/// Fails if the name is taken, or if the pool cannot keep that many copies.
pub(crate) fn create(
    pool_file: &Path,
    name: &str,
    size: Bytes,
    hardening: Hardening,
    copies: u8,
) -> Result<Vec<VolumePart>, Failure> {
    let (name, size_bytes) = (name.to_owned(), size.get());
    pool::change(pool_file, &Request::CreateVolume { name, size_bytes, hardening, copies })
}

/// Sets when a volume's map changes become durable, and the policy that the server uses for it. Returns all
/// volumes.
///
/// The policy takes its tuning from the pool file; `pool` selects the pool's policy.
///
/// # Errors
/// Fails if no volume has that name, or if a policy is given and the pool is not served.
pub(super) fn set(
    pool_file: &Path,
    name: &str,
    hardening: Option<Hardening>,
    policy: Option<&str>,
) -> Result<Vec<VolumePart>, Failure> {
    if let Some(policy) = policy {
        let described = PoolDescription::read(pool_file)?;
        let own = (policy != POOLS_POLICY).then(|| policy.to_owned());
        let tuning = own.iter().flat_map(|own| pool::tuning(&described, own)).collect();
        let request = Request::SetVolumePolicy { volume: name.to_owned(), name: own, tuning };
        let instead = || match policy {
            POOLS_POLICY => format!("leave out policy under [volume.{name}]"),
            _ => format!("write policy = \"{policy}\" under [volume.{name}]"),
        };
        pool::require_server(&described, &request, instead)?;
    }
    match hardening {
        Some(hardening) => {
            pool::change(pool_file, &Request::SetHardening { name: name.to_owned(), hardening })
        }
        None => Ok(pool::status(pool_file)?.volumes),
    }
}

/// Removes a volume. Returns the remaining volumes.
///
/// # Errors
/// Fails if no volume has that name.
pub(crate) fn remove(pool_file: &Path, name: &str) -> Result<Vec<VolumePart>, Failure> {
    pool::change(pool_file, &Request::RemoveVolume { name: name.to_owned() })
}
