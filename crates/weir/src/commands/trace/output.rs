//! Writes traces to files or to standard output.

use super::OWN;
use crate::failure::Failure;
use crate::files;
use crate::signals::interruption_then_end;
use crate::traces::STANDARD;
use std::cell::Cell;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_model::ErrorKind;
use weir_trace::{Format, Packing, Record, WriteError, Writer, tells_disks};

/// A buffered file or standard output.
type Out<'o> = BufWriter<Box<dyn Write + 'o>>;

/// The destination of a trace: standard output, or a file that gets its name once it is complete.
pub(super) struct Output {
    path: PathBuf,
    /// The temporary file that is written until then.
    part: Option<(PathBuf, File)>,
    /// Whether an incomplete trace is kept.
    kept_if_broken: bool,
    /// Set once the user interrupts the writing.
    interrupted: Option<Arc<AtomicBool>>,
    /// Whether a request has been written.
    has_content: Cell<bool>,
}

impl Output {
    pub(super) fn create(path: &Path, force: bool) -> Result<Self, Failure> {
        if path.as_os_str() == STANDARD {
            return Ok(Self {
                path: "standard output".into(),
                part: None,
                kept_if_broken: false,
                interrupted: None,
                has_content: Cell::default(),
            });
        }
        match std::fs::metadata(path) {
            Ok(there) if !there.is_file() => {
                return Err(Failure::refused(
                    format!("{} is not a regular file", path.display()),
                    "name another, or - for standard output",
                ));
            }
            Ok(_) if !force => {
                return Err(Failure::refused(
                    format!("{} already exists", path.display()),
                    "name another file, or write over it with --force",
                ));
            }
            _ => {}
        }
        files::refuse_kernel_folder(path)?;
        // The name is unique, so that no existing file is written to.
        let mut part = OsString::from(path);
        part.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(part);
        let file = OpenOptions::new().write(true).create_new(true).open(&part);
        let file = file.map_err(|error| Failure::os("create", &part, &error))?;
        Ok(Self {
            path: path.into(),
            part: Some((part, file)),
            kept_if_broken: false,
            interrupted: None,
            has_content: Cell::default(),
        })
    }

    /// Keeps the incomplete trace after a failure, for traces that cannot be produced again.
    pub(super) fn kept_if_broken(self) -> Self {
        Self { kept_if_broken: true, ..self }
    }

    /// Makes Ctrl-C end the writing and remove the file; a second Ctrl-C ends the process at once.
    ///
    /// For standard output it leaves the signal's default action: the reader sees the end of the stream.
    ///
    /// # Errors
    /// Fails if signals cannot be caught.
    pub(super) fn removed_if_interrupted(self) -> Result<Self, Failure> {
        let interrupted = self.part.as_ref().map(|_| interruption_then_end()).transpose()?;
        Ok(Self { interrupted, ..self })
    }

    /// Lets `make` write a trace of this format.
    ///
    /// If `make` succeeds, the file exists afterwards. If it fails, no file is left, unless it is to be
    /// [kept](Self::kept_if_broken) and has a request in it.
    ///
    /// # Errors
    /// Returns the error of `make`. Also fails if weir only reads the format, or if the file cannot be
    /// written.
    pub(super) fn write<T>(
        self,
        format: &Format,
        make: impl FnOnce(&mut Traced<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let made = self.check(format).and_then(|()| {
            let is_standard = self.part.is_none();
            let path = self.path.clone();
            let cannot = move |error: &io::Error| Failure::os("write", &path, error);
            let writer = Writer::new(format, self.pack()).map_err(|error| match error {
                WriteError::Io(error) => cannot(&error),
                refused @ WriteError::NotWritable { .. } => {
                    Failure::from_message(ErrorKind::Usage, &refused.to_string())
                }
            })?;
            let mut traced = Traced {
                writer,
                is_standard,
                interrupted: self.interrupted.clone(),
                has_content: &self.has_content,
                cannot: Box::new(cannot),
            };
            let made = make(&mut traced)?;
            // The same signal may have ended the source of the requests.
            traced.go_on()?;
            traced.finish()?;
            Ok(made)
        });
        match made {
            Ok(made) => self.keep().map(|()| made),
            Err(failure) if self.kept_if_broken && self.has_content.get() => {
                let path = self.path.display().to_string();
                self.keep()?;
                let message =
                    format!("{}; what was written by then is in {path}, which breaks off", failure.message);
                Err(Failure { message, ..failure })
            }
            Err(failure) => {
                self.give_up();
                Err(failure)
            }
        }
    }

    fn check(&self, format: &Format) -> Result<(), Failure> {
        if format.name != OWN || !self.is_packed() {
            return Ok(());
        }
        Err(Failure::usage(
            format!("{} would be packed twice: weir's own format is packed already", self.path.display()),
            "leave .gz off its name",
        ))
    }

    fn is_packed(&self) -> bool {
        self.part.is_some() && self.path.extension().is_some_and(|end| end == "gz")
    }

    /// Returns a writer that compresses if the file's name says so.
    fn pack(&self) -> Packing<Out<'_>> {
        let out: Box<dyn Write> = match &self.part {
            None => Box::new(io::stdout().lock()),
            Some((_, file)) => Box::new(file),
        };
        Packing::new(BufWriter::with_capacity(1 << 20, out), self.is_packed())
    }

