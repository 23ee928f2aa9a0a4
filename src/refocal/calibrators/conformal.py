"""Guarantees for any model: prediction sets with a given coverage, and probabilities with Venn-Abers bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from refocal._arrays import (
    SMALLEST,
    Array,
    Flags,
    Indices,
    Matrix,
    Vector,
    in_library_of,
    is_dask,
    to_numpy,
    without_warnings,
)
from refocal._groups import Groups, as_groups
from refocal._json import field, number
from refocal._validation import check_option, check_seed
from refocal.calibrators import settings as setting
from refocal.calibrators._base import Calibrator
from refocal.calibrators.fitted import Fitted
from refocal.calibrators.one_vs_rest import starts_of_ties, temperature_of
from refocal.engine import Block, Dataset
from refocal.engine.apply import probabilities_of
from refocal.errors import FitWarning, FormatError, InputWarning, ParameterError, UnsupportedError, warn
from refocal.fitting.affine import usable_rows
from refocal.fitting.curves import log_odds_after
from refocal.fitting.folds import folds
from refocal.maps.chain import Chain
from refocal.maps.curves import Confidence, OneVsRest, Pieces, VennAbers, log_odds
from refocal.maps.row import normalised
from refocal.maps.steps import Temperature
from refocal.rows import Predictions
from refocal.rows.labels import IgnoreIndex

# Within this distance a score counts as that of the fit, in thresholds and bounds that were fitted: the same row has
# scores that differ by less than 1e-6 between precisions and engines, relative to the size of log-odds, and where many
# rows have the same score, as votes do, its last digit would decide on all of them.
SAME_SCORE = 1e-6


@dataclass(kw_only=True, eq=False, repr=False)
class PredictionSets(Calibrator):
    """Sets of classes that contain the true one with a probability of at least `coverage`, for any model.

    Split-conformal prediction: rows that the model was not trained on show how large the score of the true class gets,
    and `predict_set` takes all classes up to the right quantile. The guarantee is marginal, for new rows distributed
    like those of the fit: it does not hold for every class or every row, and it is a mean over fits. One fit on n rows
    has a coverage that varies as a Beta distribution does; `fit_report_["coverage_of_fit"]` is its 5 % quantile.
    `predict_proba` returns that of `base`.

    Whole weights count repeated rows. Others, such as inverse probabilities of sampling, say how many rows of the
    population one stands for: new rows are those of the population.

    Parameters
    ----------
    coverage : float
        The share of rows whose set must contain the true class.
    conformity_score : "lac", "aps" or "raps"
        "lac", 1 - p of the class: the smallest sets on average (Sadinle, Lei & Wasserman 2019). "aps", the probability
        of all classes before it: larger where the model is less sure (Romano, Sesia & Candès 2020). "raps", the same
        with a penalty on low ranks, for many classes (Angelopoulos et al. 2021).
    conditional : "none", "class" or "group"
        With "class" the coverage holds for the rows of each class, not only for all together: every class has its own
        quantile (Vovk 2012, Mondrian). A class with fewer than coverage / (1 - coverage) rows is in every set. With
        "group" it holds for the rows of each group, such as a region: `fit` and `predict_set` take `groups`, one column
        of them. Groups with fewer rows than that, and groups that the fit has not seen, have sets of all classes:
        nothing smaller is known to cover them.
    base : str
        A method that calibrates first, such as "ts", fitted on one half of the rows; the sets use the other half. By
        default "none".
    randomised : bool
        Whether "aps" and "raps" include the last class at random, so that coverage is exact; otherwise always.
    allow_empty : bool
        Whether a set may be empty; otherwise it contains at least the top class.
    penalty, rank : float, int
        For "raps": each class beyond `rank` adds `penalty` to the score.
    random_state : int
        Seed of the split into halves and of the randomisation when fitting.
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(3000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> fitted = PredictionSets(coverage=0.9).fit(logits[:1000], labels[:1000])
    >>> sets = fitted.predict_set(logits[1000:])
    >>> sets[np.arange(2000), labels[1000:]].mean().round(2), sets.sum(axis=1).mean().round(1)
    (np.float64(0.9), np.float64(2.2))
    >>> region = np.where(logits[:, 0] > 0.0, "north", "south")
    >>> by_region = PredictionSets(conditional="group").fit(logits[:1000], labels[:1000], groups=region[:1000])
    >>> by_region.predict_set(logits[:3], groups=["north", "south", "west"])[2]  # of "west" the fit knows nothing
    array([ True,  True,  True,  True,  True])
    """

    coverage: float = setting.number(0.9, above=0.0, below=1.0)
    conformity_score: str = setting.option("lac", "aps", "raps")
    conditional: str = setting.option("none", "class", "group")
    base: str = "none"
    randomised: bool = setting.flag(default=True)
    allow_empty: bool = setting.flag(default=False)
    penalty: float = setting.number(0.01, least=0.0)
    rank: int = setting.integer(5, least=0)
    random_state: int = setting.integer(0, least=0)
    input: str = "logits"

    @property
    def needs_groups(self) -> bool:  # type: ignore[override]
        """Whether `fit` and `predict_set` take the groups of the rows."""
        return self.conditional == "group"

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
        """Fit on scores and labels and, with conditional="group", on one column of `groups`."""
        if not self.needs_groups:
            if groups is not None:
                expected = "left out, unless conditional='group'"
                raise ParameterError("groups", f"{type(self).__name__}.fit", expected=expected, got="groups")
            return super().fit(X, y, sample_weight, class_axis=class_axis, ignore_index=ignore_index, progress=progress)
        return self._fit_with_groups(
            X, y, sample_weight, groups=groups, class_axis=class_axis, ignore_index=ignore_index, progress=progress
        )

    def predict_set(self, X: Array, *, groups: Any = None, seed: int | None = None) -> Array:
        """Which classes are in the set of each row: booleans of the shape of `predict_proba`.

        With `randomised` scores the sets of the same rows differ from call to call, unless a `seed` is given. Sets
        whose coverage is that of each group need the `groups` of the rows.
        """
        check_is_fitted(self)
        if seed is not None:
            check_seed(seed, f"{type(self).__name__}.predict_set")
        log_p = self.predict_log_proba(self._in_single(X))
        p = np.exp(to_numpy(log_p).astype(np.float64))
        if isinstance(X, Predictions) and groups is None:
            groups = X.groups or None
        if groups is not None and self.needs_groups:
            groups = as_groups(groups, p.shape[:-1], f"{type(self).__name__}.predict_set")
        return in_library_of(log_p, self.sets_of(p.reshape(-1, p.shape[-1]), groups, seed).reshape(p.shape))

    def sets_of(self, p: Matrix, groups: Any, seed: int | None) -> Flags:
        """The sets of rows (N, C) with these probabilities, as `predict_proba` gives them, and these groups."""
        least = self._least_of_rows(groups, len(p)) if self.needs_groups else self._least
        return self._sets(p, least, np.random.default_rng(seed))

    def _least_of_rows(self, groups: Any, n_rows: int) -> Matrix:
        """The least support of each row's group, (N, 1): below that of any class where the fit has not seen it."""
        function = f"{type(self).__name__}.predict_set"
        columns = as_groups(groups, n_rows, function)
        of_fit = next(iter(self.group_thresholds_))
        if not columns or (of_fit not in columns and len(columns) > 1):
            expected = f"given: the {of_fit!r} of each row, as in the fit"
            raise ParameterError("groups", function, expected=expected, got=", ".join(columns) or "None")
        self.warn_of_unused(columns, function)
        known = self._least_of_groups[of_fit]
        names, group = np.unique(self._names_of_rows(columns), return_inverse=True)
        below_all = self._below_all(len(self.classes_))
        least = np.array([known.get(name, below_all) for name in names.tolist()])
        return np.asarray(least[group][:, None])

    def _names_of_rows(self, columns: Groups) -> NDArray[np.str_]:
        """The names of the rows' groups: from the column that the fit had, or else from the only column."""
        of_fit = next(iter(self.group_thresholds_))
        return columns[of_fit] if of_fit in columns else next(iter(columns.values()))

    def n_unseen(self, groups: Any, n_rows: int) -> int:
        """How many of some rows have no group that the fit has seen."""
        return self._n_unseen(as_groups(groups, n_rows, f"{type(self).__name__}.n_unseen"), n_rows)

    def _n_unseen(self, groups: Groups, n_rows: int) -> int:
        if not groups:
            return n_rows
        known = next(iter(self.group_thresholds_.values()))
        return n_rows - int(np.count_nonzero(np.isin(self._names_of_rows(groups), list(known))))

    def unused_columns(self, groups: Groups) -> list[str]:
        """The column of the fit where it is missing, or no row has a group that the fit has seen."""
        n_rows = len(self._names_of_rows(groups)) if groups else 0
        return list(self.group_thresholds_) if self._n_unseen(groups, n_rows) == n_rows else []

    def warn_of_unused(self, groups: Groups, function: str) -> None:
        """Warn where no row has a group that the fit has seen."""
        self.warn_of_columns(self.unused_columns(groups), function)

    def warn_of_columns(self, unused: Sequence[str], function: str) -> None:
        """Warn of the column of the fit, where no row has one of its groups."""
        for column in unused:
            text = f"no groups of {column!r} were given that the fit has seen: every set holds all classes."
            warn(InputWarning(text, function=function))

    def _below_all(self, n_classes: int) -> float:
        """A number that the support of no class is below."""
        return -self.penalty * n_classes

    def _sets(self, p: Matrix, least: Vector | Matrix, generator: np.random.Generator) -> Flags:
        # Where many rows have the least support, as votes do, the last digit must not leave them out.
        sets: Flags = self._support(p, generator, same=SAME_SCORE) >= least
        if not self.allow_empty:
            sets[np.arange(len(p)), np.argmax(p, axis=1)] = True
        return sets

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        chain, rows = self._calibrated(usable_rows(self._block_of(dataset)))
        p = np.exp(chain.log_probabilities(rows.logits).astype(np.float64))
        generator = np.random.default_rng(self.random_state)
        of_truth: Vector = self._support(p, generator).astype(np.float64)[np.arange(rows.n_rows), rows.labels]
        notes: dict[str, Any] = {}
        if self.conditional == "group":
            column, names, group = _one_column(rows.groups, f"{type(self).__name__}.fit")
            least, of_fit = self._least_of_parts(of_truth, rows, group, len(names))
            notes["least_of_groups"] = {column: dict(zip(names.tolist(), least.tolist(), strict=True))}
            sets = self._sets(p, least[group][:, None], generator)
        elif self.conditional == "class":
            least, of_fit = self._least_of_parts(of_truth, rows, rows.labels, rows.n_classes)
            notes["least_of_classes"] = least.tolist()
            sets = self._sets(p, least, generator)
        else:
            least, of_fit = self._least_of_all(of_truth, rows)
            sets = self._sets(p, least, generator)
        size = rows.average(sets.sum(axis=1).astype(np.float64))
        of_each = {"class": " of each class", "group": " of each group"}.get(self.conditional, "")
        share = f"{100 * self.coverage:g} % of rows{of_each}"
        said = f"Sets that hold the truth in {share} have {size:.2f} classes on average here."
        which = f"the {self.conditional} of fewest rows is covered in" if of_each else "this one covers"
        one_fit = f"That is a mean over fits: {which} {100 * of_fit:.1f} % or more with a probability of 95 %."
        notes |= {"least": float(least.min()), "coverage": float(self.coverage), "set_size": size}
        return Fitted(chain, notes=notes | {"coverage_of_fit": of_fit, "sentences": [said, one_fit]})

    def _least_of_all(self, of_truth: Vector, rows: Block) -> tuple[Vector, float]:
        """The least support in the sets of all rows, for each class, and the coverage that 95 % of fits exceed."""
        least = self._quantile(of_truth, rows)
        if least is None:
            text = f"every set holds all classes: {self._needs()} at least."
            warn(f"{type(self).__name__}.fit: {text}", FitWarning)
            least = self._below_all(rows.n_classes)
        return np.full(rows.n_classes, least), self._coverage_of_fit(rows)

    def _least_of_parts(self, of_truth: Vector, rows: Block, part: Indices, n_parts: int) -> tuple[Vector, float]:
        """The least support in each part of the rows, by its number, and the coverage that 95 % of fits exceed in each.

        Parts of too few rows for a quantile have one that no class is below.
        """
        least = np.full(n_parts, self._below_all(rows.n_classes))
        coverages = []
        unknown = 0
        for i in range(n_parts):
            is_part = part == i
            quantile = self._quantile(of_truth[is_part], rows.take(is_part)) if is_part.any() else None
            if quantile is None:
                unknown += 1
                continue
            least[i] = quantile
            coverages.append(self._coverage_of_fit(rows.take(is_part)))
        if unknown and self.conditional == "class":
            text = f"{unknown:,} of {n_parts:,} classes are in every set: {self._needs()} of a class at least."
            warn(f"{type(self).__name__}.fit: {text}", FitWarning)
        elif unknown:
            text = f"{unknown:,} of {n_parts:,} groups have sets of all classes: {self._needs()} of a group at least."
            warn(f"{type(self).__name__}.fit: {text}", FitWarning)
        return least, min(coverages, default=1.0)

    def _needs(self) -> str:
        """How many rows a quantile needs."""
        n_rows = math.ceil(self.coverage / (1.0 - self.coverage) - 1e-9)
        return f"a coverage of {self.coverage:g} needs {n_rows:,} rows"

    def _coverage_of_fit(self, rows: Block) -> float:
        """The coverage that a fit on so many rows exceeds in 95 % of cases.

        The coverage of the k-th smallest of n scores, k = ⌈coverage (n + 1)⌉, is Beta(k, n + 1 - k) distributed (Vovk
        2012); n is the effective number of rows. Where k > n every set holds all classes.
        """
        # SciPy loads when a fit needs it.
        from scipy.special import betaincinv

        n_rows = rows.total_weight / _weight_of_new_row(rows.weights)
        k = math.ceil(self.coverage * (n_rows + 1.0) - 1e-9)
        return 1.0 if k > n_rows else float(betaincinv(k, n_rows + 1.0 - k, 0.05))

    def _calibrated(self, rows: Block) -> tuple[Chain, Block]:
        """The chain that calibrates first, and the rows that it was not fitted on."""
        from refocal.calibrators.registry import NAMED, NONE, make

        check_option(self.base, (NONE, *NAMED), "base", type(self).__name__)
        if self.base == NONE:
            return Chain(), rows
        first = folds(rows, 2, self.random_state) == 0
        return make(self.base).fit(rows.take(first)).chain_, rows.take(~first)

    def _support(self, p: Matrix, generator: np.random.Generator, *, same: float = 0.0) -> Matrix:
        """1 - the conformity score of each class: larger is more conforming.

        Of a model that is too sure most scores are nearly 1, and only what they leave has digits that tell them apart.
        `same` raises each by the distance, as logarithms, within which two count as equal.
        """
        if self.conformity_score == "lac":
            return _raised(p, same)
        order = np.argsort(-p, axis=1, kind="stable")
        ranked = np.take_along_axis(p, order, axis=1)
        edge = generator.random((len(p), 1)) if self.randomised else 1.0
        rest = (1.0 - edge) * ranked
        rest[:, :-1] += np.cumsum(ranked[:, :0:-1], axis=1)[:, ::-1]  # of the classes after it, the smallest first
        rest = _raised(rest, same)
        if self.conformity_score == "raps":
            rest -= self.penalty * np.maximum(np.arange(1, p.shape[1] + 1) - self.rank, 0)
        support = np.empty_like(rest)
        np.put_along_axis(support, order, rest, axis=1)
        return support

    def _quantile(self, of_truth: Vector, rows: Block) -> float | None:
        """The largest support from which on the share `coverage` of the weight lies, a new row included.

        None where there are too few rows for it.
        """
        order = np.argsort(-of_truth, kind="stable")
        new_weight = _weight_of_new_row(rows.weights)
        needed = self.coverage * (rows.total_weight + new_weight) - 1e-9  # the rounding of 0.9 × 10
        at = int(np.searchsorted(np.cumsum(rows.weights[order]), needed))
        return float(of_truth[order[at]]) if at < len(order) else None

    def _set_fitted(self, fitted: Fitted, classes: NDArray[Any], report: dict[str, Any]) -> None:
        super()._set_fitted(fitted, classes, report)
        overall = number(report, "least")
        least = [overall] * len(classes)
        if self.conditional == "class":
            least = field(report, "least_of_classes", list[float])
            if len(least) != len(classes):
                raise FormatError(f"the field 'least_of_classes' must have {len(classes)} numbers. Got {len(least)}.")
        self._least = np.array(least)
        # The scores themselves are for people: near 1 they have lost the digits that sets need.
        self.threshold_ = 1.0 - overall
        self.thresholds_ = 1.0 - self._least
        if self.conditional == "group":
            self._least_of_groups = _read_least_of_groups(report)
            self.group_thresholds_ = {
                column: {name: 1.0 - value for name, value in of_groups.items()}
                for column, of_groups in self._least_of_groups.items()
            }


def _raised(share: Matrix, same: float) -> Matrix:
    """Shares raised by the distance `same` of their logarithms, relative to the size of these."""
    return np.asarray(share * (1.0 + same * (1.0 - np.log(np.clip(share, SMALLEST, 1.0)))))


def _one_column(groups: Groups, function: str) -> tuple[str, NDArray[np.str_], Indices]:
    """The name of the only column of groups, the groups in it, and the number of each row's group."""
    if len(groups) != 1:
        expected = "one column, with the group of each row; of several, join the names"
        raise ParameterError("groups", function, expected=expected, got=", ".join(groups) or "None")
    column, values = next(iter(groups.items()))
    names, group = np.unique(values, return_inverse=True)
    return column, names, np.asarray(group)


def _read_least_of_groups(report: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The least support in a report by the names of groups, refused where no fit can have found them."""
    columns = field(report, "least_of_groups", dict)
    if len(columns) != 1:
        raise FormatError("the field 'least_of_groups' must have one column of groups.")
    column, of_groups = next(iter(columns.items()))
    if not isinstance(of_groups, dict) or not of_groups:
        raise FormatError("the field 'least_of_groups' must have the least support of each group.")
    return {column: {name: number(of_groups, name) for name in of_groups}}


def _weight_of_new_row(weight: Vector) -> float:
    """The weight of a new row beside those of the fit: 1 where weights are whole numbers, of repeated rows.

    Of other weights it is Σw² / Σw, the mean weight of a row drawn from the population that they stand for (weighted
    conformal prediction, Tibshirani et al. 2019, has the weight of each new row, which is not known here).
    """
    if np.all(weight == np.round(weight)):
        return 1.0
    share = weight / weight.sum()  # of squares of weights, tiny ones would be 0
    return float(weight @ share)


@dataclass(kw_only=True, eq=False, repr=False)
class VennAbersCalibration(Calibrator):
    """Venn-Abers calibration (Vovk, Petej & Fedorova 2015) of class 1 of two, or of the top class of more.

    A new row is added to those of the fit, first as a miss and then as a hit, and isotonic regression is fitted each
    time. This gives two probabilities p₀ ≤ p₁, one of which is calibrated for any scores;
    `predict_interval` returns them, and `predict_proba` p₁ / (1 - p₀ + p₁), which is never 0 or 1. The interval is
    wide where there are few rows. With more than two classes the others share the rest as temperature scaling has it.

    Parameters
    ----------
    n_folds : int
        1 for the inductive method, which has the guarantee. With more, cross Venn-Abers: each fold of the rows is used
        alone, and the geometric means of p₁ and of 1 - p₀ are taken; on few rows that costs log-loss.
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(2000, 2))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> fitted = VennAbersCalibration().fit(4.0 * logits, labels)
    >>> lower, upper = fitted.predict_interval([[0.0, 2.0]])
    >>> p = fitted.predict_proba([[0.0, 2.0]])
    >>> bool(lower[0, 1] < p[0, 1] < upper[0, 1]), bool(upper[0, 1] - lower[0, 1] < 0.05)
    (True, True)
    """

    n_folds: int = setting.integer(1)
    input: str = "logits"

    @without_warnings
    def predict_interval(self, X: Array) -> tuple[Array, Array]:
        """The least and the largest probability of every class, of the shape of `predict_proba`, which lies between.

        They are p₀ and p₁ of class 1 of two or of the top class of more, and what those leave for the others. Where p₁
        would put the top class below another, `predict_proba` has it as probable as that one, which is above p₁: the
        interval then reaches up to there.
        """
        check_is_fitted(self)
        if is_dask(X):
            raise UnsupportedError(f"{type(self).__name__}.predict_interval takes rows in memory; map it over blocks.")
        logits = self._logits(X, f"{type(self).__name__}.predict_interval")
        x = to_numpy(logits).astype(np.float64)
        is_two = x.shape[-1] == 2
        curve: VennAbers = self.chain_.find(OneVsRest if is_two else Confidence, "curve")
        scores = Chain(self.chain_.steps[:-1]).apply(np, x)
        at = np.ones_like(x[..., :1], dtype=int) if is_two else np.argmax(scores, axis=-1, keepdims=True)
        chosen = np.arange(x.shape[-1]) == at
        lower, upper = curve.bounds(np, np.take_along_axis(log_odds(np, scores), at, axis=-1))
        p = np.where(chosen, 0.0, np.exp(normalised(np, scores)))
        others = p.sum(axis=-1, keepdims=True)
        share = p / np.maximum(others, SMALLEST)
        # Where a class must occur nothing is left for the others, and it has all.
        lower = np.where(others == 0.0, 1.0, lower)
        upper = np.where(others == 0.0, 1.0, upper)
        impossible = np.take_along_axis(x, at, axis=-1) == -np.inf
        lower = np.where(impossible, 0.0, lower)
        upper = np.where(impossible, 0.0, upper)
        least = np.where(chosen, lower, share * (1.0 - upper))
        most = np.where(chosen, upper, share * (1.0 - lower))
        point = to_numpy(probabilities_of(self.chain_, logits)).astype(np.float64)
        least = np.minimum(least, point)
        most = np.maximum(most, point)
        return in_library_of(logits, least), in_library_of(logits, most)

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        rows = usable_rows(self._block_of(dataset))
        is_two = rows.n_classes == 2
        before = Chain(() if is_two else (Temperature(temperature_of(rows)),))
        score = log_odds_after(before, rows)
        target = rows.labels == 1 if is_two else rows.correct
        possible = np.count_nonzero(rows.logits > -np.inf, axis=1) > 1  # other rows carry no information
        order = np.flatnonzero(possible)[np.argsort(score[possible], kind="stable")]
        score = score[order]
        target = target[order]
        weight = rows.weights[order]
        log_upper = []  # log p₁ of each fold, as functions of the score
        log_not_lower = []  # log(1 - p₀)
        for fold in _spread(target, self.n_folds):
            upper, not_lower = _inductive(score[fold], target[fold], weight[fold])
            log_upper.append(upper)
            log_not_lower.append(not_lower)
        curve = VennAbers(_mean_of_steps(log_upper), _mean_of_steps(log_not_lower))
        return Fitted(Chain((*before.steps, OneVsRest(curve) if is_two else Confidence(curve))))


def _spread(target: Flags, n_folds: int) -> list[Indices]:
    """Rows in the order of their scores, every n-th hit and every n-th miss to the same fold."""
    place = np.where(target, np.cumsum(target), np.cumsum(~target)) % n_folds
    by_fold = [np.flatnonzero(place == i) for i in range(n_folds)]
    return [rows for rows in by_fold if len(rows) > 0] or [np.arange(0)]


def _inductive(score: Vector, target: Flags, weight: Vector) -> tuple[Pieces, Pieces]:
    """The logarithms of p₁ and 1 - p₀ as functions of the score.

    Without any row the added one is alone: p₀ = 0 and p₁ = 1 everywhere.
    """
    if len(score) == 0:
        return _steps(np.zeros(1), np.zeros(2)), _steps(np.zeros(1), np.zeros(2))
    starts = starts_of_ties(score)
    ends = np.append(starts[1:], len(score)) - 1
    size = float(np.abs(score).mean()) or 1.0  # scores that are all 0 have no size of their own
    reach = SAME_SCORE * (min(1.0, size) + np.abs(score))
    between = 0.5 * (score[starts[1:]] - score[ends[:-1]])
    below = np.minimum(reach[starts], [np.inf, *between])
    above = np.minimum(reach[ends], [*between, np.inf])
    hits = np.add.reduceat(weight * target, starts)
    total = np.add.reduceat(weight, starts)
    # Between two scores a hit is pooled with the rows above it and a miss with those below.
    upper = np.append(with_a_hit(hits, total), 1.0)
    not_lower = np.append(with_a_hit((total - hits)[::-1], total[::-1]), 1.0)[::-1]
    return _steps(score[ends] + above, np.log(upper)), _steps(score[starts] - below, np.log(not_lower))


def with_a_hit(hits: Vector, total: Vector) -> Vector:
    """The isotonic regression at each score, once a hit of weight 1 has been added there.

    It is the slope of the greatest convex minorant of the cumulative sums (Algorithms 1 and 2 of the paper): the hit
    moves from the first score to the last, and the corners of the minorant right of it are a stack.

    >>> with_a_hit(np.array([0.0, 1.0, 3.0]), np.array([2.0, 2.0, 3.0])).round(3)
    array([0.333, 0.667, 1.   ])
    """
    x = [-1.0, 0.0, *np.cumsum(total).tolist()]
    y = [-1.0, 0.0, *np.cumsum(hits).tolist()]
    corners: list[tuple[float, float]] = []
    for point in reversed(list(zip(x, y, strict=True))):
        _add_from_the_left(corners, point)
    slopes = []
    left = (-1.0, -1.0)
    for i in range(1, len(x) - 1):
        first = corners[-1]
        second = corners[-2]
        slopes.append((second[1] - first[1]) / (second[0] - first[0]))
        left = (left[0] + x[i + 1] - x[i], left[1] + y[i + 1] - y[i])  # the score's own rows now lie before the hit
        if left[1] < first[1] + slopes[-1] * (left[0] - first[0]):
            corners.pop()
            _add_from_the_left(corners, left)
    return np.clip(slopes, 0.0, 1.0)


def _add_from_the_left(corners: list[tuple[float, float]], point: tuple[float, float]) -> None:
    """Add a point left of all corners of a convex minorant, and take away those that are none any more."""
    while len(corners) > 1:
        x1, y1 = corners[-1]
        x2, y2 = corners[-2]
        if (y1 - point[1]) * (x2 - x1) < (y2 - y1) * (x1 - point[0]):
            break
        corners.pop()
    corners.append(point)


def _steps(knots: Vector, values: Vector) -> Pieces:
    """A step function, `values[i]` between the knots i - 1 and i, with no more knots than it needs, one at least."""
    kept = np.flatnonzero(np.diff(values) != 0.0)
    kept = kept if len(kept) else np.array([0])
    return Pieces.of((knots[kept], (values[np.append(kept, kept[-1] + 1)],)))


def _mean_of_steps(functions: Sequence[Pieces]) -> Pieces:
    """The mean of step functions."""
    if len(functions) == 1:
        return functions[0]
    knots = np.unique(np.concatenate([function.knots[0] for function in functions]))
    inside = np.append(knots[0] - 1.0, knots)  # a step holds from its knot on
    return _steps(knots, np.mean([function.apply(np, inside) for function in functions], axis=0))
