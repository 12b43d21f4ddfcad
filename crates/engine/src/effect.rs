//! What happened to an owner and concerns those above it, which it cannot call: told by
//! [`Engine::tell_effects`](crate::Engine::tell_effects) before a call from outside returns.

use crate::ids::AdminStep;
use std::collections::VecDeque;
use weir_model::{RequestError, VolumeId};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// A step of what operators change is durable, or failed.
    StepEnded(AdminStep, Option<RequestError>),
    /// A volume that is being removed holds nothing any more, or could not be cleared.
    Cleared(VolumeId, Option<RequestError>),
    /// Something has become durable, or never will: moves may wait for that.
    Committed,
    /// Nothing can be made durable any more.
    MetadataFailed,
}

/// Those that have not been told.
#[derive(Debug, Default)]
pub(crate) struct Effects(VecDeque<Effect>);

impl Effects {
    /// Has it told.
    pub(crate) fn push(&mut self, effect: Effect) {
        self.0.push_back(effect);
    }

    /// The next one to be told.
    pub(crate) fn next(&mut self) -> Option<Effect> {
        self.0.pop_front()
    }

    /// Whether all have been told.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
