//! The order in which replies leave.

use super::QueuedReply;
use std::collections::VecDeque;
use weir_model::{Mutant, Planted};

/// Replies that wait for the socket, in the order in which they leave.
///
/// The data of a simple reply has no framing: the client takes the next bytes, as many as it requested, for
/// the data. So no other bytes may be sent between the first and the last byte of such a reply. While a reply
/// is
/// *open* (begun and not complete), all other replies are held back; they follow once the reply is complete,
/// before the next one can be opened.
///
/// The caller must ensure that an open reply can complete without anything that is held back.
#[derive(Debug, Default)]
pub(super) struct ReplyQueue {
    next: VecDeque<QueuedReply>,
    /// The request whose reply is open.
    open: Option<u16>,
    /// Replies that wait until the open reply is complete.
    held_back: VecDeque<QueuedReply>,
    planted: Planted,
}

impl ReplyQueue {
    /// Creates an empty queue with these mutants active.
    pub(super) fn with_mutants(planted: Planted) -> Self {
        Self { planted, ..Self::default() }
    }

    /// Adds a unit that can stand between any two others: a whole reply, or a chunk of one.
    #[inline]
    pub(super) fn push(&mut self, ready: QueuedReply) {
        let holds_back = self.open.is_some() && !self.planted.is(Mutant::ReplyInsideReply);
        if holds_back { self.held_back.push_back(ready) } else { self.next.push_back(ready) }
    }

    /// Opens the reply to a request. A second reply can be opened only when the first is complete.
    pub(super) fn open(&mut self, request: u16) {
        debug_assert_eq!(self.open, None, "one open reply at a time");
        self.open = Some(request);
    }

    /// Adds the next part of the open reply.
    pub(super) fn push_open(&mut self, part: QueuedReply) {
        self.next.push_back(part);
    }

    /// Closes the open reply, which is complete; replies held back follow.
    pub(super) fn close(&mut self) {
        self.open = None;
        if self.planted.is(Mutant::HeldBackForgotten) {
            self.held_back.clear();
        }
        self.next.append(&mut self.held_back);
    }

    /// Returns the request whose reply has begun and is not complete.
    pub(super) fn open_request(&self) -> Option<u16> {
        self.open
    }

    /// Takes the next unit to send.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<QueuedReply> {
        self.next.pop_front()
    }

    /// Reports whether nothing can leave now.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.next.is_empty()
    }

    /// Reports whether nothing remains to be sent, now or later.
    pub(super) fn is_empty(&self) -> bool {
        self.next.is_empty() && self.held_back.is_empty() && self.open.is_none()
    }
}
