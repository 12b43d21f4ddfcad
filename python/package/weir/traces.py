"""Reads traces as data frames, and generates synthetic ones."""

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

#: The path of a trace file.
PathName = str | os.PathLike[str]


class TraceWarning(UserWarning):
    """Part of a trace could not be used (malformed lines, or a truncated end), or its format is in doubt."""


class Format(NamedTuple):
    """A trace format."""

    name: str
    about: str
    #: Whether it has arrival times.
    timed: bool
    #: Whether `generate` can write it.
    writable: bool


def formats() -> list[Format]:
    """Return all named formats; others are described as in `csv:time_us,disk,op,offset,size`."""
    return [Format(*known) for known in _native.formats()]


@dataclass(frozen=True)
class Trace:
    """A trace file. Every method that needs its contents reads the file from its start.

    In a data frame each request is a row, in file order:

    - `time_ns`: arrival time in nanoseconds, by the trace's own clock; null if the format has no times
    - `disk`: the trace's name of the disk
    - `op`: `read`, `write` or `trim`
    - `offset`, `size`: its first byte and its length in bytes
    - `response_ns`: response time on the traced machine in nanoseconds; null where the trace has none, and no column
      if its format has none

    It has Arrow's C stream interface, so libraries that accept one (polars, pyarrow, DuckDB ...) accept a
    trace.
    """

    path: Path
    #: The format it is read as.
    format: str
    #: Whether it has arrival times.
    timed: bool
    #: Whether malformed lines are an error.
    strict: bool = False
    #: Whether it has response times.
    responses: bool = False
    #: The given format; without one, each read detects the format.
    named: str | None = None

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns of the data frame."""
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
        """Return the requests in batches of `rows`, in constant memory.

        If part of the trace could not be used, it warns with `TraceWarning` at the end, or raises
        `TraceError` if the trace is strict.
        """
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self._batches(rows))

    def to_arrow(self) -> pyarrow.Table:
        """Return the whole trace as a pyarrow table."""
        import pyarrow as pa

        return pa.Table.from_batches(self._batches(1 << 20), self.schema).unify_dictionaries()

    def to_polars(self) -> polars.DataFrame:
        """Return the whole trace as a polars frame."""
        import polars

        return polars.DataFrame(self.to_arrow())

    def to_pandas(self) -> pandas.DataFrame:
        """Return the whole trace as a pandas frame."""
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def notes(self) -> list[str]:
        """Return notes about data that could not be used; this reads the whole trace."""
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
    """Open a trace file, which may be compressed with gzip, zstd, xz or bzip2; only its beginning is read.

    `format` is one of `formats()`, or a description of its columns (default: detect it). Malformed lines are
    skipped, with a `TraceWarning`; `strict` makes them errors.
    """
    reader = _native.Reader(path, format, strict)
    return Trace(Path(path), reader.format, reader.timed, strict, reader.responses, format)


def as_trace(trace: PathName | Trace, format: str | None, strict: bool) -> tuple[Path, str | None, bool]:
    """Return the path, format and strictness of a trace or a path."""
    if isinstance(trace, Trace):
        return trace.path, format or trace.named, strict or trace.strict
    return Path(trace), format, strict


def warn(notes: list[str]) -> None:
    """Issue the notes as warnings, attributed to the caller of the package."""
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
    """Write a synthetic load as a trace; return its number of requests: `weir trace generate`.

    `load` has the words of the command line: `zipf`, `hotcold part=10% hits=90% over=4GiB rate=500`, ... The
    same words and seed give the same trace. It ends with the load, after `requests` requests, or after a
    `duration` such as `10min`. The file at `path` is replaced once the trace is complete; a folder, a pipe or
    a device there is refused. The trace is compressed with gzip if its name ends in `.gz`; weir's own format,
    already compressed, cannot be.
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
