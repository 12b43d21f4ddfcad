//! Failures of commands: a message, what to do, and an exit code by class.

use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use weir_model::ErrorKind;

/// The failure of a command.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Class of the failure, by what the user has to do; it determines the exit code.
    pub kind: ErrorKind,
    /// The message, which names the object concerned.
    pub message: String,
    /// What to do; empty if the message already says it.
    pub help: String,
    /// Path of a device that another process holds; a retry may succeed.
    pub locked: Option<PathBuf>,
    /// Exit code, if it differs from that of the class.
    pub other_exit_code: Option<u8>,
}

/// What to do if the operating system does not let a file grow any further.
pub const RAISE_FILE_SIZE: &str = "raise this process's limit on file sizes (ulimit -f unlimited; for a \
                                   service LimitFSIZE=infinity); where there is none, the file system has no \
                                   files so large: use a smaller file";

/// What to do if the kernel refuses something that it should never refuse.
pub const REPORT_KERNEL: &str = "report this, with the version of the kernel (uname -r)";

/// What to do if weir itself is at fault.
pub const REPORT_DEFECT: &str = "this is a defect of weir; please report it";

impl Failure {
    /// Returns a failure for a wrong command line or configuration (exit code 2).
    pub fn usage(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message, help)
    }
    /// Returns a failure for a command that is unsafe at present (exit code 3).
    pub fn refused(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message, help)
    }
    /// Returns a failure that the machine or the operating system causes (exit code 5).
    pub fn environment(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new(ErrorKind::Environment, message, help)
    }
    /// Returns a failure of any class.
    pub fn new(kind: ErrorKind, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { kind, message: message.into(), help: help.into(), locked: None, other_exit_code: None }
    }
    /// Returns the failure for an error of the operating system in the operation `what` on `path`.
    pub fn os(what: &str, path: &Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Os;
        let help = match error.kind() {
            Os::PermissionDenied => "give this user access to it, or run as a user who has access",
            Os::NotFound => "check the path, and that its directory exists",
            Os::IsADirectory => "name a file, not a directory",
            Os::NotADirectory => "check the path: a part of it is a file",
            Os::ReadOnlyFilesystem => "choose a path on a file system that can be written",
            Os::StorageFull => "free some space there",
            Os::FileTooLarge => RAISE_FILE_SIZE,
            _ => "",
        };
        Self::environment(format!("cannot {what} {}: {error}", path.display()), help)
    }

    /// Splits a message of the form "what happened; what to do" into a failure.
    pub fn from_message(kind: ErrorKind, text: &str) -> Self {
        let (message, help) = text.split_once("; ").unwrap_or((text, ""));
        Self::new(kind, message, help)
    }

    /// Joins several failures into one, which has the class of the first; `None` if there are none.
    pub fn join(failures: Vec<Self>) -> Option<Self> {
        failures.into_iter().reduce(|mut all, next| {
            all.message += &format!("\n{}", next.message);
            if !all.help.lines().any(|line| line == next.help) {
                all.help = [all.help, next.help].join("\n").trim().to_owned();
            }
            all
        })
    }

    /// Replaces the exit code of the class.
    #[must_use]
    pub fn with_exit_code(self, code: u8) -> Self {
        Self { other_exit_code: Some(code), ..self }
    }

    /// Returns the exit code of a command that fails with this failure.
    pub fn exit_code(&self) -> u8 {
        self.other_exit_code.unwrap_or(self.kind.exit_code())
    }

    /// Returns the name of the class in JSON.
    pub const fn class(&self) -> &'static str {
        match self.kind {
            ErrorKind::Usage => "usage",
            ErrorKind::Refused => "refused",
            ErrorKind::Corrupt => "damaged",
            ErrorKind::Environment => "environment",
        }
    }

    /// Returns the document that `--json` prints.
    pub fn document(&self) -> FailureDocument<'_> {
        FailureDocument {
            error: FailurePart { class: self.class(), message: &self.message, help: &self.help },
        }
    }
}

/// The document of a command that fails.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir error")]
pub struct FailureDocument<'a> {
    /// Why the command failed.
    pub error: FailurePart<'a>,
}

/// Why a command failed.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct FailurePart<'a> {
    /// What the failure asks of the user. `usage`: correct the command line or a file; `refused`: the command
    /// is not safe at present; `damaged`: stored data are damaged; `environment`: the machine or the
    /// operating system prevents it.
    #[schemars(extend("enum" = ["usage", "refused", "damaged", "environment"]))]
    pub class: &'static str,
    /// What failed, and why. A line for each failure if there are several.
    pub message: &'a str,
    /// What to do; empty if the message says it.
    pub help: &'a str,
}

impl fmt::Display for Failure {
    /// Writes `error: ...` and, indented below it, `help: ...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", indented(&self.message))?;
        if !self.help.is_empty() {
            write!(f, "\n help: {}", indented(&self.help))?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

fn indented(text: &str) -> String {
    text.replace('\n', "\n       ")
}
