//! Events that a layer raises for the layers above it, which it cannot call.
//! [`Engine::handle_effects`](crate::Engine::handle_effects) handles them before a call from outside
//! returns, and so does `run_ready` between pieces.

use crate::ids::AdminStep;
use std::collections::VecDeque;
use weir_model::{RequestError, VolumeId};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// A step of an operator's command is durable, or failed.
    StepEnded(AdminStep, Option<RequestError>),
    /// A volume that is being removed has no extents left, or could not be cleared.
    Cleared(VolumeId, Option<RequestError>),
    /// A commit has become durable, or none ever will: moves may wait for that.
    Committed,
    /// The metadata failed: nothing can be made durable any more.
    MetadataFailed,
}

/// Effects that have not been handled, in order.
#[derive(Debug, Default)]
pub(crate) struct Effects(VecDeque<Effect>);

impl Effects {
    /// Raises an effect.
    pub(crate) fn push(&mut self, effect: Effect) {
        self.0.push_back(effect);
    }

    /// The next effect to handle.
    pub(crate) fn next(&mut self) -> Option<Effect> {
        self.0.pop_front()
    }

    /// Whether none is left to handle.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
