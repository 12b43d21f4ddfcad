//! CRC-32C (Castagnoli), the checksum of everything the map stores.

/// CRC-32C of the bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of the bytes as they would be with the four bytes at `field` zero: how a record that
/// holds its own checksum is sealed and checked. `field + 4` must be within the bytes.
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
    fn gives_the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c_without(b"1234\xff\xff\xff\xff9", 4), crc32c(b"1234\0\0\0\x009"));
    }
}
