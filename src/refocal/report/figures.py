"""The charts of the report on axes of matplotlib: for notebooks and papers, in the same colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refocal._svg import THEME, Band, Bar, Color, Line, Plot, Point, Scale, Text, tick_label
from refocal._svg import Axes as Frame
from refocal._validation import check_option
from refocal.errors import ShapeError, need
from refocal.evaluate import Evaluation, Histogram, ManyComparison, Reliability, SearchSurface
from refocal.metrics import ReliabilityBand, ReliabilityCurve, StreamedCalibration
from refocal.report import charts
from refocal.report.details import CONFIDENCE, Terms, sides, terms_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = THEME[Color.INK]
MUTED = THEME[Color.MUTED]
LINE = THEME[Color.LINE]
FIRST = THEME[Color.FIRST]
SECOND = THEME[Color.SECOND]
TEXT: dict[str, Any] = {"textcoords": "offset points", "color": INK, "fontsize": 9, "parse_math": False}


def plot_reliability(
    reliability: Reliability | ReliabilityBand | ReliabilityCurve | StreamedCalibration,
    *,
    ax: Axes | None = None,
    title: str = "",
    terms: Terms = CONFIDENCE,
) -> Axes:
    """Accuracy against confidence, bin by bin, over the band from `low` to `high`.

    `terms` say what the two are called; `terms_of` an evaluation of two classes is about the positive one.

    The band of an evaluation is where calibrated predictions would lie; that of `metrics.reliability_curve` and of
    `CalibrationHistogram.compute` is where the accuracy may lie.

    >>> import matplotlib; matplotlib.use("agg")
    >>> curve = Reliability([10, 10], [0.4, 0.9], [0.3, 0.8], [0.1, 0.7], [0.7, 1.0])
    >>> plot_reliability(curve).get_xlabel()
    'confidence'
    """
    band = reliability.curve if isinstance(reliability, StreamedCalibration) else reliability
    count = [0] * len(band.confidence)
    curve = Reliability(count, band.confidence, band.accuracy, band.low, band.high)
    ax = _draw(charts.reliability(curve, title, terms=terms), ax, title)
    ax.set(aspect="equal")
    return ax


def plot_confidence(histogram: Histogram, *, ax: Axes | None = None, title: str = "") -> Axes:
    """Histogram of the confidence: correct predictions below, wrong ones stacked on top.

    >>> import matplotlib; matplotlib.use("agg")
    >>> plot_confidence(Histogram([0.0, 0.5, 1.0], [1.0, 6.0], [2.0, 1.0])).get_ylabel()
    'predictions (%)'
    """
    return _draw(charts.confidence(histogram, title, charts.highest_bar([histogram])), ax, title)


def plot_surface(surface: SearchSurface, *, ax: Axes | None = None, title: str = "") -> Axes:
    """The objective over γ and T on the validation set, the chosen point, and the border of the log-loss tolerance.

    >>> import matplotlib; matplotlib.use("agg")
    >>> loss = [[0.50, 0.45, 0.60], [0.44, 0.40, 0.50], [0.50, 0.46, 0.55]]
    >>> surface = SearchSurface("fts", "nll", [0.0, 1.0, 2.0], [0.5, 1.0, 2.0], loss, loss, None, 1.0, 1.0)
    >>> plot_surface(surface).get_xlabel()
    'temperature T'
    """
    return _draw(charts.surface(surface), ax, title)


def plot_comparison(evaluation: Evaluation, measure: str = "ece", *, ax: Axes | None = None, title: str = "") -> Axes:
    """One measure of every method with its interval, in the order of the table; an arrow for a method far off.

    The chosen method is filled.

    >>> import matplotlib; matplotlib.use("agg")
    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> [label.get_text() for label in plot_comparison(found, "ece").get_yticklabels()]
    ['ts', 'none']
    """
    check_option(measure, tuple(evaluation.before.measures), "measure", "plot_comparison")
    return _draw(charts.comparison(evaluation, measure), ax, title)


def plot_evaluation(evaluation: Evaluation) -> Figure:
    """Reliability before and after, and a comparison of all methods, in a new figure."""
    plt = need("matplotlib.pyplot", "plot", "A figure")
    shown = [method for _, _, method in sides(evaluation)]
    figure: Figure
    figure, axes = plt.subplots(1, len(shown) + 1, figsize=(4.4 * (len(shown) + 1), 4.0), layout="constrained")
    for ax, method in zip(axes, shown, strict=False):
        plot_reliability(method.reliability, ax=ax, title=method.title, terms=terms_of(evaluation))
    plot_comparison(evaluation, ax=axes[-1], title="every method")
    return figure


def plot_many(comparison: ManyComparison, metric: str | None = None) -> Figure:
    """The differences of methods over many networks, and their mean ranks, in a new figure.

    >>> import matplotlib; matplotlib.use("agg")
    >>> from refocal.evaluate import Run, compare_many
    >>> from refocal.io import load_sample
    >>> runs = [Run(*load_sample("cifar10-focal3"), network=name) for name in "abc"]
    >>> len(plot_many(compare_many(runs, ["ts"]), "ece").axes)
    2
    """
    if len(comparison.methods) < 2 or len(comparison.networks) < 2:
        expected = "of two networks and two methods or more"
        got = f"{len(comparison.networks)} and {len(comparison.methods)}"
        raise ShapeError("comparison", "plot_many", expected=expected, got=got)
    plt = need("matplotlib.pyplot", "plot", "A figure")
    height = 1.2 + 0.28 * len(comparison.methods)
    figure: Figure
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, height), layout="constrained")
    _draw(charts.many_differences(comparison, metric), left)
    _draw(charts.mean_ranks(comparison, metric), right)
    for line in right.lines:  # the bars stand beside the axes
        line.set_clip_on(False)
    return figure


def _draw(plot: Plot, ax: Axes | None, title: str = "") -> Axes:
    """Draw a plot on an axes, by default in a figure of its own."""
    # The shapes of a point as markers.
    markers: dict[str, dict[str, Any]] = {
        "dot": {"marker": "o", "ms": 5, "mew": 0},
        "ring": {"marker": "o", "ms": 6, "mfc": "none"},
        "target": {"marker": "o", "ms": 9, "mew": 2.2, "mfc": "none", "mec": "#fff"},
        "left": {"marker": "<"},
        "right": {"marker": ">"},
    }
    rectangle = need("matplotlib.patches", "plot", "A figure").Rectangle
    if ax is None:
        plt = need("matplotlib.pyplot", "plot", "A figure")
        ax = plt.subplots(figsize=(4.2, 3.8), layout="constrained")[1]
    if title:
        ax.set_title(title, color=INK)
    x, y = plot.scales
    ax.set(xscale="log" if plot.log_x else "linear", xlim=plot.x, ylim=plot.y)
    sides = {"start": "left", "middle": "center", "end": "right"}
    for mark in plot.marks:
        match mark:
            case Plot():
                inner_x, inner_y = mark.scales
                left, right = ((at - x.start) / (x.end - x.start) for at in (inner_x.start, inner_x.end))
                low, high = ((at - y.start) / (y.end - y.start) for at in (inner_y.start, inner_y.end))
                inset = ax.inset_axes((left, low, right - left, high - low))
                inset.axis("off")
                _draw(mark, inset)
            case Frame():
                _frame(mark, ax, x, y)
            case Line(xs, ys, color, width, dash):
                style = (0, tuple(map(float, dash.split()))) if dash else "solid"
                ax.plot(xs, ys, color=THEME.get(color, color), linewidth=width, linestyle=style)
            case Band(xs, low, high):
                ax.fill_between(xs, low, high, color=THEME[Color.BAND], linewidth=0)
            case Point(a, b, color, _, shape):
                ax.plot(a, b, color=THEME[color], linestyle="", clip_on=False, **markers[shape])
            case Bar((left, right), (low, high), color):
                # A thin border: without it a viewer shows the paper between two bars.
                size = (right - left, high - low)
                ax.add_patch(rectangle((left, low), *size, color=THEME.get(color, color), linewidth=0.3))
            case Text(a, b, text, anchor, (right, down)):
                offset = (0.75 * right, -0.75 * down)
                ax.annotate(text, (a, b), offset, ha=sides[anchor], **TEXT)
    return ax


def _frame(frame: Frame, ax: Axes, x: Scale, y: Scale) -> None:
    """The axes of a plot."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["bottom", "left"]].set_color(MUTED)
    ax.tick_params(color=MUTED, labelcolor=INK)
    ax.set_xlabel(frame.x_label, color=INK)
    ax.set_ylabel(frame.y_label, color=INK, rotation="vertical" if len(frame.y_label) > 2 else "horizontal")
    x_ticks, y_ticks = frame.numbers(x, y)
    ax.set_xticks(x_ticks, [tick_label(tick) for tick in x_ticks])
    ax.set_xticks([], minor=True)
    if frame.names:
        ax.set_yticks(range(len(frame.names)), frame.names, parse_math=False)  # a name may hold a dollar sign
    else:
        ax.set_yticks(y_ticks, [tick_label(tick) for tick in y_ticks])
    if frame.grid:
        ax.grid(visible=True, axis="x", color=LINE, linewidth=0.8)
        ax.set_axisbelow(True)
