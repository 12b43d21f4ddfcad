"""What traces are like, and their miss-ratio curves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from . import _native
from ._work import threads
from .caches import Names, listed
from .traces import PathName, Trace, as_trace, warn

#: The document `weir trace analyze --json` prints; docs/reference/trace-analysis.md says what its figures mean.
Analysis = dict[str, Any]


@dataclass(frozen=True)
class MissRatioCurve:
    """Which share of the accesses a cache misses, by its size."""

    policy: str
    #: The share of the blocks it is from; 1 if it is exact.
    rate: float
    #: The size of a block.
    block_bytes: int
    #: Sizes, ascending.
    size_blocks: list[int]
    #: Misses to accesses.
    miss_ratio: list[float]
    #: One standard error of each; 0 if it is exact, `None` if the sample is too small to tell.
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
    """What a trace is like: `weir trace analyze`.

    At most `blocks` blocks are looked at one by one, 4194304 unless given; of more a share stands for all, with a
    `TraceWarning`. LRU's miss-ratio curve is from these, those of the other policies are from a sample: `sample`, like `5%`
    or `100000blk`, or 1 %, all of them up to 8192, and no more than 65536. `disk` names the only disk to look at.
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
    """Miss-ratio curves of a trace, one a policy, as `analyze` has them.

    A sample of more than four billion accesses cannot be played: then that curve is left out, with a `TraceWarning`.
    """
    names = listed("policies", policies, "lru")
    analysis = analyze(trace, names, sample=sample, blocks=blocks, disk=disk, format=format, strict=strict)
    by_policy = {curve.policy: curve for curve in curves(analysis)}
    return [by_policy[name] for name in names if name in by_policy]


def curves(analysis: Analysis) -> list[MissRatioCurve]:
    """The curves of an analysis."""

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
