//! Writes a damaged tier table again, from the markers of the directories.

use super::{Outcome, Refusal};
use crate::layout::inode::Form;
use crate::layout::tier::{Container, TIERS_MAX, Tier, TierNumber, encode};
use crate::namespace::{FileSystem, Scan};
use crate::nvm::Memory;
use crate::tiers::FoundTier;
use std::collections::BTreeMap;

/// What the inodes say about a tier.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    files: u64,
    /// Number above those of their containers.
    next: u64,
}

/// Stages a new tier table if the region's is damaged. The number of each tier's next container is above
/// those of all containers that are there, and of all that inodes have.
///
/// # Errors
/// Refuses if files are in a tier whose directory is not among those found, or if two directories claim to be
/// the same tier.
pub(super) fn repair<M: Memory>(
    fs: &mut FileSystem<M>,
    found: &[FoundTier],
    outcome: &mut Outcome,
) -> Result<(), Refusal> {
    if fs.load_tiers().is_ok() {
        return Ok(());
    }
    let used = used(fs);
    let mut tiers = named(fs, found)?;
    if let Some((tier, Used { files, .. })) = used.iter().find(|(tier, _)| !tiers.contains_key(tier)) {
        return Err(Refusal::TierNotNamed { tier: tier.0, files: *files });
    }
    for (number, tier) in &mut tiers {
        tier.next = tier.next.max(used.get(number).map_or(1, |used| used.next));
    }
    let count = tiers.last_key_value().map_or(0, |(last, _)| last.0 + 1);
    // No file is in those between that were not named.
    let entry = |number| tiers.remove(&TierNumber(number)).unwrap_or_else(|| Tier::removed(1));
    let table: Vec<_> = (0..count).map(entry).collect();
    if encode(&table).is_none() {
        let text = "the paths of the directories have too many bytes together; use shorter ones";
        return Err(Refusal::Ambiguous(text.to_owned()));
    }
    fs.restore_tiers(table)?;
    let count = found.len();
    outcome.repaired(format!("the tier table: written again, from the markers of {count} directories"));
    Ok(())
}

/// Returns the tiers that the directories found are.
fn named<M: Memory>(fs: &FileSystem<M>, found: &[FoundTier]) -> Result<BTreeMap<TierNumber, Tier>, Refusal> {
    let mut tiers: BTreeMap<TierNumber, Tier> = BTreeMap::new();
    for tier in found {
        let number = tier.marker.number;
        let path = tier.path.display();
        if tier.marker.region != fs.superblock().uuid {
            return Err(Refusal::Ambiguous(format!("directory {path} belongs to another region")));
        }
        if number.0 >= TIERS_MAX {
            return Err(Refusal::Ambiguous(format!("directory {path} says that it is tier {}", number.0)));
        }
        if let Some(other) = tiers.insert(number, tier.tier()) {
            let text = format!("directories {} and {path} both say that they are tier", other.path.display());
            return Err(Refusal::Ambiguous(format!("{text} {}", number.0)));
        }
    }
    Ok(tiers)
}

/// Returns which tiers files are in. What no tier can be, or no container, is a damaged inode.
fn used<M: Memory>(fs: &FileSystem<M>) -> BTreeMap<TierNumber, Used> {
    let (mut used, mut scan) = (BTreeMap::<TierNumber, Used>::new(), Scan::default());
    while fs.scan_with(&mut scan, |_, inode| {
        if let Form::Container(Container { tier, number }) = inode.form
            && tier.0 < TIERS_MAX
            && (1..Tier::NUMBER_END).contains(&number)
        {
            let Used { files, next } = used.entry(tier).or_default();
            (*files, *next) = (*files + 1, (*next).max(number + 1));
        }
    }) {}
    used
}
