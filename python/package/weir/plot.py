"""Plots of traces and caches with matplotlib. Each function draws on `ax`, or on a new figure, and returns
the axes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from .analysis import Analysis, MissRatioCurve, curves
from .caches import CacheFigures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
# Cache sizes that span more than this factor are drawn on a logarithmic axis.
WIDE_SPAN = 30


def mrc(of: Analysis | Iterable[MissRatioCurve], ax: Axes | None = None) -> Axes:
    """Plot miss ratios by cache size, one line per policy; sampled curves have one standard error shaded. The
    axis of sizes is logarithmic if they span more than a decade and a half."""
    ax = _axes(ax)
    every: list[float] = []
    for curve in curves(of) if isinstance(of, dict) else of:
        sizes = [blocks * curve.block_bytes for blocks in curve.size_blocks]
        every += [size for size in sizes if size > 0]
        (line,) = ax.plot(sizes, curve.miss_ratio, label=curve.policy)
        errors = [error or 0.0 for error in curve.error]
        if any(errors):
            low = [ratio - error for ratio, error in zip(curve.miss_ratio, errors, strict=True)]
            high = [ratio + error for ratio, error in zip(curve.miss_ratio, errors, strict=True)]
            ax.fill_between(sizes, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    if every and max(every) > WIDE_SPAN * min(every):
        ax.set_xscale("log", base=2)
        ax.set_xlim(min(every), max(every))
    else:
        ax.set_xlim(0, None)
    _in_bytes(ax.xaxis)
    ax.set(xlabel="cache size", ylabel="miss ratio", ylim=(0, 1.02))
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def heat(analysis: Analysis, ax: Axes | None = None) -> Axes:
    """Plot accesses by time and address, darker where there are more; disks are stacked."""
    from matplotlib.colors import LogNorm

    ax = _axes(ax)
    timeline = analysis["timeline"]
    windows, regions = len(timeline["heat"]), len(timeline["heat"][0])
    unit, what = _clock(windows * timeline["window"]) if analysis["timed"] else (1, "requests")
    width, height = timeline["window"] / unit, timeline["region_blocks"] * analysis["block_bytes"]
    start = timeline["first_block"] * analysis["block_bytes"]
    by_region = [[window[region] or float("nan") for window in timeline["heat"]] for region in range(regions)]
    mesh = ax.imshow(
        by_region,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        cmap="viridis_r",
        norm=LogNorm(vmin=1),
        extent=(0, windows * width, start, start + regions * height),
    )
    ax.figure.colorbar(mesh, ax=ax, label="accesses", format="%g")
    _in_bytes(ax.yaxis)
    ax.set(xlabel=what, ylabel="offset")
    return ax


def compare(
    results: Iterable[CacheFigures],
    metric: Literal["miss_ratio", "hit_ratio", "request_hit_ratio", "byte_hit_ratio"] = "miss_ratio",
    ax: Axes | None = None,
) -> Axes:
    """Compare policies: a group of bars per trace and size, a bar per policy and admission policy."""
    ax = _axes(ax)
    bars = {
        (figures["trace"], figures["size"], figures["policy"], figures["admission"]): figures[metric]
        for figures in results
    }
    traces = list(dict.fromkeys(trace for trace, *_ in bars))
    groups = list(dict.fromkeys((trace, size) for trace, size, *_ in bars))
    names = list(dict.fromkeys((policy, admission) for *_, policy, admission in bars))
    width = 0.8 / max(len(names), 1)
    for nth, (policy, admission) in enumerate(names):
        at = [group + (nth - (len(names) - 1) / 2) * width for group in range(len(groups))]
        heights = [bars.get((trace, size, policy, admission), 0.0) for trace, size in groups]
        ax.bar(at, heights, width, label=policy if admission == "all" else f"{policy}, {admission}")
    if len(traces) > 1:
        labels = [f"{trace.rsplit('/', 1)[-1]}, {size}" for trace, size in groups]
        ax.set_xticks(range(len(groups)), labels, rotation=30, ha="right")
    else:
        ax.set_xticks(range(len(groups)), [size for _, size in groups])
    ax.set(xlabel="cache size", ylabel=metric.replace("_", " "))
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def _clock(nanos: float) -> tuple[float, str]:
    """Return a unit, in nanoseconds, for times up to `nanos`, and the label of its axis."""
    units = [(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s"), (60e9, "min"), (3600e9, "h"), (86400e9, "days")]
    unit, name = [each for each in units if each[0] * 2 <= nanos or each[0] == 1.0][-1]
    return unit, f"time ({name})"


def _bytes(size: float) -> str:
    """Format a size with its unit: 4 KiB, 1.5 GiB."""
    power = 0
    while power < len(SIZES) - 1 and size >= 1024 * (1 - 1e-9):
        size, power = size / 1024, power + 1
    return f"{size:.4g} {SIZES[power]}" if size else "0"


def _in_bytes(axis: Axis) -> None:
    """Place the ticks of an axis of bytes at powers of two, or at multiples of one, labelled in KiB, MiB and
    so on."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    if axis.get_scale() == "log":
        axis.set_major_locator(LogLocator(base=2, numticks=5))
        axis.set_minor_locator(NullLocator())
    else:
        step = 1
        while step * 7 < high - low:
            step *= 2
        axis.set_major_locator(MultipleLocator(step))
    axis.set_major_formatter(FuncFormatter(lambda size, _: _bytes(size)))


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    from matplotlib import pyplot

    _, ax = pyplot.subplots(layout="constrained")
    return ax
