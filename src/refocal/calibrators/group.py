"""One calibrator for all rows, and behind it a line in log-odds, or a temperature, for each group of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from refocal._arrays import Array, Vector, in_library_of, namespace, row_blocks, to_numpy
from refocal._groups import Groups, as_groups
from refocal._validation import IgnoreIndex, check_option, check_out, labelled_rows, without_ignored
from refocal.calibrators._base import Calibrator, written
from refocal.calibrators._fitted import ENTRIES, Fitted
from refocal.calibrators._plain import field
from refocal.calibrators._shrunken import NODES, fit_lines, fit_slopes
from refocal.engine import Block, Dataset, Predictions
from refocal.engine.scoring import describe
from refocal.errors import FormatError, InputWarning, ParameterError, UnsupportedError, warn
from refocal.maps import log_softmax
from refocal.maps.chain import Chain

# The number of groups whose lines the report of a fit shows.
SHOWN = 10


class GroupLines(NamedTuple):
    """The groups of a column, in sorted order, with the slope and the intercept of each."""

    names: NDArray[np.str_]
    slope: Vector
    intercept: Vector

    def of(self, groups: NDArray[np.str_]) -> tuple[Vector, Vector]:
        """Slope and intercept of each row: 1 and 0 in groups that the fit did not see."""
        place = np.minimum(np.searchsorted(self.names, groups), len(self.names) - 1)
        seen = self.names[place] == groups
        return np.where(seen, self.slope[place], 1.0), np.where(seen, self.intercept[place], 0.0)

    def sentence(self, column: str) -> str:
        """The lines in words, the first few of them."""
        each = zip(self.names[:SHOWN], self.slope, self.intercept, strict=False)
        shown = "; ".join(f"{name} slope {slope:.2f}, intercept {intercept:+.2f}" for name, slope, intercept in each)
        return f"{column}: {shown}{'; …' if len(self.names) > SHOWN else ''}."


@dataclass(kw_only=True, eq=False, repr=False)
class GroupCalibration(Calibrator):
    """One calibrator for all rows, then a slope and an intercept in log-odds for each group, shrunk to the identity.

    With more than two classes, such as the tokens of a vocabulary, a group has no intercept: its slope is an additional
    temperature, for each domain or each position in an answer.

    The shrinkage is estimated from the groups: if they differ no more than by chance, the corrections are close to the
    identity, and groups with few rows are shrunk more. Groups may be given in several columns, whose corrections are
    applied one after the other. Groups that were not seen in the fit, and rows without a group, get the common
    calibrator.

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

    def fit(
        self,
        X: Array,
        y: Array = None,
        sample_weight: Array = None,
        *,
        groups: Any = None,
        class_axis: int = -1,
        ignore_index: IgnoreIndex = None,
    ) -> Self:
        """Fit on scores, labels, and groups: an array, or several columns by their names."""
        name = f"{type(self).__name__}.fit"
        if class_axis != -1:
            expected = "left out: a group is that of a row, so that classes lie on the last axis"
            raise ParameterError("class_axis", name, expected=expected, got=repr(class_axis))
        if ignore_index is not None and groups is not None:
            kept = labelled_rows(y, ignore_index, "y", name)
            groups = {column: each[kept] for column, each in as_groups(groups, len(kept), name).items()}
        X, y, sample_weight = without_ignored((X, y, sample_weight), ignore_index, ("X", "y", "sample_weight"), name)
        return self.fit_with_progress(X, y, sample_weight, None, groups)

    def fit_with_progress(
        self, X: Array, y: Array, sample_weight: Array, progress: Callable[[float], None] | None, groups: Any = None
    ) -> Self:
        """Like `fit`; `progress` is called from time to time with the share of the work that is done."""
        self._forget()
        rows = self._block_of(self.dataset(X, y, sample_weight))
        rows.groups = as_groups(groups, rows.n_rows, f"{type(self).__name__}.fit") or rows.groups
        return super().fit_with_progress(rows, None, None, progress)

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        from refocal.calibrators.registry import NAMED, OTHER_NAMES, make

        name, rows = type(self).__name__, self._block_of(dataset)
        check_option(self.method, (*NAMED, *OTHER_NAMES), "method", name)
        if not rows.groups:
            raise ParameterError("groups", f"{name}.fit", expected="given, one for each row of X", got="None")
        chain, *_, notes = make(self.method)._fit(rows, progress)
        self.lines_, deviations, after = _fit_groups(rows, chain)
        said = [f"Before the groups: {each}" for each in notes.get("sentences", ())]
        said += [lines.sentence(column) for column, lines in self.lines_.items()]
        return Fitted(chain, notes={**notes, "after": after, "deviations": deviations, "sentences": said})

    def predict_log_proba(self, X: Array, *, groups: Any = None, class_axis: int = -1) -> Array:
        """Log-probabilities of rows of these groups; `groups={}` asks for those of the common calibrator."""
        check_is_fitted(self)
        name = f"{type(self).__name__}.predict_log_proba"
        common = self.log_proba_of(self._logits(X, name))
        if groups is None:
            text = (
                "no groups were given: these are the probabilities of the calibrator of all rows (groups={} asks so)."
            )
            warn(InputWarning(text, function=name))
        columns = as_groups(groups, int(common.shape[0]), name)
        return with_lines(common, self.lines_, columns)

    def predict_proba(
        self, X: Array, *, groups: Any = None, class_axis: int = -1, out: NDArray[Any] | None = None
    ) -> Array:
        """Probabilities of rows of these groups; `groups={}` asks for those of the common calibrator."""
        if out is not None:
            check_out(out, X, f"{type(self).__name__}.predict_proba")
        log_p = self.predict_log_proba(X, groups=groups)
        return written(namespace(log_p).exp(log_p), out)

    def predict(self, X: Array, *, groups: Any = None, class_axis: int = -1) -> Array:
        """The class of the larger probability."""
        log_p = self.predict_log_proba(X, groups=groups)
        return self.classes_[to_numpy(namespace(log_p).argmax(log_p, axis=-1))]

    def to_torch(self, **_: Any) -> Any:
        """A layer does not know groups: there is none."""
        raise UnsupportedError(f"{type(self).__name__} has no form as a torch layer: a layer does not know the groups.")

    def more_to_plain(self) -> dict[str, Any]:
        """The lines, for JSON."""
        return {
            "groups": {
                column: {key: each.tolist() for key, each in lines._asdict().items()}
                for column, lines in self.lines_.items()
            }
        }

    def more_from_plain(self, data: dict[str, Any]) -> None:
        """What `more_to_plain` made, refused where no fit can have found it."""
        self.lines_ = {column: _lines_of(column, found) for column, found in field(data, "groups", dict).items()}


