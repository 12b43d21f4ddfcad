"""Simulates caches over traces."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, cast

from . import _native
from ._work import threads as work_threads
from .traces import PathName, Trace, as_trace, warn

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

#: One name, or several names.
Names = str | Iterable[str]


class Ratios(TypedDict):
    """Accesses and misses, with their ratios."""

    accesses: int
    misses: int
    requests: int
    missed_requests: int
    bytes: int
    missed_bytes: int
    miss_ratio: float
    hit_ratio: float
    request_hit_ratio: float
    byte_hit_ratio: float


class CacheFigures(Ratios):
    """The outcome of a trace with one cache: what `weir sim cache --json` prints, and the size as it was
    given."""

    trace: str
    notes: list[str]
    blocks: int
    block_bytes: int
    policy: str
    admission: str
    size: str
    size_blocks: int
    size_bytes: int
    reads: Ratios
    writes: Ratios
    cache_writes: int
    cache_fills: int
    clwa: float | None
    evictions: int
    back_end_reads: int
    back_end_writes: int
    flushed: int
    evicted_dirty: int
    dirty_at_end: int
    cpu_seconds: float


class Results(list[CacheFigures]):
    """The outcomes of caches, in the order of the request. In a frame each is a row; figures of reads and of
    writes have columns `reads_misses`, `writes_misses` and so on."""

    def rows(self) -> list[dict[str, Any]]:
        """Return flat rows, as in a frame."""
        return [flat(figures) for figures in self]

    def to_arrow(self) -> pyarrow.Table:
        """Return a pyarrow table."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.rows(), schema())

    def to_polars(self) -> polars.DataFrame:
        """Return a polars frame."""
        import polars

        return polars.DataFrame(self.to_arrow())

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas frame."""
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame


class Caches(NamedTuple):
    """Requested caches, as the caller named them."""

    caches: list[tuple[str, str, str]]
    block_size: str
    write_mode: str
    dirty: str

    def native(self) -> _native.Caches:
        """Check the names and return the native configurations."""
        return _native.Caches(self.caches, self.block_size, self.write_mode, self.dirty)


def caches_of(
    policies: Names, sizes: Names, admissions: Names, block_size: str, write_mode: str, dirty: str
) -> Caches:
    """Combine every policy with every admission policy at every size."""
    named = itertools.product(
        listed("policies", policies, "lru"),
        listed("admissions", admissions, "all"),
        listed("sizes", sizes, "10%, 1GiB or 26921blk"),
    )
    return Caches(list(named), block_size, write_mode, dirty)


def listed(argument: str, names: Names, example: str) -> list[str]:
    """Return a list of names, from one name or several."""
    several = [names] if isinstance(names, str) or not isinstance(names, Iterable) else list(names)
    for name in several:
        if not isinstance(name, str):
            raise TypeError(f"{argument} has {name!r}, which is no text; write it as text, such as {example}")
    return several


def simulate(
    trace: PathName | Trace,
    policies: Names = "lru",
    sizes: Names = "10%",
    admissions: Names = "all",
    *,
    block_size: str = "4KiB",
    write_mode: str = "through",
    dirty: str = "50%",
    format: str | None = None,
    strict: bool = False,
    threads: int | None = None,
) -> Results:
    """Play a trace to a cache of every policy with every admission policy at every size: `weir sim cache`.

    Sizes are shares of the blocks that the trace touches, bytes or blocks: `10%`, `1GiB`, `26921blk`. The
    names of policies are in `POLICIES` and `ADMISSIONS`. `write_mode` is `through`, `around` or `back`; with
    `back` at most the share `dirty` of a cache is dirty. It uses `threads` threads (default: one per core).
    """
    caches = caches_of(policies, sizes, admissions, block_size, write_mode, dirty)
    path, format, strict = as_trace(trace, format, strict)
    native = caches.native()
    with work_threads(threads) as (pool, stop):
        loaded = pool.submit(_native.BlockTrace, path, format, strict, native, stop).result()
        run = loaded.run(native)
        passes = pool.map(lambda nth: play(run, nth), range(run.passes))
        figures = dict(itertools.chain.from_iterable(passes))
    warn(loaded.notes)
    return Results(whole(path, loaded, size, figures[at]) for at, (_, _, size) in enumerate(caches.caches))


def play(run: _native.Run, nth: int) -> list[tuple[int, dict[str, Any]]]:
    """Run a pass; return the outcome of each of its caches with its index."""
    start = time.thread_time()
    caches, text = run.play(nth)
    took = (time.thread_time() - start) / len(caches)
    return [(at, {**figures, "cpu_seconds": took}) for at, figures in zip(caches, json.loads(text), strict=True)]


def whole(path: PathName, trace: _native.BlockTrace, size: str, figures: dict[str, Any]) -> CacheFigures:
    """Add the trace and the size to figures."""
    of = {
        "trace": str(path),
        "notes": trace.notes,
        "blocks": trace.blocks,
        "block_bytes": trace.block_bytes,
        "size": size,
    }
    return cast(CacheFigures, {**of, **figures})


def flat(figures: CacheFigures) -> dict[str, Any]:
    """Return figures as a row of a frame."""
    row: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, dict):
            row |= {f"{name}_{of}": number for of, number in value.items()}
        else:
            row[name] = value
    return row


def nested(row: dict[str, Any]) -> CacheFigures:
    """Return the figures of a row that `flat` made."""
    figures = {name: row[name] for name in CacheFigures.__annotations__ if name in row}
    for part in ("reads", "writes"):
        figures[part] = {name: row[f"{part}_{name}"] for name in Ratios.__annotations__}
    return cast(CacheFigures, figures)


def schema() -> pyarrow.Schema:
    """Return the columns of results."""
    import pyarrow as pa

    def all_of(kind: Any, names: str) -> list[tuple[str, Any]]:
        return [(name, kind) for name in names.split()]

    text, count, share = pa.string(), pa.int64(), pa.float64()
    counts = all_of(count, "accesses misses requests missed_requests bytes missed_bytes")
    ratios = counts + all_of(share, "miss_ratio hit_ratio request_hit_ratio byte_hit_ratio")
    return pa.schema(
        all_of(text, "trace")
        + all_of(pa.list_(text), "notes")
        + all_of(count, "blocks block_bytes")
        + all_of(text, "policy admission size")
        + all_of(count, "size_blocks size_bytes")
        + ratios
        + [(f"{part}_{name}", kind) for part in ("reads", "writes") for name, kind in ratios]
        + all_of(count, "cache_writes cache_fills")
        + all_of(share, "clwa")
        + all_of(count, "evictions back_end_reads back_end_writes flushed evicted_dirty dirty_at_end")
        + all_of(share, "cpu_seconds")
    )
