# %% [markdown]
# # From a trace to a choice
#
# This tutorial starts from a recording of a machine's disk requests and finds the size and policy of a cache
# for it. This file is a notebook (cells begin with `# %%`): open it in Jupyter (with jupytext), VS Code or
# Spyder, or run it: `python tutorial.py`. It needs `pip install weir[all]`, and writes its files to the
# current folder.

# %%
import matplotlib

matplotlib.use("Agg")  # Plots go to files; remove this line in a notebook.

import polars as pl
from matplotlib import pyplot

import weir

# %% [markdown]
# ## A trace
#
# `read_trace` accepts every format that `weir trace formats` lists, compressed or not. This tutorial uses a
# synthetic trace: a database, and a concurrent scan of other data. The words are those of
# `weir trace generate`.

# %%
DATABASE = "zipf theta=1 reads=70% size=8KiB over=512MiB rate=1000"
SCAN = "scan size=128KiB at=2GiB over=8GiB rate=80"
requests = weir.generate(f"{DATABASE} & {SCAN}", "database.weirtrace", seed=7, duration="1min")
trace = weir.read_trace("database.weirtrace")
print(f"{requests} requests, format {trace.format}")

# %% [markdown]
# ## As a data frame
#
# Each request is a row. `to_polars`, `to_pandas` and `to_arrow` read the whole trace; `batches` reads a large
# trace in batches, in constant memory. Malformed lines are skipped, with a `TraceWarning` that names the
# first; `strict=True` makes them errors.

# %%
frame = trace.to_polars()
print(
    frame.group_by("op").agg(
        requests=pl.len(), mib=pl.col("size").sum() / 2**20, mean_kib=pl.col("size").mean() / 1024
    )
)

# %%
most = max(batch.num_rows for batch in trace.batches(rows=10_000))
total = sum(batch.num_rows for batch in trace.batches(rows=10_000))
print(f"{total} requests, {most} at a time")
assert total == requests and most == 10_000

# %% [markdown]
# ## Analysis
#
# `analyze` reads the trace once. `docs/reference/trace-analysis.md` explains its figures.

# %%
analysis = weir.analyze(trace, policies=["lru", "arc", "s3fifo"])
print(f"footprint: {analysis['blocks'] * analysis['block_bytes'] / 2**20:.0f} MiB")
print(f"reads: {analysis['read_share']:.0%} of the requests")
print(f"accesses that are not the first of their block: {analysis['reaccess_share']:.0%}")

# %% [markdown]
# The heat map shows accesses by time and address: the database is the lowest half of a GiB, and the scan is
# the slope above it.

# %%
weir.plot.heat(analysis).figure.savefig("heat.png")

# %% [markdown]
# ## How large?
#
# `mrc` plots miss ratios by cache size. LRU's curve is exact; the curves of the other policies come from a
# sample of the blocks, with their standard error shaded.

# %%
weir.plot.mrc(analysis).figure.savefig("mrc.png")
(lru,) = weir.mrc(trace, "lru")
for size, ratio in list(zip(lru.size_blocks, lru.miss_ratio, strict=True))[2::25]:
    print(f"LRU with {size * lru.block_bytes / 2**20:6.0f} MiB misses {ratio:.1%}")

# %% [markdown]
# ## Which policy?
#
# `simulate` plays the whole trace to caches, on all cores. Sizes are shares of the footprint, bytes or
# blocks. The policy `belady` knows the future requests, and is the bound for the others.

# %%
results = weir.simulate(trace, policies=["lru", "arc", "s3fifo", "belady"], sizes=["1%", "5%", "64MiB"])
print(results.to_polars().select("policy", "size", "size_blocks", "miss_ratio", "cache_writes", "clwa"))
weir.plot.compare(results).figure.savefig("policies.png")

# %% [markdown]
# Admission policies reject blocks that are not worth caching. Here that is the scan: `tinylfu` has not seen
# its blocks before. `clwa` is the number of blocks written to the cache per block that the user writes, which
# matters for a cache on flash.

# %%
kept_out = weir.simulate(trace, ["lru", "s3fifo"], "5%", admissions=["all", "tinylfu"])
for figures in kept_out:
    name = f"{figures['policy']}, {figures['admission']}"
    print(f"{name:32} {figures['reads']['hit_ratio']:.1%} of reads hit, {figures['clwa']:.2f} writes a write")

# %% [markdown]
# ## Part of a trace
#
# A selection from a data frame becomes a trace again when it is written as CSV, with its columns named.

# %%
database = frame.filter(pl.col("size") == 8192)
database.write_csv("only.csv")
only = weir.read_trace("only.csv", format=f"csv:{','.join(database.columns)}")
(alone,) = weir.simulate(only, "lru", "64MiB")
(polluted,) = weir.simulate(trace, "lru", "64MiB")
print(f"64 MiB: {alone['hit_ratio']:.1%} without the rest, {polluted['hit_ratio']:.1%} with it")

# %% [markdown]
# ## Many traces
#
# `sweep` is `simulate` for many traces. It stores its results as Parquet in a folder and skips existing
# results: an interrupted sweep continues, and a repeated one with another policy only simulates that policy.

# %%
traces = []
for seed in range(3):
    weir.generate("phases", f"machine-{seed}.weirtrace", seed=seed, requests=20_000)
    traces.append(f"machine-{seed}.weirtrace")
swept = weir.sweep(traces, ["lru", "sieve"], ["1%", "10%"], out="sweep")
again = weir.sweep(traces, ["lru", "sieve", "arc"], ["1%", "10%"], out="sweep")
assert len(swept) == 12 and len(again) == 18

print(pl.read_parquet("sweep/*.parquet").group_by("policy", "size").agg(pl.col("miss_ratio").mean()).sort("size"))
weir.plot.compare(again)
pyplot.savefig("sweep.png")

# %% [markdown]
# To use several machines, pass a Dask cluster to the same call: `cluster="tcp://scheduler:8786"`, or a
# `distributed.Client`. The workers need this package, and must see the traces and the folder under the same
# paths.
