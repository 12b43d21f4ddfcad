//! The order in which replies leave.

use super::Ready;
use std::collections::VecDeque;
use weir_model::{Mutant, Planted};

/// Replies that wait for the socket, in the order in which they leave.
///
/// The data of a simple reply has no frame of its own: the client takes as many bytes as it asked
/// for, whatever they are. So from the first byte of such a reply to its last nothing else leaves.
/// While a reply is *open* (begun and not whole), everything else is held back; it follows once the
/// reply is whole, before the next one can be opened.
///
/// Whoever opens a reply sees to it that it becomes whole without anything that is held back.
#[derive(Debug, Default)]
pub(super) struct ReplyQueue {
    next: VecDeque<Ready>,
    /// The request whose reply is open.
    open: Option<u16>,
    /// What waits until that reply is whole.
    held_back: VecDeque<Ready>,
    planted: Planted,
}

impl ReplyQueue {
    /// An empty one, with this planted.
    pub(super) fn with(planted: Planted) -> Self {
        Self { planted, ..Self::default() }
    }

    /// Adds what can stand between any two others: a whole reply, or a chunk of one.
    #[inline]
    pub(super) fn push(&mut self, ready: Ready) {
        let holds_back = self.open.is_some() && !self.planted.is(Mutant::ReplyInsideReply);
        if holds_back { self.held_back.push_back(ready) } else { self.next.push_back(ready) }
    }

    /// Opens the reply to a request. Of two replies the second can be opened when the first is whole.
    pub(super) fn open(&mut self, request: u16) {
        debug_assert_eq!(self.open, None, "one open reply at a time");
        self.open = Some(request);
    }

    /// Adds the next part of the open reply.
    pub(super) fn push_open(&mut self, part: Ready) {
        self.next.push_back(part);
    }

    /// The open reply is whole: what was held back follows.
    pub(super) fn close(&mut self) {
        self.open = None;
        if self.planted.is(Mutant::HeldBackForgotten) {
            self.held_back.clear();
        }
        self.next.append(&mut self.held_back);
    }

    /// The request whose reply has begun and is not whole.
    pub(super) fn opened(&self) -> Option<u16> {
        self.open
    }

    /// What leaves next.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Ready> {
        self.next.pop_front()
    }

    /// Nothing can leave now.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.next.is_empty()
    }

    /// Nothing has to leave, now or later.
    pub(super) fn is_empty(&self) -> bool {
        self.next.is_empty() && self.held_back.is_empty() && self.open.is_none()
    }
}
