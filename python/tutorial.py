# %% [markdown]
# # From a trace to a choice
#
# A machine's requests to its disks were recorded, and the question is what a cache would do for it: how large, with
# which policy. This file is a notebook (cells begin with `# %%`): open it in Jupyter (with jupytext), VS Code or Spyder,
# or run it: `python tutorial.py`. It needs `pip install weir[all]`, and leaves its files in the folder it is run in.

# %%
import matplotlib

matplotlib.use("Agg")  # Pictures go to files; leave this line away in a notebook.

import polars as pl
from matplotlib import pyplot

import weir

# %% [markdown]
# ## A trace
#
# `read_trace` takes any format `weir trace formats` lists, packed or not. There is no trace here, so we make one up: a
# database, and a scan of other data that passes meanwhile. The words are those of `weir trace generate`.

# %%
DATABASE = "zipf theta=1 reads=70% size=8KiB over=512MiB rate=1000"
SCAN = "scan size=128KiB at=2GiB over=8GiB rate=80"
requests = weir.generate(f"{DATABASE} & {SCAN}", "database.weirtrace", seed=7, duration="1min")
trace = weir.read_trace("database.weirtrace")
print(f"{requests} requests, format {trace.format}")

# %% [markdown]
# ## As a data frame
#
# A request is a row. `to_polars`, `to_pandas` and `to_arrow` read all of it; `batches` reads a large trace a
# few rows at a time, in constant memory. Lines that cannot be read are left out, with a `TraceWarning` that
# names the first; `strict=True` makes them errors.

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
# ## What it is like
#
# `analyze` reads the trace once. What its figures mean is in `docs/reference/trace-analysis.md`.

# %%
analysis = weir.analyze(trace, policies=["lru", "arc", "s3fifo"])
print(f"footprint: {analysis['blocks'] * analysis['block_bytes'] / 2**20:.0f} MiB")
print(f"reads: {analysis['read_share']:.0%} of the requests")
print(f"accesses that are not the first of their block: {analysis['reaccess_share']:.0%}")

# %% [markdown]
# When and where: the database is the lowest half of a GiB, and the scan the slope above it.

# %%
weir.plot.heat(analysis).figure.savefig("heat.png")

# %% [markdown]
# ## How large?
#
# Miss ratios by cache size. LRU's curve is exact; those of the other policies come from a sample of the blocks, and have their
# standard error shaded around them.

# %%
weir.plot.mrc(analysis).figure.savefig("mrc.png")
(lru,) = weir.mrc(trace, "lru")
for size, ratio in list(zip(lru.size_blocks, lru.miss_ratio, strict=True))[2::25]:
    print(f"LRU with {size * lru.block_bytes / 2**20:6.0f} MiB misses {ratio:.1%}")

# %% [markdown]
# ## Which policy?
#
# `simulate` plays the trace to caches exactly, on all cores. Sizes are shares of the footprint, bytes or blocks.
# Of the policies `belady` knows what comes, and is the bound for the others.

# %%
results = weir.simulate(trace, policies=["lru", "arc", "s3fifo", "belady"], sizes=["1%", "5%", "64MiB"])
print(results.to_polars().select("policy", "size", "size_blocks", "miss_ratio", "cache_writes", "clwa"))
weir.plot.compare(results).figure.savefig("policies.png")

# %% [markdown]
# `admissions` keep out what is not worth its place. Here that is the scan, of which `tinylfu` knows that nobody asked for it before. What
# is written to a cache on flash for each block the user writes is its `clwa`.

# %%
kept_out = weir.simulate(trace, ["lru", "s3fifo"], "5%", admissions=["all", "tinylfu"])
for figures in kept_out:
    name = f"{figures['policy']}, {figures['admission']}"
    print(f"{name:32} {figures['reads']['hit_ratio']:.1%} of reads hit, {figures['clwa']:.2f} writes a write")

# %% [markdown]
# ## Part of a trace
#
# Whatever a data frame can select is a trace again when it is written as CSV, with its columns named.

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
# `sweep` is `simulate` for many traces. What it comes to is kept as Parquet in a folder; what is there is not done again,
# so that a sweep that broke off goes on, and one that is repeated with another policy does that one only.

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
# On several machines, the same call takes a Dask cluster: `cluster="tcp://scheduler:8786"`, or a `distributed.Client`. The workers
# need this package, and must see the traces and the folder under the same paths.
