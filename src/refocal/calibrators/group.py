"""One calibrator for all rows, and after it a line in log-odds, or a temperature, for each group of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.polynomial.chebyshev import chebder, chebfit, chebval
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from refocal._arrays import Array, Flags, Indices, Vector, is_dask, namespace, row_blocks, to_numpy
from refocal._groups import UNNAMED, Groups, as_groups
from refocal._json import field
from refocal.calibrators._arguments import refuse_class_axis
from refocal.calibrators._base import Calibrator
from refocal.calibrators._chunks import by_places, in_chunks_of_rows, with_known_lengths
from refocal.calibrators.fitted import Fitted
from refocal.engine import Block, Dataset, RowPredictions
from refocal.engine.scoring import ENTRIES, MEASURED, measure_predictions
from refocal.errors import FormatError, InputWarning, ParameterError, Remedy, UnsupportedError, warn
from refocal.fitting.logistic import LEAST_RISE, clip_masks, fit_logistic
from refocal.maps.chain import Chain
from refocal.maps.curves import LabelLines
from refocal.rows import Predictions
from refocal.rows.label_errors import listed
from refocal.rows.labels import IgnoreIndex

# Candidate standard deviations, in log-odds, of the groups' lines from the identity.
DEVIATIONS = (0.01, 0.03, 0.1, 0.3, 1.0)
# The slopes of groups lie between exp(-2) and exp(2); their losses are computed at Chebyshev nodes of the log-slope.
LARGEST_LOG_SLOPE = 2.0
N_NODES = 17
NODES: Vector = LARGEST_LOG_SLOPE * np.cos(np.pi * (np.arange(N_NODES) + 0.5) / N_NODES)


class GroupLines(NamedTuple):
    """The groups of a column, in sorted order, with the slope and the intercept of each."""

    names: NDArray[Any]
    """Text, or the numbers of labels."""
    slope: Vector
    intercept: Vector

    def of(self, groups: NDArray[Any]) -> tuple[Vector, Vector]:
        """Slope and intercept of each row: 1 and 0 in groups that the fit did not see."""
        place = np.minimum(np.searchsorted(self.names, groups), len(self.names) - 1)
        seen = self.names[place] == groups
        return np.where(seen, self.slope[place], 1.0), np.where(seen, self.intercept[place], 0.0)

    def sentence(self, column: str) -> str:
        """The lines in words, the first few of them."""
        max_shown = 10
        lines = zip(self.names[:max_shown], self.slope, self.intercept, strict=False)
        shown = "; ".join(f"{name} slope {slope:.2f}, intercept {intercept:+.2f}" for name, slope, intercept in lines)
        return f"{column}: {shown}{'; …' if len(self.names) > max_shown else ''}."


@dataclass(kw_only=True, eq=False, repr=False)
class GroupCalibration(Calibrator):
    """One calibrator for all rows, then a slope and an intercept in log-odds for each group, shrunk to the identity.

    With more than two classes, such as the tokens of a vocabulary, a group has no intercept: its slope is an additional
    temperature, for each domain or each position in an answer.

    The shrinkage is estimated from the groups: if they differ no more than by chance, the corrections are close to the
    identity, and groups with few rows are shrunk more. Groups may be given in several columns, whose corrections are
    applied one after the other. Groups that were not seen in the fit get the common calibrator. Rows without a group
    (None, NaN or an empty text) are a group of their own, "missing".

    Parameters
    ----------
    method : str
        The calibrator of all rows, by its short name: "auto", "logistic", "isotonic", …
    input : "logits", "probabilities" or "log-odds"
        What the columns hold.

    Attributes
    ----------
    lines_ : dict
        For each column of groups their names, slopes and intercepts.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> region = rng.choice(["north", "south"], 4000)
    >>> log_odds = rng.normal(size=4000)
    >>> happens = rng.random(4000) < 1 / (1 + np.exp(-log_odds - (region == "south")))  # more often than they say
    >>> fitted = GroupCalibration(input="log-odds").fit(log_odds, happens, groups=region)
    >>> (fitted.predict_proba([0.0, 0.0, 0.0], groups=["north", "south", "west"])[:, 1] > [0.4, 0.6, 0.5]).tolist()
    [True, True, True]
    """

    method: str = "auto"
    input: str = "logits"
    needs_groups: ClassVar[bool] = True
    # scikit-learn's metadata routing passes groups on without being asked, as it does to GroupKFold.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}
    __metadata_request__predict: ClassVar[dict[str, bool]] = {"groups": True}
    __metadata_request__predict_proba: ClassVar[dict[str, bool]] = {"groups": True}
    __metadata_request__predict_log_proba: ClassVar[dict[str, bool]] = {"groups": True}

    def fit(
        self,
        X: Array,
        y: Array = None,
        sample_weight: Array = None,
        *,
        groups: Any = None,
        class_axis: int = -1,
        ignore_index: IgnoreIndex = None,
        progress: Callable[[float], None] | None = None,
    ) -> Self:
        """Fit on scores, labels, and groups: an array, or several columns by their names."""
        return self._fit_with_groups(
            X, y, sample_weight, groups=groups, class_axis=class_axis, ignore_index=ignore_index, progress=progress
        )

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        from refocal.calibrators.registry import named

        name = type(self).__name__
        rows = self._block_of(dataset)
        common = named(self.method, "method", name)
        if not rows.groups:
            raise ParameterError("groups", f"{name}.fit", expected="given, one for each row of X", got="None")
        fitted = common._fit(rows, progress)
        groups = fit_groups(rows, fitted.chain, rows.groups)
        self.lines_ = groups.lines
        sentences = [f"Before the groups: {sentence}" for sentence in fitted.notes.get("sentences", ())]
        sentences += [lines.sentence(column) for column, lines in groups.lines.items()]
        of_groups = {"after": groups.after, "deviations": groups.deviations, "sentences": sentences}
        return Fitted(fitted.chain, notes={**fitted.notes, **of_groups})

    def predict_log_proba(self, X: Array, *, groups: Any = None, class_axis: int = -1) -> Array:
        """Log-probabilities of rows of these groups; `groups={}` asks for those of the common calibrator.

        For a Dask array or DataFrame they are computed lazily; the groups of its rows are held in memory.
        """
        check_is_fitted(self)
        name = f"{type(self).__name__}.predict_log_proba"
        refuse_class_axis(class_axis, name)
        if is_dask(X):
            return self._log_proba_by_chunk(X, groups, name)
        if isinstance(X, Predictions) and groups is None:
            groups = X.groups or None
        logits = self._logits(X, name)
        xp = namespace(logits)
        rows = xp.reshape(logits, (-1, logits.shape[-1]))
        columns = as_groups(groups, tuple(logits.shape[:-1]), name)
        if groups is None or columns:
            self.warn_of_unused(columns, name)
        return xp.reshape(self.log_proba_in_groups(rows, columns), logits.shape)

    def _log_proba_by_chunk(self, X: Any, groups: Any, function: str) -> Any:
        """Log-probabilities of a Dask array or DataFrame, whose rows have these groups."""
        self._check_names(X, function)
        values = with_known_lengths(in_chunks_of_rows(X))
        columns = as_groups(groups, int(values.shape[0]), function)
        if groups is None or columns:
            self.warn_of_unused(columns, function)

        def predict(block: Array, rows: slice) -> Array:
            of_rows = {column: names[rows] for column, names in columns.items()}
            return self.log_proba_in_groups(self._logits(self.with_names(block), function), of_rows)

        return by_places(predict, values, len(self.classes_), function)

    def log_proba_in_groups(self, logits: Array, groups: Groups) -> Array:
        """Log-probabilities (N, C) of checked logits of rows of these groups; those unseen get the common ones."""
        log_p = super().log_proba_in_groups(logits, groups)
        seen = self._seen(groups)
        if not seen:
            return log_p
        slope = np.ones(log_p.shape[0])
        intercept = np.zeros(log_p.shape[0])
        for column, names in seen.items():
            column_slope, column_intercept = self.lines_[column].of(names)
            slope = column_slope * slope
            intercept = column_slope * intercept + column_intercept
        return _lines(slope, intercept).log_probabilities(log_p[None, ...], row_axes=2)[0, ...]

    def _seen(self, groups: Groups) -> Groups:
        """Those columns of groups that the fit has seen; one array without a name is the only column of the fit."""
        if len(groups) == len(self.lines_) == 1 and (UNNAMED in groups or UNNAMED in self.lines_):
            return dict(zip(self.lines_, groups.values(), strict=True))
        return {column: groups[column] for column in self.lines_ if column in groups}

    def n_unseen(self, groups: Any, n_rows: int) -> int:
        """How many of some rows have a group, in any column of the fit, that the fit has not seen."""
        given = self._seen(as_groups(groups, n_rows, f"{type(self).__name__}.n_unseen"))
        is_unseen = np.full(n_rows, len(given) < len(self.lines_))
        for column, names in given.items():
            is_unseen |= ~np.isin(names, self.lines_[column].names)
        return int(np.count_nonzero(is_unseen))

    def unused_columns(self, groups: Groups) -> list[str]:
        """The columns of the fit that are missing, or in which no row has a group that the fit has seen."""
        given = self._seen(groups)
        return [name for name, lines in self.lines_.items() if not np.isin(given.get(name, ()), lines.names).any()]

    def warn_of_unused(self, groups: Groups, function: str) -> None:
        """Warn of the unused columns of groups."""
        self.warn_of_columns(self.unused_columns(groups), function)

    def warn_of_columns(self, unused: Sequence[str], function: str) -> None:
        """Warn of these columns of the fit, whose lines no row has."""
        if unused:
            seen = "; ".join(listed(self.lines_[name].names.tolist()) for name in unused)
            text = f"no groups of {' or '.join(map(repr, unused))} were given that the fit has seen ({seen})"
            text = f"{text}: these are probabilities without their lines."
            warn(InputWarning(text, Remedy.NO_GROUPS, function))

    def predict_proba(
        self, X: Array, *, groups: Any = None, class_axis: int = -1, out: NDArray[Any] | None = None
    ) -> Array:
        """Probabilities of rows of these groups; `groups={}` asks for those of the common calibrator."""
        return self._proba_by_log(X, out, groups=groups, class_axis=class_axis)

    def predict(self, X: Array, *, groups: Any = None, class_axis: int = -1) -> Array:
        """The class of the larger probability."""
        log_p = self.predict_log_proba(self._in_single(X), groups=groups, class_axis=class_axis)
        index = namespace(log_p).argmax(log_p, axis=-1)
        if is_dask(X):
            return index.map_blocks(lambda block: self.classes_[block], dtype=self.classes_.dtype)
        return self.classes_[to_numpy(index)]

    def to_torch(self, **_: Any) -> Any:
        """Not supported: a layer does not know groups."""
        raise UnsupportedError(f"{type(self).__name__} has no form as a torch layer: a layer does not know the groups.")

    def more_to_plain(self) -> dict[str, Any]:
        """The lines, for JSON."""
        plain = {}
        for column, lines in self.lines_.items():
            plain[column] = {
                "names": lines.names.tolist(),
                "slope": lines.slope.tolist(),
                "intercept": lines.intercept.tolist(),
            }
        return {"groups": plain}

    def more_from_plain(self, data: dict[str, Any]) -> None:
        """Restore what `more_to_plain` returned, refused where no fit can have found it."""
        self.lines_ = {column: _lines_of(column, lines) for column, lines in field(data, "groups", dict).items()}


class FittedGroups(NamedTuple):
    """The lines of each column of groups, their standard deviation from the identity, and the measures after them."""

    lines: dict[str, GroupLines]
    deviations: dict[str, float]
    after: dict[str, float]


def fit_groups(rows: Block, chain: Chain, groups: Mapping[str, NDArray[Any]]) -> FittedGroups:
    """A line for each group of each column, the columns one after the other, all of them after a chain."""
    lines = {}
    deviations = {}
    slope = np.ones(rows.n_rows)
    intercept = np.zeros(rows.n_rows)
    for column, values in groups.items():
        names, group = np.unique(values, return_inverse=True)
        parts = _parts(rows, chain, slope, intercept)
        if rows.n_classes == 2:
            scores = np.concatenate([part.logits for part in parts])
            log_odds = scores[:, 1] - scores[:, 0]
            happened = to_numpy(rows.labels) == 1
            fitted = fit_lines(log_odds, happened, rows.weights, group, len(names))
        else:
            log_p = np.concatenate([_at_nodes(part) for part in parts], axis=1)
            losses: Vector = np.stack([np.bincount(group, of_node) for of_node in -rows.weights * log_p])
            fitted = fit_slopes(losses)
        lines[column] = GroupLines(names, fitted.slope, fitted.intercept)
        deviations[column] = fitted.deviation
        slope = fitted.slope[group] * slope
        intercept = fitted.slope[group] * intercept + fitted.intercept[group]
    return FittedGroups(lines, deviations, _measures_after(rows, chain, slope, intercept))


def _measures_after(rows: Block, chain: Chain, slope: Vector, intercept: Vector) -> dict[str, float]:
    """The measures of all rows after a chain and the lines of the rows."""
    predictions = []
    correct = []
    for part in _parts(rows, chain, slope, intercept):
        predictions.append(part.predictions((0.0,), 1.0)[0])
        correct.append(part.correct)
    together = RowPredictions(
        label_log_p=np.concatenate([part.label_log_p for part in predictions]),
        confidence=np.concatenate([part.confidence for part in predictions]),
        squares=np.concatenate([part.squares for part in predictions]),
    )
    values = measure_predictions(together, np.concatenate(correct), rows).tolist()
    return dict(zip(MEASURED, values, strict=True))


def _parts(rows: Block, chain: Chain, slope: Vector, intercept: Vector) -> Iterator[Block]:
    """The scores after a chain and the lines of the rows, a few rows at a time."""
    for some in row_blocks(rows.n_rows, rows.n_classes, entries=ENTRIES):
        scores = to_numpy(chain.scores(rows.logits[some, :]))
        yield Block(_lines(slope[some], intercept[some]).scores(scores), to_numpy(rows.labels)[some])


def _at_nodes(rows: Block) -> Vector:
    """Log-probabilities of the labels at the slopes of `NODES`, (nodes, rows)."""
    return np.stack([rows.predictions((0.0,), float(t))[0].label_log_p for t in np.exp(-NODES)])


def _lines(slope: Vector, intercept: Vector) -> Chain:
    """The lines of all rows as one step, in which each row counts as a label."""
    return Chain((LabelLines(slope, intercept),))


def _lines_of(column: str, data: Any) -> GroupLines:
    try:
        kinds = {"names": np.str_, "slope": np.float64, "intercept": np.float64}
        lines = GroupLines(*(np.array(field(data, key, list), dtype=kind) for key, kind in kinds.items()))
    except (TypeError, ValueError) as error:
        raise FormatError(f"the groups of {column!r} are damaged: {error}") from error
    names, slope, intercept = lines
    right = len(names) > 0 and names.shape == slope.shape == intercept.shape == (len(names),)
    if not (right and np.all(names[1:] > names[:-1]) and np.all(slope > 0.0) and np.isfinite([slope, intercept]).all()):
        raise FormatError(f"the groups of {column!r} must be sorted names with slopes above 0 and intercepts.")
    return lines


class Lines(NamedTuple):
    """Slope and intercept of each group (G,), and the standard deviation between groups that was chosen."""

    slope: Vector
    intercept: Vector
    deviation: float


def fit_lines(log_odds: Vector, target: Flags, weight: Vector, group: Indices, n_groups: int) -> Lines:
    """Log-odds a·x + b of each group 0 … G-1, a above 0, with a normal prior around a = 1, b = 0.

    The prior concerns the value of the line one standard deviation of x from its mean. Its width is the one of
    `DEVIATIONS` with the largest evidence: the probability of all outcomes, by Laplace's approximation.

    >>> x, group = np.zeros(400), np.repeat([0, 1], 200)
    >>> y = np.concatenate([np.arange(200) < 50, np.arange(200) < 150])  # 25 % and 75 %: log-odds of ∓1.1
    >>> fit_lines(x, y, np.ones(400), group, 3)[1].round(2)
    array([-1.07,  1.07,  0.  ])
    """
    # A row in which a class cannot occur says nothing about the lines.
    known = np.isfinite(log_odds)
    log_odds = log_odds[known]
    target = target[known]
    weight = weight[known]
    group = group[known]
    if weight.sum() == 0.0:
        return Lines(np.ones(n_groups), np.zeros(n_groups), float(DEVIATIONS[0]))
    log_odds = clip_masks(log_odds)
    centre = float(np.average(log_odds, weights=weight))
    spread = float(np.sqrt(np.average((log_odds - centre) ** 2, weights=weight))) or 1.0
    features = np.stack([np.ones_like(log_odds), (log_odds - centre) / spread], axis=1)
    identity = np.array([centre, spread])
    lower = np.array([-np.inf, LEAST_RISE * spread])
    rows_of_group = [np.flatnonzero(group == g) for g in range(n_groups)]

    def fit(deviation: float) -> tuple[float, Vector, float]:
        """The log-evidence -F - ½ log det(H σ²), summed over the groups; θ of each group (G, 2); and σ."""
        penalty = np.eye(2) / deviation**2
        fits = [
            fit_logistic(features[rows], target[rows], weight[rows], identity, penalty, lower) for rows in rows_of_group
        ]
        log_determinants = [float(np.linalg.slogdet(of_group.hessian * deviation**2)[1]) for of_group in fits]
        log_evidence = -sum(of_group.value for of_group in fits) - 0.5 * sum(log_determinants)
        return log_evidence, np.stack([of_group.theta for of_group in fits]), deviation

    _, theta, deviation = max(map(fit, DEVIATIONS), key=itemgetter(0))
    slope = theta[:, 1] / spread
    return Lines(slope, theta[:, 0] - slope * centre, deviation)


def fit_slopes(losses: Vector) -> Lines:
    """A slope of the scores for each group, from the losses (nodes, groups) at the slopes exp(NODES).

    The log-slopes have a normal prior around 0, with the deviation of most evidence as in `fit_lines`.

    >>> parabolas = 2000.0 * (NODES[:, None] - [0.5, 0.5, -1.0, -0.4]) ** 2
    >>> np.log(fit_slopes(parabolas)[0]).round(2)
    array([ 0.5,  0.5, -1. , -0.4])
    """
    n_points = 4001  # the polynomials through the nodes are evaluated at as many log-slopes
    unit_points = np.linspace(-1.0, 1.0, n_points)
    log_slopes = LARGEST_LOG_SLOPE * unit_points
    polynomials = chebfit(NODES / LARGEST_LOG_SLOPE, losses, N_NODES - 1)
    loss = chebval(unit_points, polynomials)  # (groups, points)
    curvature = chebval(unit_points, chebder(polynomials, 2)) / LARGEST_LOG_SLOPE**2
    groups = np.arange(losses.shape[1])

    def fit(deviation: float) -> tuple[float, Vector, float]:
        """The log-evidence, summed over the groups; the log-slope of each group; and the deviation."""
        penalised = loss + 0.5 * (log_slopes / deviation) ** 2
        least = np.argmin(penalised, axis=1)
        log_determinant = np.log1p(deviation**2 * np.maximum(curvature[groups, least], 0.0))
        log_evidence = -float(np.sum(penalised[groups, least] + 0.5 * log_determinant))
        return log_evidence, log_slopes[least], deviation

    _, log_slope, deviation = max(map(fit, DEVIATIONS), key=itemgetter(0))
    return Lines(np.exp(log_slope), np.zeros(len(log_slope)), deviation)
