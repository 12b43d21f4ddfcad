//! The marker of a tier's directory: whose it is.

use super::header::{hex, unhex};
use super::{Class, TierNumber};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Name of the marker's file.
pub const NAME: &str = "weir.tier";

/// Name of the file that a tier has while it is leaving.
const LEAVING: &str = "weir.leaving";

/// What a marker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// UUID of the region.
    pub region: [u8; 16],
    /// UUID of the tier.
    pub tier: [u8; 16],
    /// Number of the tier in its region.
    pub number: TierNumber,
    /// What the tier is made of.
    pub class: Class,
}

impl Marker {
    /// Returns the text of the marker.
    pub fn encode(&self) -> String {
        let Self { region, tier, number, class } = self;
        format!(
            "Containers of a weir file system. Do not change or remove anything here.\nregion {}\ntier {}\n\
             number {}\nclass {}\n",
            hex(region),
            hex(tier),
            number.0,
            class.name()
        )
    }

    /// Reads the text; `None` if it is no marker's.
    pub fn decode(text: &str) -> Option<Self> {
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Some(Self {
            region: unhex(value("region")?)?,
            tier: unhex(value("tier")?)?,
            number: TierNumber(value("number")?.parse().ok()?),
            class: [Class::Flash, Class::Disk]
                .into_iter()
                .find(|class| Some(class.name()) == value("class"))?,
        })
    }

    /// Reads the marker of a directory; `None` if it has none.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn read(directory: &Path) -> io::Result<Option<Self>> {
        match std::fs::read_to_string(path(directory)) {
            Ok(text) => Ok(Self::decode(&text)),
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the marker of a directory that has none, durably.
    ///
    /// # Errors
    /// Returns the operating system's error; `AlreadyExists` if there is a marker.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let mut file = File::options().write(true).create_new(true).open(path(directory))?;
        file.write_all(self.encode().as_bytes())?;
        file.sync_all()?;
        File::open(directory)?.sync_all()
    }
}

/// Returns the path of a directory's marker.
pub fn path(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

/// Notes in the directory of a tier, durably, whether it is leaving.
///
/// # Errors
/// Returns the operating system's error.
pub fn note_leaving(directory: &Path, is_leaving: bool) -> io::Result<()> {
    let note = directory.join(LEAVING);
    match is_leaving {
        true => drop(File::create(note)?),
        false => match std::fs::remove_file(note) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed?,
        },
    }
    File::open(directory)?.sync_all()
}

/// Returns whether the directory of a tier says that it is leaving.
pub fn is_leaving(directory: &Path) -> bool {
    directory.join(LEAVING).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_back() {
        let marker = Marker { region: [1; 16], tier: [0xfe; 16], number: TierNumber(3), class: Class::Disk };
        assert_eq!(Marker::decode(&marker.encode()), Some(marker));
        assert_eq!(Marker::decode("region 12"), None);
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(Marker::read(directory.path()).expect("no failure"), None);
        marker.write(directory.path()).expect("it has none");
        assert_eq!(Marker::read(directory.path()).expect("no failure"), Some(marker));
        assert!(marker.write(directory.path()).is_err());
    }
}
