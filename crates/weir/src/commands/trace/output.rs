//! Writes traces to files or to standard output.

use super::WEIR_FORMAT;
use crate::failure::Failure;
use crate::files;
use crate::signals::interruption_then_end;
use crate::traces::STANDARD_STREAM;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_model::ErrorKind;
use weir_trace::{Format, MaybeGzip, Record, WriteError, Writer, represents_disks};

/// A buffered file or standard output.
type BufferedOutput<'o> = BufWriter<Box<dyn Write + 'o>>;

/// The destination of a trace: standard output, or a file that gets its name once it is complete.
pub(super) struct Output {
    path: PathBuf,
    /// The temporary file that is written until then.
    temporary: Option<(PathBuf, File)>,
    /// Whether an incomplete trace is kept.
    keeps_incomplete: bool,
    /// Set once the user interrupts the writing.
    interrupted: Option<Arc<AtomicBool>>,
    /// Whether a request has been written.
    has_content: Cell<bool>,
}

impl Output {
    pub(super) fn create(path: &Path, force: bool) -> Result<Self, Failure> {
        if path.as_os_str() == STANDARD_STREAM {
            return Ok(Self {
                path: "standard output".into(),
                temporary: None,
                keeps_incomplete: false,
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
        let part = files::create_part(path, 0o666)?;
        Ok(Self {
            path: path.into(),
            temporary: Some(part),
            keeps_incomplete: false,
            interrupted: None,
            has_content: Cell::default(),
        })
    }

    /// Keeps the incomplete trace after a failure, for traces that cannot be produced again.
    pub(super) fn keep_incomplete(self) -> Self {
        Self { keeps_incomplete: true, ..self }
    }

    /// Makes Ctrl-C end the writing and remove the file; a second Ctrl-C ends the process at once.
    ///
    /// For standard output it leaves the signal's default action: the reader sees the end of the stream.
    ///
    /// # Errors
    /// Fails if signals cannot be caught.
    pub(super) fn remove_on_interrupt(self) -> Result<Self, Failure> {
        let interrupted = self.temporary.as_ref().map(|_| interruption_then_end()).transpose()?;
        Ok(Self { interrupted, ..self })
    }

    /// Lets `make` write a trace of this format.
    ///
    /// If `make` succeeds, the file exists afterwards. If it fails, no file is left, unless it is to be
    /// [kept](Self::keeps_incomplete) and has a request in it.
    ///
    /// # Errors
    /// Returns the error of `make`. Also fails if weir only reads the format, or if the file cannot be
    /// written.
    pub(super) fn write<T>(
        self,
        format: &Format,
        make: impl FnOnce(&mut TraceWriter<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let made = self.check(format).and_then(|()| {
            let is_standard = self.temporary.is_none();
            let path = self.path.clone();
            let cannot = move |error: &io::Error| Failure::os("write", &path, error);
            let writer = Writer::new(format, self.compressor()).map_err(|error| match error {
                WriteError::Io(error) => cannot(&error),
                refused @ WriteError::NotWritable { .. } => {
                    Failure::from_message(ErrorKind::Usage, &refused.to_string())
                }
            })?;
            let mut traced = TraceWriter {
                writer,
                is_standard,
                interrupted: self.interrupted.clone(),
                has_content: &self.has_content,
                output_failure: Box::new(cannot),
            };
            let made = make(&mut traced)?;
            // The same signal may have ended the source of the requests.
            traced.check_interrupted()?;
            traced.finish()?;
            Ok(made)
        });
        match made {
            Ok(made) => self.commit().map(|()| made),
            Err(failure) if self.keeps_incomplete && self.has_content.get() => {
                let path = self.path.display().to_string();
                self.commit()?;
                let message =
                    format!("{}; what was written by then is in {path}, which breaks off", failure.message);
                Err(Failure { message, ..failure })
            }
            Err(failure) => {
                self.discard();
                Err(failure)
            }
        }
    }

    fn check(&self, format: &Format) -> Result<(), Failure> {
        if format.name != WEIR_FORMAT || !self.is_compressed() {
            return Ok(());
        }
        Err(Failure::usage(
            format!("{} would be packed twice: weir's own format is packed already", self.path.display()),
            "leave .gz off its name",
        ))
    }

    fn is_compressed(&self) -> bool {
        self.temporary.is_some() && self.path.extension().is_some_and(|end| end == "gz")
    }

    /// Returns a writer that compresses if the file's name says so.
    fn compressor(&self) -> MaybeGzip<BufferedOutput<'_>> {
        let out: Box<dyn Write> = match &self.temporary {
            None => Box::new(io::stdout().lock()),
            Some((_, file)) => Box::new(file),
        };
        MaybeGzip::new(BufWriter::with_capacity(1 << 20, out), self.is_compressed())
    }

    /// Makes the file durable and gives it its final name.
    fn commit(self) -> Result<(), Failure> {
        let Some((part, file)) = self.temporary else { return Ok(()) };
        let kept = file.sync_all().and_then(|()| std::fs::rename(&part, &self.path));
        kept.map_err(|error| {
            // An error is ignored: the name of a file that remains shows that it is a part.
            let _ = std::fs::remove_file(&part);
            Failure::os("write", &self.path, &error)
        })
    }

    /// Removes the incomplete file.
    fn discard(self) {
        if let Some((part, _)) = self.temporary {
            // An error is ignored: the name of a file that remains shows that it is a part.
            let _ = std::fs::remove_file(part);
        }
    }
}

/// Writes the requests of one trace.
pub(super) struct TraceWriter<'o> {
    writer: Writer<MaybeGzip<BufferedOutput<'o>>>,
    is_standard: bool,
    interrupted: Option<Arc<AtomicBool>>,
    has_content: &'o Cell<bool>,
    /// Converts an error of the output to a failure.
    output_failure: Box<dyn Fn(&io::Error) -> Failure>,
}

/// The result of writing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    Written,
    /// The format cannot represent the request.
    Unrepresentable,
    /// The reader of standard output has closed it.
    OutputClosed,
}

impl TraceWriter<'_> {
    /// Writes a request to the disk of this name.
    ///
    /// # Errors
    /// Fails if the output cannot be written, or if the user has interrupted the writing.
    pub(super) fn write(&mut self, record: &Record, disk: &str) -> Result<WriteOutcome, Failure> {
        self.check_interrupted()?;
        match self.writer.write(record, disk) {
            Ok(true) => {
                self.has_content.set(true);
                Ok(WriteOutcome::Written)
            }
            Ok(false) => Ok(WriteOutcome::Unrepresentable),
            Err(error) if self.is_closed(&error) => Ok(WriteOutcome::OutputClosed),
            Err(error) => Err((self.output_failure)(&error)),
        }
    }

    /// Fails if the user has interrupted the writing.
    fn check_interrupted(&self) -> Result<(), Failure> {
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
            Err(error) => Err((self.output_failure)(&error)),
        }
    }

    fn is_closed(&self, error: &io::Error) -> bool {
        self.is_standard && error.kind() == io::ErrorKind::BrokenPipe
    }

    fn finish(self) -> Result<(), Failure> {
        let Self { writer, is_standard, output_failure: cannot, .. } = self;
        match writer.finish().and_then(MaybeGzip::finish).and_then(|mut out| out.flush()) {
            Err(error) if !(is_standard && error.kind() == io::ErrorKind::BrokenPipe) => Err(cannot(&error)),
            _ => Ok(()),
        }
    }
}

/// Returns a note if the trace has several disks and the format cannot tell them apart.
pub(super) fn merged_disks_note(format: &Format, disks: usize) -> Option<String> {
    (disks > 1 && !represents_disks(format)).then(|| {
        format!(
            "{} does not say which disk a request is to: read again, all {disks} disks are one; another format, such as weir \
             or msr, keeps them apart",
            format.name
        )
    })
}