def _fit_groups(rows: Block, chain: Chain) -> tuple[dict[str, GroupLines], dict[str, float], dict[str, float]]:
    """The lines of each column of groups, how far they may lie from the identity, and the measures behind them."""
    lines, deviations = {}, {}
    slope, intercept = np.ones(rows.n_rows), np.zeros(rows.n_rows)
    for column, values in rows.groups.items():
        names, place = np.unique(values, return_inverse=True)
        parts = _parts(rows, chain, slope, intercept)
        if rows.n_classes == 2:
            scores = np.concatenate([part.logits for part in parts])
            odds, happened = scores[:, 1] - scores[:, 0], to_numpy(rows.labels) == 1
            found = fit_lines(odds, happened, rows.weights, place, len(names))
        else:
            log_p = np.concatenate([_at_nodes(part) for part in parts], axis=1)
            found = fit_slopes(np.stack([np.bincount(place, each) for each in -rows.weights * log_p]))
        lines[column], deviations[column] = GroupLines(names, found.slope, found.intercept), found.deviation
        own = found.slope[place]
        slope, intercept = own * slope, own * intercept + found.intercept[place]
    measured = [(*part.predictions((0.0,), 1.0)[0], part.correct) for part in _parts(rows, chain, slope, intercept)]
    *columns, correct = (np.concatenate(column) for column in zip(*measured, strict=True))
    (after,) = describe(rows, lambda _: [(Predictions(*columns), correct)], 1)
    return lines, deviations, after


def _parts(rows: Block, chain: Chain, slope: Vector, intercept: Vector) -> Iterator[Block]:
    """The scores behind a chain and the lines of the rows, a few rows at a time."""
    for some in row_blocks(rows.n_rows, rows.n_classes, entries=ENTRIES):
        scores = to_numpy(chain.scores(rows.logits[some, :]))
        yield Block(_moved(scores, slope[some], intercept[some]), to_numpy(rows.labels)[some])


def _at_nodes(rows: Block) -> Vector:
    """Log-probabilities of the labels at the slopes of `NODES`, (nodes, rows)."""
    return np.stack([rows.predictions((0.0,), float(t))[0].label_log_p for t in np.exp(-NODES)])


def with_lines(log_p: Array, lines_of: Mapping[str, GroupLines], columns: Groups) -> Array:
    """Log-probabilities with the lines of the rows' groups; rows without one stay as they are."""
    if len(columns) == len(lines_of) == 1:  # one column needs no name
        columns = dict(zip(lines_of, columns.values(), strict=True))
    known = [column for column in lines_of if column in columns]
    if not known:
        return log_p
    slope, intercept = np.ones(log_p.shape[0]), np.zeros(log_p.shape[0])
    for column in known:
        own, shift = lines_of[column].of(columns[column])
        slope, intercept = own * slope, own * intercept + shift
    return log_softmax(_moved(log_p, slope, intercept))


def _moved(scores: Array, slope: Vector, intercept: Vector) -> Array:
    """Scores times the slope of each row; log-odds of two classes then get the intercept, which is 0 for more."""
    xp = namespace(scores)
    slope, intercept = (xp.astype(in_library_of(scores, each), scores.dtype)[:, None] for each in (slope, intercept))
    return xp.concat([scores[:, :1] * slope, scores[:, 1:] * slope + intercept], axis=1)


def _lines_of(column: str, data: Any) -> GroupLines:
    try:
        kinds = {"names": np.str_, "slope": np.float64, "intercept": np.float64}
        lines = GroupLines(*(np.array(field(data, key, list), dtype=kind) for key, kind in kinds.items()))
    except (TypeError, ValueError) as error:
        raise FormatError(f"the groups of {column!r} are damaged: {error}") from error
    names, slope, intercept = lines
    right = len(names) > 0 and names.ndim == 1 and names.shape == slope.shape == intercept.shape
    if not (
        right and np.all(names[1:] > names[:-1]) and np.all(slope > 0.0) and np.all(np.isfinite([slope, intercept]))
    ):
        raise FormatError(f"the groups of {column!r} must be sorted names with slopes above 0 and intercepts.")
    return lines
