//! Where a trace is written.

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

/// A file, or standard output.
type Out<'o> = BufWriter<Box<dyn Write + 'o>>;

/// Where a trace goes: a file that is there once it is whole, or standard output.
pub(super) struct Output {
    path: PathBuf,
    /// What is written until then.
    part: Option<(PathBuf, File)>,
    /// What there is of a trace that cannot be made whole is worth keeping.
    kept_if_broken: bool,
    /// Set once the user wants an end before the trace is whole.
    interrupted: Option<Arc<AtomicBool>>,
    /// A request is in it.
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
        // A name that nothing else has: what is there is never written to.
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

    /// What there is of a trace that cannot be made whole is kept: it cannot be made again.
    pub(super) fn kept_if_broken(self) -> Self {
        Self { kept_if_broken: true, ..self }
    }

    /// Ctrl-C ends the writing, and nothing of the file is left; a second one ends the process at once.
    /// Standard output is left to the signal: what reads it sees the end.
    ///
    /// # Errors
    /// If signals cannot be caught.
    pub(super) fn removed_if_interrupted(self) -> Result<Self, Failure> {
        let interrupted = self.part.as_ref().map(|_| interruption_then_end()).transpose()?;
        Ok(Self { interrupted, ..self })
    }

    /// Has `make` write a trace of this format: the file is there if it did, and nothing of it if not, unless it is
    /// to be [kept](Self::kept_if_broken) and there is a request in it.
    ///
    /// # Errors
    /// As `make`, or if the format is only read, or the file cannot be written.
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
            // What it is made of may have ended by the same signal.
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

    /// What packs as the file's name says.
    fn pack(&self) -> Packing<Out<'_>> {
        let out: Box<dyn Write> = match &self.part {
            None => Box::new(io::stdout().lock()),
            Some((_, file)) => Box::new(file),
        };
        Packing::new(BufWriter::with_capacity(1 << 20, out), self.is_packed())
    }

    /// It is whole.
    fn keep(self) -> Result<(), Failure> {
        let Some((part, file)) = self.part else { return Ok(()) };
        let kept = file.sync_all().and_then(|()| std::fs::rename(&part, &self.path));
        kept.map_err(|error| {
            // What remains of it is told by its name.
            let _ = std::fs::remove_file(&part);
            Failure::os("write", &self.path, &error)
        })
    }

    /// It will not be.
    fn give_up(self) {
        if let Some((part, _)) = self.part {
            // What remains of it is told by its name.
            let _ = std::fs::remove_file(part);
        }
    }
}

/// A trace as it is written.
pub(super) struct Traced<'o> {
    writer: Writer<Packing<Out<'o>>>,
    is_standard: bool,
    interrupted: Option<Arc<AtomicBool>>,
    has_content: &'o Cell<bool>,
    /// What is said of an error.
    cannot: Box<dyn Fn(&io::Error) -> Failure>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Said,
    /// The format has no way to say it.
    Unsaid,
    /// Who reads it has enough.
    Enough,
}

impl Traced<'_> {
    /// Writes a request of the disk of this name.
    ///
    /// # Errors
    /// If the output takes no more, or the user wants an end.
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

    /// Fails if the user wants an end.
    fn go_on(&self) -> Result<(), Failure> {
        match self.interrupted.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            true => Err(Failure::environment("interrupted; the unfinished trace is removed", "")),
            false => Ok(()),
        }
    }

    /// Has all of it so far be where it goes, so that it is there whatever becomes of this process. Whether more is wanted.
    ///
    /// # Errors
    /// If the output takes no more.
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

/// What is to be said of disks that are no longer told apart.
pub(super) fn merged(format: &Format, disks: usize) -> Option<String> {
    (disks > 1 && !tells_disks(format)).then(|| {
        format!(
            "{} does not say which disk a request is to: read again, all {disks} disks are one; another format, such as weir \
             or msr, keeps them apart",
            format.name
        )
    })
}
