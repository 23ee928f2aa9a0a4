"""Prediction sets with a guaranteed coverage, by split-conformal prediction."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from refocal._arrays import Array, Flags, Matrix, Vector, in_library_of, to_numpy
from refocal._json import number
from refocal._validation import check_option
from refocal.calibrators import _settings as setting
from refocal.calibrators._base import Calibrator
from refocal.calibrators._crossfit import folds, usable_rows
from refocal.calibrators._fitted import Fitted
from refocal.engine import Block, Dataset
from refocal.errors import FitWarning, warn
from refocal.maps.chain import Chain


@dataclass(kw_only=True, eq=False, repr=False)
class PredictionSets(Calibrator):
    """Sets of classes that contain the true one with a probability of at least `coverage`, for any model.

    Split-conformal prediction: rows that the model was not trained on show how large the score of the true class gets,
    and `predict_set` takes all classes up to the right quantile. The guarantee is marginal, for new rows distributed
    like those of the fit: it does not hold for every class or every row. `predict_proba` returns that of `base`.

    Parameters
    ----------
    coverage : float
        The share of rows whose set must contain the true class.
    conformity_score : "lac", "aps" or "raps"
        "lac", 1 - p of the class: the smallest sets on average (Sadinle, Lei & Wasserman 2019). "aps", the probability
        of all classes before it: larger where the model is less sure (Romano, Sesia & Candès 2020). "raps", the same
        with a penalty on low ranks, for many classes (Angelopoulos et al. 2021).
    base : str
        A method that calibrates first, such as "ts", fitted on one half of the rows; the sets use the other half. By
        default "none".
    randomised : bool
        Whether "aps" and "raps" include the last class at random, so that coverage is exact; otherwise always.
    allow_empty : bool
        Whether a set may be empty; otherwise it contains at least the top class.
    penalty, rank : float, int
        For "raps": each class beyond `rank` adds `penalty` to the score.
    seed : int
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
    """

    coverage: float = setting.number(0.9, above=0.0, below=1.0)
    conformity_score: str = setting.option("lac", "aps", "raps")
    base: str = "none"
    randomised: bool = True
    allow_empty: bool = False
    penalty: float = setting.number(0.01, least=0.0)
    rank: int = setting.integer(5, least=0)
    seed: int = setting.integer(0, least=0)
    input: str = "logits"

    def predict_set(self, X: Array, *, seed: int | None = None) -> Array:
        """Which classes are in the set of each row: booleans of the shape of `predict_proba`.

        With `randomised` scores the sets of the same rows differ from call to call, unless a `seed` is given.
        """
        check_is_fitted(self)
        log_p = self.predict_log_proba(X)
        p = np.exp(to_numpy(log_p).astype(np.float64))
        flat = p.reshape(-1, p.shape[-1])
        return in_library_of(log_p, self._sets(flat, self.threshold_, np.random.default_rng(seed)).reshape(p.shape))

    def _sets(self, p: Matrix, threshold: float, generator: np.random.Generator) -> Flags:
        sets: Flags = self._scores(p, generator) <= threshold
        if not self.allow_empty:
            sets[np.arange(len(p)), np.argmax(p, axis=1)] = True
        return sets

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        chain, rows = self._calibrated(usable_rows(self._block_of(dataset)))
        p = np.exp(chain.log_probabilities(rows.logits).astype(np.float64))
        generator = np.random.default_rng(self.seed)
        of_truth = self._scores(p, generator)[np.arange(rows.n_rows), rows.labels]
        threshold = self._quantile(of_truth, rows)
        size = rows.average(self._sets(p, threshold, generator).sum(axis=1).astype(np.float64))
        said = f"Sets that hold the truth in {100 * self.coverage:g} % of rows have {size:.2f} classes on average here."
        return Fitted(chain, notes={"threshold": threshold, "set_size": size, "sentences": [said]})

    def _calibrated(self, rows: Block) -> tuple[Chain, Block]:
        """The chain that calibrates first, and the rows that it was not fitted on."""
        from refocal.calibrators.registry import NAMED, NONE, make

        check_option(self.base, (NONE, *NAMED), "base", type(self).__name__)
        if self.base == NONE:
            return Chain(), rows
        first = folds(rows, 2, self.seed) == 0
        return make(self.base).fit(rows.take(first)).chain_, rows.take(~first)

    def _scores(self, p: Matrix, generator: np.random.Generator) -> Vector:
        """The conformity score of each class; smaller is more conforming."""
        if self.conformity_score == "lac":
            return np.asarray(1.0 - p)
        order = np.argsort(-p, axis=1, kind="stable")
        ranked = np.take_along_axis(p, order, axis=1)
        edge = generator.random((len(p), 1)) if self.randomised else 1.0
        up_to = np.cumsum(ranked, axis=1) - (1.0 - edge) * ranked
        if self.conformity_score == "raps":
            up_to += self.penalty * np.maximum(np.arange(1, p.shape[1] + 1) - self.rank, 0)
        scores = np.empty_like(up_to)
        np.put_along_axis(scores, order, up_to, axis=1)
        return scores

    def _quantile(self, of_truth: Vector, rows: Block) -> float:
        """The smallest score up to which the share `coverage` of the weight lies, a new row of weight 1 included."""
        order = np.argsort(of_truth, kind="stable")
        needed = self.coverage * (rows.total_weight + 1.0) - 1e-9  # the rounding of 0.9 × 10
        at = int(np.searchsorted(np.cumsum(rows.weights[order]), needed))
        if at < len(order):
            return float(of_truth[order[at]])
        name, least = type(self).__name__, math.ceil(self.coverage / (1.0 - self.coverage) - 1e-9)
        text = (
            f"{name}.fit: every set holds all classes: a coverage of {self.coverage:g} needs {least:,} rows at least."
        )
        warn(text, FitWarning)
        return 1.0 + self.penalty * rows.n_classes  # no score is larger

    def _set_fitted(self, found: Fitted, classes: NDArray[Any], report: dict[str, Any]) -> None:
        super()._set_fitted(found, classes, report)
        self.threshold_ = number(report, "threshold")
