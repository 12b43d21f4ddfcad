//! The regions of file systems, as commands open them.

use weir_fs::namespace::Durability;
use weir_fs::nvm::{Mapped, Persistence};

/// Returns when changes of a file system in this memory become durable.
pub(super) const fn durability(memory: &Mapped) -> Durability {
    match memory.persistence() {
        Persistence::CacheLines => Durability::EachOperation,
        Persistence::FileSync => Durability::Sync,
    }
}
