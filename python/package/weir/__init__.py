"""I/O traces as data frames, their analysis, and cache simulation.

>>> import weir
>>> weir.generate("zipf", "z.weirtrace", requests=100_000)
>>> weir.read_trace("z.weirtrace").to_polars()
>>> weir.simulate("z.weirtrace", policies=["lru", "arc"], sizes=["1%", "10%"]).to_pandas()

Figures are exactly those of the command line `weir`: both run the same code. Errors have the same messages,
as a `TraceError` (of a trace), a `ValueError` (of an argument) or an `OSError`. Ctrl-C stops long operations.
"""

from . import plot
from ._native import ADMISSIONS, POLICIES, TraceError
from ._native import VERSION as __version__
from .analysis import Analysis, MissRatioCurve, analyze, mrc
from .caches import CacheFigures, Ratios, Results, simulate
from .sweeps import kept, sweep
from .traces import Format, Trace, TraceWarning, formats, generate, read_trace

__all__ = [
    "ADMISSIONS",
    "POLICIES",
    "Analysis",
    "CacheFigures",
    "Format",
    "MissRatioCurve",
    "Ratios",
    "Results",
    "Trace",
    "TraceError",
    "TraceWarning",
    "__version__",
    "analyze",
    "formats",
    "generate",
    "kept",
    "mrc",
    "plot",
    "read_trace",
    "simulate",
    "sweep",
]
