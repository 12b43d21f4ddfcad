//! Verifies that the containers of files are there, and finds those that no file has.

use super::Report;
use crate::layout::Ino;
use crate::layout::tier::{Container, TierNumber};
use crate::namespace::FileSystem;
use crate::nvm::Memory;
use crate::tiers::TierState;
use rustc_hash::FxHashMap;
use std::io;

/// Compares what files have with what the tiers have.
pub(super) fn check<M: Memory>(fs: &FileSystem<M>, files: &FxHashMap<Container, Ino>, report: &mut Report) {
    report.containers = files.len() as u64;
    for (number, tier) in (0..).map(TierNumber).zip(fs.tiers()).filter(|(_, tier)| !tier.is_removed()) {
        let what = format!("tier {} ({} {})", number.0, tier.class.name(), tier.path.display());
        let mut own: Vec<_> = files.iter().filter(|(container, _)| container.tier == number).collect();
        own.sort_unstable();
        if let TierState::Gone(problem) = fs.containers().state(number) {
            report.add_missing(format!("{what}: {problem}; it has {} files", own.len()));
            continue;
        }
        for (container, ino) in own {
            container_of(fs, *container, *ino, &what, report);
        }
        match fs.containers().list(number) {
            Ok(numbers) => {
                let is_garbage =
                    |found: &&u64| !files.contains_key(&Container { tier: number, number: **found });
                report.garbage += numbers.iter().filter(is_garbage).count() as u64;
            }
            Err(error) => report.add_missing(format!("{what}: its containers cannot be listed: {error}")),
        }
    }
}

fn container_of<M: Memory>(
    fs: &FileSystem<M>,
    container: Container,
    ino: Ino,
    tier: &str,
    report: &mut Report,
) {
    let Ok(inode) = fs.inode(ino) else { return };
    let problem = match fs.containers().len(container) {
        Ok(len) if len >= inode.size => return,
        Ok(len) => format!("has {len} of its {} bytes", inode.size),
        Err(error) if error.kind() == io::ErrorKind::NotFound => "is missing".to_owned(),
        Err(error) => format!("cannot be read: {error}"),
    };
    let path = fs.header(ino).map(|header| header.path).unwrap_or_default();
    let path = String::from_utf8_lossy(&path);
    report.add_missing(format!(
        "inode {} ({path:?}): container {} of {tier} {problem}",
        ino.0, container.number
    ));
}
