//! The operating system's error numbers.

use std::fmt;

/// An error number of Linux. It is displayed in words, with the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// An input/output error.
    pub const EIO: Self = Self(5);
    /// An invalid argument.
    pub const EINVAL: Self = Self(22);
    /// A file would exceed the maximum size.
    pub const EFBIG: Self = Self(27);
    /// A full device or file system.
    pub const ENOSPC: Self = Self(28);
    /// A pipe or connection has no reader.
    pub const EPIPE: Self = Self(32);
    /// The peer reset the connection.
    pub const ECONNRESET: Self = Self(104);
    /// A full quota.
    pub const EDQUOT: Self = Self(122);
    /// The operation was cancelled.
    pub const ECANCELED: Self = Self(125);
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}
