"""Caches, simulated over traces."""

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

#: One name, or several.
Names = str | Iterable[str]


class Ratios(TypedDict):
    """What was asked for, and what of it the cache had not."""

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
    """What a trace came to with one cache: what `weir sim cache --json` prints, and the size as it was asked for."""

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
    """What caches came to, one after the other as they were asked for. As a frame each is a row; what is of reads and
    writes alone has columns `reads_misses`, `writes_misses` and so on."""

    def rows(self) -> list[dict[str, Any]]:
        """Flat, as in a frame."""
        return [flat(figures) for figures in self]

    def to_arrow(self) -> pyarrow.Table:
        """As a table of pyarrow."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.rows(), schema())

    def to_polars(self) -> polars.DataFrame:
        """As a frame of polars."""
        import polars

        return polars.DataFrame(self.to_arrow())

    def to_pandas(self) -> pandas.DataFrame:
        """As a frame of pandas."""
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame


class Caches(NamedTuple):
    """Caches that are asked for, as they are named."""

    caches: list[tuple[str, str, str]]
    block_size: str
    write_mode: str
    dirty: str

    def native(self) -> _native.Caches:
        """Checked."""
        return _native.Caches(self.caches, self.block_size, self.write_mode, self.dirty)


def caches_of(
    policies: Names, sizes: Names, admissions: Names, block_size: str, write_mode: str, dirty: str
) -> Caches:
    """Every policy with every admission policy at every size."""
    named = itertools.product(
        listed("policies", policies, "lru"),
        listed("admissions", admissions, "all"),
        listed("sizes", sizes, "10%, 1GiB or 26921blk"),
    )
    return Caches(list(named), block_size, write_mode, dirty)


def listed(argument: str, names: Names, example: str) -> list[str]:
    """One name as well as several."""
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
    """Plays a trace to a cache of every policy with every admission policy at every size: `weir sim cache`.

    Sizes are shares of the blocks the trace touches, bytes or blocks: `10%`, `1GiB`, `26921blk`. Policies are `POLICIES` and
    `ADMISSIONS`; `write_mode` is `through`, `around` or `back`, and with that at most the share `dirty` of a cache is dirty.
    Takes as many threads as there are cores unless `threads` says how many.
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
    """Plays a pass: what each of its caches came to, by its index."""
    start = time.thread_time()
    caches, text = run.play(nth)
    took = (time.thread_time() - start) / len(caches)
    return [(at, {**figures, "cpu_seconds": took}) for at, figures in zip(caches, json.loads(text), strict=True)]


def whole(path: PathName, trace: _native.BlockTrace, size: str, figures: dict[str, Any]) -> CacheFigures:
    """Figures with what they are of."""
    of = {
        "trace": str(path),
        "notes": trace.notes,
        "blocks": trace.blocks,
        "block_bytes": trace.block_bytes,
        "size": size,
    }
    return cast(CacheFigures, {**of, **figures})


def flat(figures: CacheFigures) -> dict[str, Any]:
    """A row of a frame."""
    row: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, dict):
            row |= {f"{name}_{of}": number for of, number in value.items()}
        else:
            row[name] = value
    return row


def nested(row: dict[str, Any]) -> CacheFigures:
    """What `flat` made a row of."""
    figures = {name: row[name] for name in CacheFigures.__annotations__ if name in row}
    for part in ("reads", "writes"):
        figures[part] = {name: row[f"{part}_{name}"] for name in Ratios.__annotations__}
    return cast(CacheFigures, figures)


def schema() -> pyarrow.Schema:
    """The columns of results."""
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
