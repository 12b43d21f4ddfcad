//! The lowest layer: requests, policies, space and durability, on [`Core`].

use crate::cache::ExtentCache;
use crate::core::Core;
use crate::counts::Counts;
use crate::durability::Durability;
use crate::effect::Effects;
use crate::policy::Host;
use crate::request::Requests;
use crate::request::mirror::Mirror;
use crate::space::Space;
use crate::verify::Verification;

/// The lowest layer. It knows none of the layers above; it raises an [`Effect`](crate::effect::Effect) for
/// events that concern them.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) core: Core,
    pub(crate) requests: Requests,
    pub(crate) cache: ExtentCache,
    pub(crate) mirror: Mirror,
    pub(crate) host: Host,
    pub(crate) space: Space,
    pub(crate) durability: Durability,
    pub(crate) verification: Verification,
    pub(crate) counts: Counts,
    pub(crate) effects: Effects,
}
