from pathlib import Path

import pytest
from matplotlib import pyplot

import weir


def test_miss_ratios_are_lines(trace: Path) -> None:
    analysis = weir.analyze(trace, ["lru", "arc"], sample="10%")
    axes = weir.plot.mrc(analysis)
    curves = weir.mrc(trace, ["lru", "arc"], sample="10%")
    assert [line.get_label() for line in axes.lines] == ["lru", "arc"]
    assert [list(line.get_ydata()) for line in axes.lines] == [curve.miss_ratio for curve in curves]
    # Sampled curves have their error shaded.
    assert len(axes.collections) == 1
    assert weir.plot.mrc(curves, axes) is axes
    pyplot.close("all")


def test_sizes_over_decades_are_on_a_logarithmic_axis_with_units(trace: Path) -> None:
    class Curve:
        policy, block_bytes = "lru", 4096
        size_blocks = [1 << power for power in range(0, 21, 2)]
        miss_ratio = [1 - power / 20 for power in range(0, 21, 2)]
        error = [None] * len(size_blocks)

    axes = weir.plot.mrc([Curve()])  # type: ignore[list-item]
    axes.figure.canvas.draw()
    assert axes.get_xscale() == "log"
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert "4 KiB" in labels and "128 MiB" in labels, labels
    # The legend is beside the curves.
    legend, inside = axes.get_legend().get_window_extent(), axes.get_window_extent()
    assert legend.x0 >= inside.x1

    narrow = Curve()
    narrow.size_blocks, narrow.miss_ratio, narrow.error = [256, 512, 1024], [0.5, 0.4, 0.3], [None] * 3
    axes = weir.plot.mrc([narrow])  # type: ignore[list-item]
    axes.figure.canvas.draw()
    assert axes.get_xscale() == "linear"
    assert {"1 MiB", "2 MiB"} <= {label.get_text() for label in axes.get_xticklabels()}
    pyplot.close("all")


def test_heat_is_accesses_by_time_and_place(trace: Path) -> None:
    analysis = weir.analyze(trace)
    axes = weir.plot.heat(analysis)
    (image,) = axes.images
    heat = analysis["timeline"]["heat"]
    assert image.get_array().shape == (len(heat[0]), len(heat))
    assert image.get_array().sum() == pytest.approx(sum(map(sum, heat)))
    pyplot.close("all")


def test_policies_are_bars_side_by_side(trace: Path, traces: list[Path]) -> None:
    results = weir.simulate(trace, ["lru", "arc"], ["1%", "10%", "50%"], ["all", "tinylfu"])
    axes = weir.plot.compare(results, "hit_ratio")
    assert [bars.get_label() for bars in axes.containers] == ["lru", "lru, tinylfu", "arc", "arc, tinylfu"]
    heights = [bar.get_height() for bars in axes.containers for bar in bars]
    assert heights == [figures["hit_ratio"] for figures in results]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1%", "10%", "50%"]

    both = weir.plot.compare(weir.simulate(traces[0]) + weir.simulate(traces[1]))
    assert [label.get_text() for label in both.get_xticklabels()] == ["0.weirtrace, 10%", "1.weirtrace, 10%"]
    pyplot.close("all")
