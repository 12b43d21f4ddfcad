"""Analysis of traces, and their miss-ratio curves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from . import _native
from ._work import threads
from .caches import Names, listed
from .traces import PathName, Trace, as_trace, warn

#: The document that `weir trace analyze --json` prints; docs/reference/trace-analysis.md explains its
#: figures.
Analysis = dict[str, Any]


@dataclass(frozen=True)
class MissRatioCurve:
    """The share of the accesses that a cache misses, by its size."""

    policy: str
    #: The sampled share of the blocks; 1 if the curve is exact.
    rate: float
    #: Block size in bytes.
    block_bytes: int
    #: Cache sizes in blocks, ascending.
    size_blocks: list[int]
    #: Ratio of misses to accesses at each size.
    miss_ratio: list[float]
    #: One standard error of each ratio; 0 if it is exact, `None` if the sample is too small to estimate it.
    error: list[float | None]


def analyze(
    trace: PathName | Trace,
    policies: Names = ("lru", "arc", "s3fifo"),
    *,
    sample: str | None = None,
    blocks: int | None = None,
    disk: str | None = None,
    format: str | None = None,
    strict: bool = False,
) -> Analysis:
    """Analyse a trace: `weir trace analyze`.

    At most `blocks` blocks (default: 4194304) are tracked; if there are more, a share of them stands for all,
    with a `TraceWarning`. LRU's miss-ratio curve comes from the tracked blocks, those of the other policies
    from a sample: `sample`, such as `5%` or `100000blk` (default: 1 % of the blocks, but at least 8192 where
    there are as many, and at most 65536). `disk` selects a single disk.
    """
    path, format, strict = as_trace(trace, format, strict)
    with threads(1) as (pool, stop):
        work = pool.submit(_native.analyze, path, format, disk, strict, listed("policies", policies, "lru"), sample, blocks, stop)
        analysis: Analysis = json.loads(work.result())
    warn(analysis["notes"])
    return analysis


def mrc(
    trace: PathName | Trace,
    policies: Names = "lru",
    *,
    sample: str | None = None,
    blocks: int | None = None,
    disk: str | None = None,
    format: str | None = None,
    strict: bool = False,
) -> list[MissRatioCurve]:
    """Return the miss-ratio curves of a trace, one per policy, as in `analyze`.

    A sample of more than four billion accesses cannot be played: that curve is omitted, with a
    `TraceWarning`.
    """
    names = listed("policies", policies, "lru")
    analysis = analyze(trace, names, sample=sample, blocks=blocks, disk=disk, format=format, strict=strict)
    by_policy = {curve.policy: curve for curve in curves(analysis)}
    return [by_policy[name] for name in names if name in by_policy]


def curves(analysis: Analysis) -> list[MissRatioCurve]:
    """Return the curves of an analysis."""

    def curve(of: dict[str, Any]) -> MissRatioCurve:
        def column(name: str) -> list[Any]:
            return [point[name] for point in of["points"]]

        return MissRatioCurve(
            policy=of["policy"],
            rate=of["rate"],
            block_bytes=analysis["block_bytes"],
            size_blocks=column("size_blocks"),
            miss_ratio=column("miss_ratio"),
            error=column("error"),
        )

    return [curve(of) for of in analysis["curves"]]
