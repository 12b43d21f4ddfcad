//! Headers of containers: what is needed to restore a file without its region.

use crate::layout::{Ino, Time};

/// Name of the extended attribute that holds a header.
pub const ATTRIBUTE: &str = "user.weir.file";

/// Takes the place of a size that the container has.
const PASSTHROUGH: &str = "passthrough";

/// What a container tells about its file. It is a copy that may be a little old; the region has the truth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// UUID of the region.
    pub region: [u8; 16],
    /// The inode.
    pub ino: u64,
    /// Generation of the inode.
    pub generation: u32,
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes; `None`: the kernel may change the container without the server, whose length and times
    /// are the file's.
    pub size: Option<u64>,
    /// Time of the last change of contents.
    pub modified: Time,
    /// Time of the last read.
    pub accessed: Time,
    /// Path in the file system, without a slash at the beginning; empty if unknown.
    pub path: Vec<u8>,
}

impl Header {
    /// Returns the inode.
    pub const fn inode(&self) -> Ino {
        Ino(self.ino)
    }

    /// Returns its text: lines of a name and a value. The path is the last one, up to the end.
    pub fn encode(&self) -> Vec<u8> {
        let time = |time: Time| format!("{}.{:09}", time.seconds, time.nanos);
        let size = self.size.map_or_else(|| PASSTHROUGH.to_owned(), |size| size.to_string());
        let mut text = format!(
            "weir 1\nregion {}\ninode {} {}\nmode {:o}\nowner {} {}\nsize {}\nmodified {}\naccessed {}\n\
             path ",
            hex(&self.region),
            self.ino,
            self.generation,
            self.mode,
            self.uid,
            self.gid,
            size,
            time(self.modified),
            time(self.accessed)
        )
        .into_bytes();
        text.extend(&self.path);
        text
    }

    /// Reads its text; `None` if it is damaged.
    pub fn decode(text: &[u8]) -> Option<Self> {
        let at = text.windows(6).position(|part| part == b"\npath ")?;
        let (lines, path) = (std::str::from_utf8(&text[..at]).ok()?, text[at + 6..].to_vec());
        let mut lines = lines.lines();
        let mut line = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        if line("weir")? != "1" {
            return None;
        }
        let region = unhex(line("region")?)?;
        let (ino, generation) = line("inode")?.split_once(' ')?;
        let mode = u32::from_str_radix(line("mode")?, 8).ok()?;
        let (uid, gid) = line("owner")?.split_once(' ')?;
        let size = match line("size")? {
            PASSTHROUGH => None,
            size => Some(size.parse().ok()?),
        };
        let (modified, accessed) = (time(line("modified")?)?, time(line("accessed")?)?);
        Some(Self {
            region,
            ino: ino.parse().ok()?,
            generation: generation.parse().ok()?,
            mode,
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
            size,
            modified,
            accessed,
            path,
        })
    }
}

fn time(text: &str) -> Option<Time> {
    let (seconds, nanos) = text.split_once('.')?;
    let nanos = nanos.parse().ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Time { seconds: seconds.parse().ok()?, nanos })
}

/// Returns a UUID in hexadecimal.
pub fn hex(uuid: &[u8; 16]) -> String {
    uuid.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a UUID in hexadecimal.
pub fn unhex(text: &str) -> Option<[u8; 16]> {
    let mut uuid = [0; 16];
    if text.len() != 32 {
        return None;
    }
    for (at, byte) in uuid.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_and_damage_is_noticed() {
        let header = Header {
            region: [0xab; 16],
            ino: 17,
            generation: 3,
            mode: 0o100_644,
            uid: 1000,
            gid: 100,
            size: Some(1 << 40),
            modified: Time { seconds: -5, nanos: 999_999_999 },
            accessed: Time { seconds: 1 << 33, nanos: 7 },
            path: b"a directory/file\nwith a line\xff".to_vec(),
        };
        let text = header.encode();
        let passthrough = Header { size: None, ..header.clone() };
        assert_eq!(Header::decode(&passthrough.encode()), Some(passthrough));
        assert_eq!(Header::decode(&text), Some(header));
        assert_eq!(Header::decode(&text[..60]), None);
        assert_eq!(Header::decode(b""), None);
        assert_eq!(Header::decode(&[b"x", &text[..]].concat()), None);
    }
}
