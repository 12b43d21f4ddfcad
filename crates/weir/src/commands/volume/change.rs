//! Changes of volumes: by the server if there is one, else on the idle pool.

use crate::devices::Described;
use crate::failure::Failure;
use crate::pool;
use crate::status::{POOLS_POLICY, VolumePart};
use std::path::Path;
use weir_model::Bytes;
use weir_serve::control::{Hardening, Request};

/// Makes a thin volume, and says which there are then.
///
/// # Errors
/// If the name is taken, or the pool cannot keep so many copies.
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

/// Changes when a volume's map changes are durable, and has the server use another policy for it, as tuned in
/// the pool file, or the pool's (`pool`); says which volumes there are.
///
/// # Errors
/// If there is none of that name, or the pool is not served and a policy given.
pub(super) fn set(
    pool_file: &Path,
    name: &str,
    hardening: Option<Hardening>,
    policy: Option<&str>,
) -> Result<Vec<VolumePart>, Failure> {
    if let Some(policy) = policy {
        let described = Described::read(pool_file)?;
        let own = (policy != POOLS_POLICY).then(|| policy.to_owned());
        let tuning = own.iter().flat_map(|own| pool::tuning(&described, own)).collect();
        let request = Request::SetVolumePolicy { volume: name.to_owned(), name: own, tuning };
        let instead = || match policy {
            POOLS_POLICY => format!("leave out policy under [volume.{name}]"),
            _ => format!("write policy = \"{policy}\" under [volume.{name}]"),
        };
        pool::tell_server(&described, &request, instead)?;
    }
    match hardening {
        Some(hardening) => {
            pool::change(pool_file, &Request::SetHardening { name: name.to_owned(), hardening })
        }
        None => Ok(pool::status(pool_file)?.volumes),
    }
}

/// Removes a volume, and says which there are then.
///
/// # Errors
/// If there is none of that name.
pub(crate) fn remove(pool_file: &Path, name: &str) -> Result<Vec<VolumePart>, Failure> {
    pool::change(pool_file, &Request::RemoveVolume { name: name.to_owned() })
}
