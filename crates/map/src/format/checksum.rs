//! CRC-32C (Castagnoli), the checksum of everything the map stores.

/// Returns the CRC-32C of the bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Returns the CRC-32C of the bytes as if the four bytes at `field` were zero: the checksum of a record that
/// contains its own. `field + 4` must be within the bytes.
pub(crate) fn crc32c_without(bytes: &[u8], field: usize) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..field]);
    digest.update(&[0; 4]);
    digest.update(&bytes[field + 4..]);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_matches_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c_without(b"1234\xff\xff\xff\xff9", 4), crc32c(b"1234\0\0\0\x009"));
    }
}
