"""Traces, read as data frames, and made up."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native
from ._work import threads

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

#: What names a trace's file.
PathName = str | os.PathLike[str]


class TraceWarning(UserWarning):
    """Part of a trace could not be used: lines that are not as its format says, or what follows a break; or its format is in doubt."""


class Format(NamedTuple):
    """A format of traces."""

    name: str
    about: str
    #: Whether it says when requests were made.
    timed: bool
    #: Whether `generate` writes it.
    written: bool


def formats() -> list[Format]:
    """All formats that have names; others are described as in `csv:time_us,disk,op,offset,size`."""
    return [Format(*known) for known in _native.formats()]


@dataclass(frozen=True)
class Trace:
    """The trace in a file, read anew, from its start, by whoever asks for what is in it.

    As a data frame a request is a row, in the order of the file:

    - `time_ns`: when it was made, in nanoseconds by the trace's own clock; null if the format has no times
    - `disk`: what the trace calls the disk
    - `op`: `read`, `write` or `trim`
    - `offset`, `size`: its first byte, and how many there are
    - `response_ns`: how long it took on the traced machine, in nanoseconds; null where the trace does not say, and no column
      if its format has none

    It has Arrow's C stream interface: whatever takes that (polars, pyarrow, DuckDB ...) takes a trace.
    """

    path: Path
    #: The format it is read as.
    format: str
    #: Whether that says when requests were made.
    timed: bool
    #: Whether lines that cannot be read are an error.
    strict: bool = False
    #: Whether it says how long requests took.
    responses: bool = False
    #: The format it was said to have; without it the format is found out by whoever reads it.
    named: str | None = None

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns."""
        import pyarrow as pa

        fields = [
            pa.field("time_ns", pa.uint64(), nullable=not self.timed),
            pa.field("disk", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            pa.field("op", pa.dictionary(pa.int8(), pa.string()), nullable=False),
            pa.field("offset", pa.uint64(), nullable=False),
            pa.field("size", pa.uint64(), nullable=False),
        ]
        if self.responses:
            fields.append(pa.field("response_ns", pa.uint64()))
        return pa.schema(fields)

    def batches(self, rows: int = 1 << 16) -> pyarrow.RecordBatchReader:
        """So many requests at a time, in constant memory.

        Warns with `TraceWarning` at the end if part of the trace could not be used, or raises `TraceError` if it is strict.
        """
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self._batches(rows))

    def to_arrow(self) -> pyarrow.Table:
        """All of it as a table of pyarrow."""
        import pyarrow as pa

        return pa.Table.from_batches(self._batches(1 << 20), self.schema).unify_dictionaries()

    def to_polars(self) -> polars.DataFrame:
        """All of it as a frame of polars."""
        import polars

        return polars.DataFrame(self.to_arrow())

    def to_pandas(self) -> pandas.DataFrame:
        """All of it as a frame of pandas."""
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def notes(self) -> list[str]:
        """What could not be used, for people; the trace is read for that."""
        reader = self._open()
        while reader.batch(1 << 20) is not None:
            pass
        return reader.notes()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.batches().__arrow_c_stream__(requested_schema)

    def _open(self) -> _native.Reader:
        return _native.Reader(self.path, self.named, self.strict)

    def _batches(self, rows: int) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow as pa

        if rows < 1:
            raise ValueError(f"batches of {rows} rows have no end; name 1 or more")
        reader = self._open()
        ops = pa.array(["read", "write", "trim"])
        while (batch := reader.batch(rows)) is not None:

            def numbers(kind: Any, column: bytes, count: int = batch.rows) -> Any:
                return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(column)])

            times = numbers(pa.uint64(), batch.time_ns) if self.timed else pa.nulls(batch.rows, pa.uint64())
            columns = [
                times,
                pa.DictionaryArray.from_arrays(numbers(pa.int32(), batch.disk), pa.array(batch.disks)),
                pa.DictionaryArray.from_arrays(numbers(pa.int8(), batch.op), ops),
                numbers(pa.uint64(), batch.offset),
                numbers(pa.uint64(), batch.size),
            ]
            if self.responses:
                import pyarrow.compute as pc

                missing = pc.equal(numbers(pa.uint8(), batch.has_response), 0)
                nothing = pa.scalar(None, pa.uint64())
                columns.append(pc.if_else(missing, nothing, numbers(pa.uint64(), batch.response_ns)))
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
        warn(reader.notes())


def read_trace(path: PathName, format: str | None = None, *, strict: bool = False) -> Trace:
    """The trace in a file, packed with gzip, zstd, xz, bzip2 or not; only its beginning is read yet.

    Its format is found out unless it is named: one of `formats()`, or a description of its columns.
    Lines that cannot be read are left out, and warned of with `TraceWarning`; `strict` makes them errors.
    """
    reader = _native.Reader(path, format, strict)
    return Trace(Path(path), reader.format, reader.timed, strict, reader.responses, format)


def as_trace(trace: PathName | Trace, format: str | None, strict: bool) -> tuple[Path, str | None, bool]:
    """The file, format and strictness of what names a trace."""
    if isinstance(trace, Trace):
        return trace.path, format or trace.named, strict or trace.strict
    return Path(trace), format, strict


def warn(notes: list[str]) -> None:
    """Warns whoever called the package of what could not be used."""
    for note in notes:
        warnings.warn(note, TraceWarning, stacklevel=3)


def generate(
    load: str,
    path: PathName,
    *,
    seed: int = 1,
    requests: int | None = None,
    duration: str | None = None,
    format: str = "weir",
) -> int:
    """Writes what a load of words asks for as a trace, and tells how many requests it has: `weir trace generate`.

    The words are those of the command line: `zipf`, `hotcold part=10% hits=90% over=4GiB rate=500`, ... The same words and
    seed make the same trace. It ends with the load, or after so many requests, or after a time like `10min`.
    The file at `path` is replaced once the trace is whole; a folder, a pipe or a device there is refused. It is packed with gzip if
    its name ends in `.gz`, which weir's own format, packed already, cannot have.
    """
    path = Path(path)
    gzip = path.suffix == ".gz"
    if gzip and format == "weir":
        raise ValueError(f"{path} would be packed twice: weir's own format is packed already; leave .gz off its name")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no ordinary file; name another one")
    with tempfile.TemporaryDirectory(prefix=".", dir=path.absolute().parent) as folder:
        part = Path(folder) / "part"
        with threads(1) as (pool, stop):
            count = pool.submit(_native.generate, load, part, seed, requests, duration, format, gzip, stop).result()
        part.replace(path)
    return count
