//! Reads and writes the fields of a structure one after the other.

/// A position in the bytes of a structure that is read.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("the structure has room for its fields");
        self.0 = rest;
        *field
    }
    pub(super) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.take())
    }
    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }
    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
    pub(super) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        self.take()
    }
}

/// A position in the bytes of a structure that is written.
pub(super) struct Writer<'a>(pub(super) &'a mut [u8]);

impl Writer<'_> {
    pub(super) fn bytes(&mut self, field: &[u8]) {
        let (to, rest) = std::mem::take(&mut self.0).split_at_mut(field.len());
        to.copy_from_slice(field);
        self.0 = rest;
    }
    pub(super) fn u8(&mut self, value: u8) {
        self.bytes(&value.to_le_bytes());
    }
    pub(super) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }
    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }
    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }
}
