//! One send to the client: headers in a buffer of their own, payloads in place.

use weir_model::{BLOCK, Buffer, Bytes, Memory};

/// Maximum number of parts of a send; the kernel accepts 1024.
const PARTS_MAX: usize = 512;
/// Payload bytes of a send above which no more is added, so that buffers become free soon.
const PAYLOAD_MAX: u32 = 512 << 10;

/// A send that is being assembled or in flight.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Buffer for headers; `None` at first, and while the client is idle.
    headers: Option<Buffer>,
    used: u32,
    payload: u32,
    parts: Vec<Buffer>,
    /// Buffers to release when the send has completed.
    pinned: Vec<Buffer>,
    pub(super) sending: bool,
}

impl Outbox {
    /// Room for the headers of more than four hundred replies.
    pub(super) const LEN: u32 = 16 << 10;
    /// Maximum number of header bytes that a single step may add: a long status, or a piece full of holes.
    pub(super) const STEP: u32 = 4 << 10;
    /// Maximum number of parts that a single step may add: a piece in which every other block is a hole.
    const STEP_PARTS: usize = (super::PIECE_MAX / BLOCK as u32) as usize + 2;

    /// Takes a buffer for headers unless it has one; returns `false` if there is no memory for it.
    pub(super) fn ensure_header_buffer<M: Memory>(&mut self, memory: &mut M) -> bool {
        if self.headers.is_none() {
            self.headers = memory.take(Bytes(Self::LEN.into()));
        }
        self.headers.is_some()
    }

    /// Releases its buffers; the next [`ensure_header_buffer`](Self::ensure_header_buffer) takes them again.
    /// Nothing may be in flight.
    pub(super) fn release_buffers<M: Memory>(&mut self, memory: &mut M) {
        self.release_pinned(memory);
        self.headers.take().into_iter().for_each(|buffer| memory.give(buffer));
        (self.parts, self.pinned) = (Vec::new(), Vec::new());
    }

    pub(super) fn release<M: Memory>(mut self, memory: &mut M) {
        self.release_buffers(memory);
    }

    /// Clears the send. Nothing may be in flight.
    pub(super) fn clear(&mut self) {
        debug_assert!(!self.sending && self.pinned.is_empty(), "one send at a time");
        (self.used, self.payload) = (0, 0);
        self.parts.clear();
    }

    /// Reports whether another step fits: [`Self::STEP`] bytes of headers and all parts of a piece.
    #[inline]
    pub(super) fn has_space(&self) -> bool {
        self.used + Self::STEP <= Self::LEN
            && self.parts.len() + Self::STEP_PARTS <= PARTS_MAX
            && self.payload < PAYLOAD_MAX
    }

    /// Adds a header.
    #[inline]
    pub(super) fn header<M: Memory>(&mut self, bytes: &[u8], memory: &mut M) {
        let Some(headers) = self.headers else { return };
        let part = headers.part(self.used, bytes.len() as u32);
        memory.bytes_mut(part).copy_from_slice(bytes);
        self.used += part.len;
        match self.parts.last_mut() {
            Some(last) if last.at + u64::from(last.len) == part.at => last.len += part.len,
            _ => self.parts.push(part),
        }
    }

    /// Adds a part of a payload.
    #[inline]
    pub(super) fn payload(&mut self, part: Buffer) {
        self.payload += part.len;
        self.parts.push(part);
    }

    /// Keeps a buffer until the send has completed.
    #[inline]
    pub(super) fn pin_buffer(&mut self, buffer: Buffer) {
        self.pinned.push(buffer);
    }

    /// Returns all parts, in order.
    pub(super) fn parts(&self) -> &[Buffer] {
        &self.parts
    }

    /// Releases the kept buffers; returns the amount of memory released.
    pub(super) fn release_pinned<M: Memory>(&mut self, memory: &mut M) -> u64 {
        self.pinned.drain(..).fold(0, |sum, buffer| {
            memory.give(buffer);
            sum + super::input::allocation_size(buffer.len.into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::HeapMemory;

    fn outbox(memory: &mut HeapMemory) -> Outbox {
        let mut outbox = Outbox::default();
        assert!(outbox.ensure_header_buffer(memory) && outbox.has_space());
        outbox
    }

    #[test]
    fn full_outbox_refuses_further_steps() {
        let mut memory = HeapMemory::new(Bytes::mib(4));
        let mut headers = outbox(&mut memory);
        for left in (0..Outbox::LEN).step_by(16).rev() {
            assert_eq!(headers.has_space(), left + 16 >= Outbox::STEP, "{left} bytes are left");
            headers.header(&[0; 16], &mut memory);
        }
        assert_eq!((headers.parts().len(), headers.payload), (1, 0));

        let page = memory.take(Bytes(BLOCK)).expect("memory");
        let mut parts = outbox(&mut memory);
        while parts.has_space() {
            parts.payload(page.part(0, 16));
        }
        assert_eq!(parts.parts().len(), PARTS_MAX - Outbox::STEP_PARTS + 1);
        assert!(parts.payload < PAYLOAD_MAX);

        let large = memory.take(Bytes(PAYLOAD_MAX.into())).expect("memory");
        let mut payload = outbox(&mut memory);
        payload.payload(large);
        assert!(!payload.has_space());
    }
}
