//! The host of the placement policies: it shows them devices and accesses, asks for decisions, and stops
//! harmful moves.

pub(crate) mod actions;
pub(crate) mod advice;
pub(crate) mod fs_metadata;
pub(crate) mod harm;
pub(crate) mod index;
pub(crate) mod registry;
pub(crate) mod rounds;
pub(crate) mod route;
pub(crate) mod runs;

use actions::Actions;
use advice::Advice;
use fs_metadata::Inference;
use harm::Harm;
use registry::Policies;
use weir_map::Map;
use weir_model::{Nanos, Rng, Seed};
use weir_policy::placement::Placement;

/// The state of the host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) policies: Policies,
    pub(crate) advice: Advice,
    pub(crate) actions: Actions,
    pub(crate) harm: Harm,
    pub(crate) inference: Inference,
    /// The random numbers of the policies.
    pub(crate) random: Rng,
}

impl Host {
    pub(crate) fn new(now: Nanos, policy: Box<dyn Placement>, map: &Map) -> Self {
        Self {
            policies: Policies::new(now, policy),
            advice: Advice::default(),
            inference: Inference::default(),
            actions: Actions::default(),
            harm: Harm::new(map.devices().len()),
            random: Rng::new(Seed(0)),
        }
    }
}
