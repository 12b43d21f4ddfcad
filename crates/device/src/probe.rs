//! Does a device hold something that is not ours? Asked of util-linux's `blkid`, which knows
//! the signatures of some hundred file systems, volume managers and partition tables.

use std::io;
use std::process::{Command, Output};

use crate::{Device, DeviceError};

/// Where `blkid` may be: ordinary users often lack the `sbin` folders in their path.
const PROGRAMS: [&str; 3] = ["blkid", "/usr/sbin/blkid", "/sbin/blkid"];
/// Exit code: nothing was recognised.
const NOTHING: i32 = 2;
/// Exit code: signatures of several things were found.
const AMBIVALENT: i32 = 8;

impl Device {
    /// Refuses a device that carries a foreign file system, partition table or the like.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`] if it does, [`DeviceError::NoBlkid`] if there is no way to know,
    /// [`DeviceError::Io`] if asking failed.
    pub fn refuse_foreign(&self) -> Result<(), DeviceError> {
        let output = self.ask_blkid()?;
        let foreign = |found: String| Err(DeviceError::Foreign { path: self.path.clone(), found });
        match output.status.code() {
            Some(NOTHING) => Ok(()),
            Some(AMBIVALENT) => {
                foreign("the signatures of more than one file system or partition table".into())
            }
            Some(0) => foreign(describe(&String::from_utf8_lossy(&output.stdout))),
            _ => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Err(self.error("asking blkid what it holds", io::Error::other(said)))
            }
        }
    }

    fn ask_blkid(&self) -> Result<Output, DeviceError> {
        for program in PROGRAMS {
            let mut command = Command::new(program);
            command.args(["-p", "-o", "export", "--"]).arg(&self.path);
            match command.output() {
                Ok(output) => return Ok(output),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(self.error("running blkid", e)),
            }
        }
        Err(DeviceError::NoBlkid { path: self.path.clone() })
    }
}

/// What `blkid -o export` found, in words.
fn describe(export: &str) -> String {
    let value = |key: &str| export.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
    match (value("TYPE"), value("PTTYPE")) {
        (Some(fs), _) => match value("LABEL") {
            Some(label) => format!("{fs} ({label})"),
            None => fs.to_owned(),
        },
        (None, Some(table)) => format!("a {table} partition table"),
        (None, None) => "something blkid recognises".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn findings_are_put_in_words() {
        assert_eq!(describe("DEVNAME=x\nLABEL=photos\nTYPE=ext4\n"), "ext4 (photos)");
        assert_eq!(describe("PTUUID=1\nPTTYPE=gpt\n"), "a gpt partition table");
        assert_eq!(describe(""), "something blkid recognises");
    }
}
