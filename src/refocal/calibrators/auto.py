"""The default: means of scalings or curves, the focal map and a curve of the confidence, as far as the rows allow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, xlogy

from refocal._arrays import Indices, namespace, to_numpy
from refocal.calibrators._cross_fitted import CrossFitted
from refocal.calibrators.fitted import Fitted
from refocal.engine import Block, Dataset
from refocal.engine.sampling import sampled
from refocal.errors import FitWarning, warn
from refocal.fitting import affine
from refocal.fitting.confidence import IDENTITY, draft_tail, fit_tail, tail_losses
from refocal.fitting.curves import log_odds_after
from refocal.fitting.mean_scaling import Members, rows_for_matrix, without_smallest
from refocal.fitting.stacking import weights_of_scores
from refocal.fitting.temperature import laplace_temperature, newton_temperature
from refocal.fitting.two_classes import MEMBERS, fit_two_classes
from refocal.maps.chain import Chain
from refocal.maps.curves import OneVsRest, Pieces
from refocal.maps.steps import KeepTop, Temperature, keep_top

# With more classes for each row, as in a vocabulary, not even an intercept per class is tried: most never occur.
CLASSES_PER_ROW = 10
# The most rows, and the most logits, that all but the last fit of the scaling use: more would change the log-loss by
# less than 1e-4.
SCALING_ROWS = 100_000
SCALING_ENTRIES = 1 << 25
UNCALIBRATED = "no calibration"


@dataclass(kw_only=True, eq=False, repr=False)
class AutoCalibration(CrossFitted):
    """The calibrator to start with: means of scalings or curves, weighted by their log-loss on rows left out.

    Three classes or more:

    1. A mean of scalings of the classes: temperature scaling, no calibration, the share of each class, vector scaling
       with an intercept for each class, and a matrix with a weak ridge. It is one matrix or vector again.
    2. The focal map with γ, and a temperature T.
    3. A curve of the confidence: a monotone quadratic spline from the log-odds of the top class to calibrated ones. The
       other classes share the remaining probability as before, and the top class stays on top.

    γ, T and the curve are fitted together by log-loss on the out-of-fold scores, and shrunk towards 0, 1 and the
    identity. The curve is the mean of six that are shrunk more or less, weighted by their evidence.

    Two classes: a mean of six curves of the log-odds (a line, a beta line, a line of the probability, a quadratic,
    isotonic regression by Laplace's rule, no calibration), followed by a monotone curve, as one curve again.

    On few rows the weights are close to fixed ones, and grow apart with more. Nothing is chosen, so that a row more or
    less changes little. Every part is fitted by log-loss, and nothing by ECE.

    Parameters
    ----------
    order_preserving : bool
        Keep the most probable class of every row, and so the accuracy. By default the scaling may change it; with two
        classes the threshold then moves from 1/2 to where the two classes are equally frequent.
    n_folds, random_state : int
        The number of folds of the cross-fitting, and their seed.
    input : "logits" or "probabilities"
        What the columns hold. Probabilities of 0 count as half the smallest other one among the rows of the fit, and
        so do those of new rows that are smaller still.

    Attributes
    ----------
    report_ : str
        What was averaged, and what was left out because there are too few rows.
    choice_ : dict
        The same as numbers: the weights of the mean, and the log-losses of rows left out, of the members and of the
        whole ("mean"). Curves, scalings, weights and all that follows are fitted without the rows that they are
        measured on. On a handful of rows, the log-loss of the fit.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> log_p = 2.0 * rng.normal(size=(3000, 4))
    >>> labels = np.argmax(log_p + [1.0, 0.0, 0.0, -1.0] + rng.gumbel(size=log_p.shape), axis=1)
    >>> calibrator = AutoCalibration().fit(3.0 * log_p, labels)
    >>> max(calibrator.choice_["weights"], key=calibrator.choice_["weights"].get)
    'matrix 0.03'
    >>> print(calibrator.report_.splitlines()[0][:32])
    A mean of scalings was fitted: t
    """

    order_preserving: bool = False
    chooses: ClassVar[bool] = True

    @property
    def report_(self) -> str:
        """What was fitted and why, one sentence per line."""
        return "\n".join(self.fit_report_.get("sentences", ()))

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        dataset.start()
        # There are too few rows of a vocabulary to tell even one parameter for each class.
        n_rows = min(dataset.n_rows, SCALING_ENTRIES // dataset.n_classes)
        is_vocabulary = n_rows * CLASSES_PER_ROW < dataset.n_classes
        rows, whole = _sample(dataset, is_vocabulary)
        is_divided = rows.n_rows >= 2 * self.n_folds
        references = _references(rows)
        if rows.n_classes == 2:
            chain, choice = self._two_classes(rows, is_divided)
        elif rows is whole and rows.correct.all():
            chain = Chain((Temperature(laplace_temperature(rows)),))
            choice = {"chosen": "laplace"}
        elif is_vocabulary or not is_divided:
            chain, choice = self._only_temperature(whole, rows)
        else:
            chain, choice = self._many_classes(whole, rows, references[UNCALIBRATED])
        sentences = _sentences(rows, choice, references)
        warnings = _reference_warnings(choice, references)
        if isinstance(whole, Block):  # the labels of other rows are not in memory
            warnings += _event_warnings(np.bincount(to_numpy(whole.labels), minlength=whole.n_classes), dataset.classes)
        for warning in warnings:
            warn(f"{type(self).__name__}.fit: {warning}", FitWarning)
        return Fitted(chain, notes={"scaling": choice, "sentences": sentences + warnings})

    def _two_classes(self, rows: Block, is_divided: bool) -> tuple[Chain, dict[str, Any]]:
        """A mean of curves of the log-odds, and a curve behind it, as one curve."""
        choice: dict[str, Any] = {"chosen": "curve"}
        informative = np.isfinite(rows.logits).all(axis=1)  # a row with an impossible class says nothing
        if not informative.any():
            return Chain(), choice
        log_odds = log_odds_after(Chain(), rows)[informative]
        is_class = rows.labels[informative] == 1
        weight = rows.weights[informative]
        fold = affine.random_folds(rows, self.n_folds, self.random_state)[informative] if is_divided else None
        fit = fit_two_classes(log_odds, is_class, weight, fold)
        choice["weights"] = dict(zip(MEMBERS, fit.mean.weights.tolist(), strict=True))
        choice["share_uncalibrated"] = fit.mean.share_uncalibrated
        if fit.left_out is not None:
            of_members = dict(zip(MEMBERS, fit.left_out.of_members.tolist(), strict=True))
            choice["log_loss_out_of_fold"] = {"mean": fit.left_out.of_mean} | of_members
        step = OneVsRest(Pieces.of(fit.pieces))
        return Chain((KeepTop((step,)) if self.order_preserving else step,)), choice

    def _only_temperature(self, whole: Dataset, rows: Block) -> tuple[Chain, dict[str, Any]]:
        """Temperature scaling and a tail; `log_loss` is that of the rows of the fit."""
        temperature = newton_temperature(whole).temperature
        draft = draft_tail(rows, IDENTITY._replace(inner_temperature=temperature))
        tail = fit_tail(rows, draft)
        choice = {
            "chosen": "temperature",
            "log_loss": {"temperature": rows.average(tail_losses(rows, tail))},
            "gamma": tail.gamma,
            "temperature": tail.temperature,
        }
        # One temperature instead of two.
        return Chain((Temperature(temperature * tail.temperature), *tail.steps[1:])), choice

    def _many_classes(self, whole: Dataset, rows: Block, uncalibrated: float) -> tuple[Chain, dict[str, Any]]:
        """A mean of scalings as one scaling, and a tail; `uncalibrated` is the log-loss of the logits as they are."""
        order_preserving = bool(self.order_preserving)
        temperature = newton_temperature(whole).temperature
        fold = affine.random_folds(rows, self.n_folds, self.random_state)
        members = Members(rows, temperature, fold)
        some = rows.take(members.some)
        some_labels = to_numpy(some.labels)
        stacked = members.stacked()
        stands_for = members.some.step * some.weights  # some rows count as all of them beside the pseudo-counts
        all_weights = weights_of_scores(stacked, some_labels, stands_for, members.pseudo_counts)
        omega = without_smallest(all_weights)
        scaled = Block(members.mean_scores(omega, order_preserving=order_preserving), rows.labels, rows.weight)
        draft = draft_tail(scaled)
        tail = fit_tail(scaled, draft)
        scaling = members.mean_scaling(omega, whole)
        # Weights and tail of each fold by the others, so that its rows are left out of all that is fitted.
        losses = np.empty(some.n_rows)
        top = to_numpy(namespace(some.logits).argmax(some.logits, axis=-1, keepdims=True)) if order_preserving else None
        for i in range(self.n_folds):
            held_out = fold[members.some] == i
            others = ~held_out
            nested = weights_of_scores(
                stacked[:, others], some_labels[others], stands_for[others], members.pseudo_counts, all_weights
            )
            scores = np.tensordot(without_smallest(nested), stacked, axes=1)
            if top is not None:
                scores = keep_top(np, scores, top)
            after = Block(scores, some_labels, some.weight)
            losses[held_out] = tail_losses(after.take(held_out), draft_tail(after.take(others), draft))
        of_label = np.take_along_axis(stacked, some_labels[None, :, None], axis=2)[:, :, 0]
        of_members = logsumexp(stacked, axis=2) - of_label
        # By what the rows that were measured gain, so that it can be compared to the log-loss of all rows.
        log_losses = {"mean": uncalibrated + some.average(losses - of_members[1])}
        for name, of_member in zip(members.names, of_members, strict=True):
            log_losses[name] = uncalibrated + some.average(of_member - of_members[1])
        choice = scaling.choice | {
            "weights": dict(zip(members.names, omega.tolist(), strict=True)),
            "log_loss_out_of_fold": log_losses,
            "gamma": tail.gamma,
            "temperature": tail.temperature,
        }
        return Chain((scaling.step(order_preserving=order_preserving), *tail.steps)), choice


def _sample(dataset: Dataset, is_vocabulary: bool) -> tuple[Block, Dataset]:
    """A sample of the rows, and all rows; both are the same object if the sample has all of them.

    Sampled rows are in the order of their keys, which are computed from their values, so that a fit does not depend on
    the order of the rows or on blocks. Those of a vocabulary keep their order: nothing is fitted to single classes.
    """
    n_rows = min(SCALING_ROWS, SCALING_ENTRIES // dataset.n_classes)
    if not isinstance(dataset, Block):
        rows: Block = dataset.look(affine.usable_rows, min(n_rows, dataset.n_rows))
        return rows, (rows if rows.n_rows == dataset.n_rows else dataset)
    if is_vocabulary:
        usable = affine.counted_rows(dataset)
        rows = usable if usable.n_rows <= n_rows else usable.part(n_rows)
    else:
        usable = affine.usable_rows(dataset, keep_on_gpu=dataset.n_classes > 2)
        rows = sampled(usable, n_rows, dataset.floor)
    return rows, (rows if rows.n_rows == usable.n_rows else usable)


def _sentences(rows: Block, choice: dict[str, Any], references: dict[str, float]) -> list[str]:
    """What was fitted and why, and what to beware of."""
    if choice["chosen"] == "laplace":
        return ["Every row is right, so the temperature was fitted as if each were right with probability (n+1)/(n+2)."]
    sentences = []
    if "weights" in choice:
        parts = ", ".join(f"{name} {share:.0%}" for name, share in choice["weights"].items() if share >= 0.005)
        of = "curves of the log-odds" if rows.n_classes == 2 else "scalings"
        sentences.append(f"A mean of {of} was fitted: {parts}.")
    elif choice["chosen"] == "temperature":
        sentences.append("Temperature scaling was fitted.")
    if "log_loss_out_of_fold" in choice:
        log_losses = {"mean": choice["log_loss_out_of_fold"]["mean"]} | references
        values = ", ".join(f"{name} {value:.4f}" for name, value in log_losses.items() if value < math.inf)
        sentences.append(f"Log-loss on rows left out: {values}.")
    if "gamma" in choice:
        sentences.append(
            f"It is followed by the focal map with γ = {choice['gamma']:.2f}, T = {choice['temperature']:.2f} and a "
            "curve of the confidence, fitted together by log-loss."
        )
    if choice.get("share_uncalibrated", 0.0) >= 0.005:
        share = choice["share_uncalibrated"]
        sentences.append(f"It is mixed with {share:.0%} of no calibration, than which it is not clearly better.")
    if choice["chosen"] == "temperature" and rows.n_rows * CLASSES_PER_ROW < rows.n_classes:
        sentences.append(
            f"A scaling of the {rows.n_classes:,} classes was left out: there are more than {CLASSES_PER_ROW} for each "
            "row."
        )
    elif "log_loss_out_of_fold" not in choice:
        sentences.append(f"{rows.n_rows:,} rows are too few to divide: nothing was cross-validated.")
    elif rows.n_classes > 2 and rows.n_rows < rows_for_matrix(rows.n_classes):
        needed = rows_for_matrix(rows.n_classes)
        sentences.append(f"A matrix was left out: it needs {needed:,} rows for {rows.n_classes:,} classes.")
    return sentences


def _references(rows: Block) -> dict[str, float]:
    """Log-losses that a calibrator should stay below."""
    share = np.bincount(to_numpy(rows.labels), weights=rows.weight, minlength=rows.n_classes) / rows.total_weight
    # Shares of classes that occur once say nothing about other rows.
    by_share = -float(xlogy(share, share).sum()) if rows.n_classes < rows.n_rows else math.inf
    before = rows.means("temperature", 1.0, rough=True)[0]
    return {UNCALIBRATED: before, "predicting the share of each class": by_share}


def _reference_warnings(choice: dict[str, Any], references: dict[str, float]) -> list[str]:
    """Warnings about references that the result is worse than."""
    warnings = []
    if "log_loss_out_of_fold" in choice:
        log_loss = choice["log_loss_out_of_fold"]["mean"]
        where = "rows left out"
    else:
        log_loss = choice.get("log_loss", {}).get("temperature", math.nan)
        where = "the rows of the fit"
    for reference, value in references.items():
        if log_loss > value:
            warnings.append(
                f"On {where} the log-loss, {log_loss:.4f}, is higher than that of {reference}, {value:.4f}."
            )
    return warnings


def _event_warnings(count: Indices, classes: NDArray[Any] | None) -> list[str]:
    """A warning about classes that hardly occur, from the number of rows of each, by their names if they have any.

    >>> _event_warnings(np.array([3, 100, 97]), np.array(["hail", "rain", "sun"]))[0][:55]
    "Only 3 of 200 rows are of class 'hail': probabilities t"
    """
    few_events = 10  # below it even the share of a class is known to no better than about a third
    most_named = 3
    n_rows = int(count.sum())
    n_classes = len(count)
    # Of many classes each has few rows if there are few in all, which is no property of a class: one that is rare has
    # less than a fifth of an even share. And a class that does not occur may be one that cannot.
    if n_classes > 2 and n_rows < 5 * few_events * n_classes:
        return []
    least = 0 if n_classes == 2 else 1
    rare = np.flatnonzero((count >= least) & (count < few_events))
    if len(rare) == 0:
        return []
    rare = rare[np.argsort(count[rare], kind="stable")]
    names = list(range(n_classes)) if classes is None else classes.tolist()
    parts = [f"{count[i]} of {n_rows:,} rows are of class {names[i]!r}" for i in rare[:most_named]]
    n_others = len(rare) - len(parts)
    others = f", and as few of {n_others:,} more" if n_others else ""
    return [
        f"Only {', '.join(parts)}{others}: probabilities that are calibrated on fewer than {few_events} rows of a "
        "class are uncertain, however many rows there are of others."
    ]
