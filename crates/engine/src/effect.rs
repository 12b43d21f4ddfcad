//! Events that a layer raises for the layers above it, which it cannot call.
//! [`Engine::handle_effects`](crate::Engine::handle_effects) handles them before an entry point returns, and
//! so does `run_ready` between pieces.

use crate::ids::AdminStep;
use std::collections::VecDeque;
use weir_model::{RequestError, VolumeId};

/// An event for the layers above.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// A step of an administrative command is durable, or failed.
    StepEnded(AdminStep, Option<RequestError>),
    /// A volume that is being removed has no extents left, or could not be cleared.
    Cleared(VolumeId, Option<RequestError>),
    /// A commit is durable, or no commit ever will be: waiting moves can continue.
    Committed,
    /// The metadata failed: nothing can be made durable any more.
    MetadataFailed,
}

/// The unhandled effects, in order.
#[derive(Debug, Default)]
pub(crate) struct Effects(VecDeque<Effect>);

impl Effects {
    /// Raises an effect.
    pub(crate) fn push(&mut self, effect: Effect) {
        self.0.push_back(effect);
    }

    /// Returns the next effect to handle.
    pub(crate) fn next(&mut self) -> Option<Effect> {
        self.0.pop_front()
    }

    /// Whether no effect is left to handle.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