    /// Makes the file durable and gives it its final name.
    fn keep(self) -> Result<(), Failure> {
        let Some((part, file)) = self.part else { return Ok(()) };
        let kept = file.sync_all().and_then(|()| std::fs::rename(&part, &self.path));
        kept.map_err(|error| {
            // An error is ignored: the name of a file that remains shows that it is a part.
            let _ = std::fs::remove_file(&part);
            Failure::os("write", &self.path, &error)
        })
    }

    /// Removes the incomplete file.
    fn give_up(self) {
        if let Some((part, _)) = self.part {
            // An error is ignored: the name of a file that remains shows that it is a part.
            let _ = std::fs::remove_file(part);
        }
    }
}

/// Writes the requests of one trace.
pub(super) struct Traced<'o> {
    writer: Writer<Packing<Out<'o>>>,
    is_standard: bool,
    interrupted: Option<Arc<AtomicBool>>,
    has_content: &'o Cell<bool>,
    /// Converts an error of the output to a failure.
    cannot: Box<dyn Fn(&io::Error) -> Failure>,
}

/// The result of writing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Said,
    /// The format cannot represent the request.
    Unsaid,
    /// The reader of standard output has closed it.
    Enough,
}

impl Traced<'_> {
    /// Writes a request to the disk of this name.
    ///
    /// # Errors
    /// Fails if the output cannot be written, or if the user has interrupted the writing.
    pub(super) fn write(&mut self, record: &Record, disk: &str) -> Result<Written, Failure> {
        self.go_on()?;
        match self.writer.write(record, disk) {
            Ok(true) => {
                self.has_content.set(true);
                Ok(Written::Said)
            }
            Ok(false) => Ok(Written::Unsaid),
            Err(error) if self.is_closed(&error) => Ok(Written::Enough),
            Err(error) => Err((self.cannot)(&error)),
        }
    }

    /// Fails if the user has interrupted the writing.
    fn go_on(&self) -> Result<(), Failure> {
        match self.interrupted.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            true => Err(Failure::environment("interrupted; the unfinished trace is removed", "run it again")),
            false => Ok(()),
        }
    }

    /// Flushes the trace to its destination, so that it survives the end of this process. Returns whether
    /// more is wanted.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub(super) fn save(&mut self) -> Result<bool, Failure> {
        match self.writer.flush() {
            Ok(()) => Ok(true),
            Err(error) if self.is_closed(&error) => Ok(false),
            Err(error) => Err((self.cannot)(&error)),
        }
    }

    fn is_closed(&self, error: &io::Error) -> bool {
        self.is_standard && error.kind() == io::ErrorKind::BrokenPipe
    }

    fn finish(self) -> Result<(), Failure> {
        let Self { writer, is_standard, cannot, .. } = self;
        match writer.finish().and_then(Packing::finish).and_then(|mut out| out.flush()) {
            Err(error) if !(is_standard && error.kind() == io::ErrorKind::BrokenPipe) => Err(cannot(&error)),
            _ => Ok(()),
        }
    }
}

/// Returns a note if the trace has several disks and the format cannot tell them apart.
pub(super) fn merged(format: &Format, disks: usize) -> Option<String> {
    (disks > 1 && !tells_disks(format)).then(|| {
        format!(
            "{} does not say which disk a request is to: read again, all {disks} disks are one; another format, such as weir \
             or msr, keeps them apart",
            format.name
        )
    })
}
