//! A fault layer that fails commands on demand, for tests of whole servers; a file beside the device controls
//! it.
//!
//! While `DEVICE.fault` exists, its words say which commands fail: `reads`, `writes`, `flushes` (all with
//! EIO), `gone` (every command, as lost), `hang` (no command ever completes).

use std::path::{Path, PathBuf};
use weir_model::{Errno, IoError, IoKind};

/// The layer over one device.
#[derive(Debug)]
pub(crate) struct FaultInjection {
    file: PathBuf,
}

/// How a command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureMode {
    Fail(IoError),
    NeverComplete,
}

impl FaultInjection {
    pub(crate) fn new(device: &Path) -> Self {
        let mut file = device.as_os_str().to_owned();
        file.push(".fault");
        tracing::warn!(file = %Path::new(&file).display(), "this device fails on demand");
        Self { file: file.into() }
    }

    /// Returns how a command fails, if it does.
    pub(crate) fn failure_mode(&self, kind: IoKind) -> Option<FailureMode> {
        let words = std::fs::read_to_string(&self.file).ok()?;
        let asked = |word| words.split_whitespace().any(|w| w == word);
        let this = match kind {
            IoKind::Read => "reads",
            IoKind::Write { .. } => "writes",
            IoKind::Flush => "flushes",
        };
        if asked("hang") {
            Some(FailureMode::NeverComplete)
        } else if asked("gone") {
            Some(FailureMode::Fail(IoError::Lost))
        } else {
            asked(this).then_some(FailureMode::Fail(IoError::Os(Errno::EIO)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_fail_as_fault_file_specifies() {
        let folder = tempfile::tempdir().expect("a folder");
        let demand = FaultInjection::new(&folder.path().join("d.img"));
        let say = |words: &str| std::fs::write(folder.path().join("d.img.fault"), words).expect("written");
        assert_eq!(demand.failure_mode(IoKind::Read), None);
        say("reads flushes");
        let eio = Some(FailureMode::Fail(IoError::Os(Errno::EIO)));
        assert_eq!(demand.failure_mode(IoKind::Read), eio);
        assert_eq!(
            (demand.failure_mode(IoKind::Flush), demand.failure_mode(IoKind::Write { fua: false })),
            (eio, None)
        );
        say("hang");
        assert_eq!(demand.failure_mode(IoKind::Flush), Some(FailureMode::NeverComplete));
        say("gone");
        assert_eq!(demand.failure_mode(IoKind::Read), Some(FailureMode::Fail(IoError::Lost)));
    }
}
