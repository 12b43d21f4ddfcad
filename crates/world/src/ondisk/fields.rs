//! Little-endian fields of records, and their checksums.

use super::{Defect, DeviceReader, PAGE};

/// Computes the CRC-32C of bytes with the four bytes at `field` taken as zero.
pub(super) fn crc(bytes: &[u8], field: usize) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..field]);
    digest.update(&[0; 4]);
    digest.update(&bytes[field + 4..]);
    digest.finalize() as u32
}

/// Reads a number of `N` bytes at an offset.
fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut all = [0; 8];
    all[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(all)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    number::<4>(bytes, at) as u32
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    number::<8>(bytes, at)
}

pub(super) fn page(raw: &mut dyn DeviceReader, device: u8, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE as usize];
    raw.read(device, at, &mut bytes);
    bytes
}

/// Reads fields one after the other.
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    /// The structure they belong to, for errors.
    structure: (u8, &'static str, u64),
}

impl<'a> Fields<'a> {
    pub(super) const fn new(bytes: &'a [u8], device: u8, what: &'static str, at: u64) -> Self {
        Self { bytes, structure: (device, what, at) }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn defect(&self, why: impl Into<String>) -> Defect {
        let (device, what, at) = self.structure;
        Defect { device, what, at, why: why.into() }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Defect> {
        let (head, tail) =
            self.bytes.split_at_checked(len).ok_or_else(|| self.defect("it ends too early"))?;
        self.bytes = tail;
        Ok(head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Defect> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, Defect> {
        Ok(number::<2>(self.take(2)?, 0) as u16)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Defect> {
        Ok(u32_at(self.take(4)?, 0))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Defect> {
        Ok(u64_at(self.take(8)?, 0))
    }

    pub(super) fn name(&mut self) -> Result<String, Defect> {
        let len = self.u8()?.into();
        let bytes = self.take(len)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.defect("a name is not UTF-8"))
    }
}
