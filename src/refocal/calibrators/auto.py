"""The default: means of scalings or curves, the focal map and a curve of the confidence, as far as the rows allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from refocal._arrays import Indices, Vector, to_numpy
from refocal.calibrators import settings as setting
from refocal.calibrators._auto_summary import (
    AutoFit,
    FitSummary,
    References,
    event_warnings,
    is_vocabulary,
    max_rows,
    reference_warnings,
    sentences,
)
from refocal.calibrators._cross_fitted import CrossFitted
from refocal.calibrators.fitted import Fitted
from refocal.engine import Block, Dataset
from refocal.engine.sampling import sampled
from refocal.errors import FitWarning, warn
from refocal.fitting import affine
from refocal.fitting.confidence import IDENTITY, Tail, draft_tail, fit_tail, tail_losses
from refocal.fitting.curves import log_odds_after
from refocal.fitting.folds import joined_folds, random_folds
from refocal.fitting.mean_scaling import LeftOutScores, Members, without_smallest
from refocal.fitting.temperature import laplace_temperature, newton_temperature
from refocal.fitting.two_classes import MEMBERS, fit_two_classes
from refocal.maps.chain import Chain
from refocal.maps.curves import OneVsRest, Pieces
from refocal.maps.steps import KeepTop, Temperature


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

    On few rows the weights are close to fixed ones, and grow apart with more; a row more or less changes them little.
    The numbers of rows and classes alone decide which members there are. Every part is fitted by log-loss, and nothing
    by ECE.

    Parameters
    ----------
    order_preserving : bool
        Keep the most probable class of every row, and so the accuracy. By default the scaling may change it; with two
        classes the threshold then moves from 1/2 to where the two classes are equally frequent.
    n_folds, random_state : int
        The number of folds of the cross-fitting, and their seed. Fewer rows than two for each fold are divided into
        fewer folds, and fewer than ten into none.
    input : "logits" or "probabilities"
        What the columns hold. Probabilities of 0 count as half the smallest other one among the rows of the fit, and
        so do those of new rows that are smaller still.

    Attributes
    ----------
    report_ : str
        What was averaged, and what was left out because there are too few rows.
    choice_ : dict
        The same as numbers: the form of the map ("chosen"), the weights of the mean, and the log-losses of rows left
        out, of the members and of the whole ("mean"). The scalings or curves of a fold, their weights and what follows
        the mean are fitted without the rows that they are measured on. It is no full nesting: the predictions for
        other folds, which weights and tail are fitted on, are of members that have seen the fold that is measured, and
        with three classes or more the scalings begin with a T of all rows. On a handful of rows, the log-loss of the
        fit.

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

    order_preserving: bool = setting.flag(default=False)
    n_folds: int = setting.integer(10, least=2)
    averages: ClassVar[bool] = True

    @property
    def report_(self) -> str:
        """What was fitted and why, one sentence per line."""
        return "\n".join(self.fit_report_.get("sentences", ()))

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        tell = progress or _ignore
        dataset.start()
        n_rows = min(dataset.n_rows, max_rows(dataset.n_classes))
        has_vocabulary = is_vocabulary(n_rows, dataset.n_classes)
        rows, whole = _sample(dataset, has_vocabulary)
        fold = None if has_vocabulary else self._fold(rows)
        references = References.of(rows)
        if rows.n_classes == 2:
            chain, summary = self._two_classes(rows, fold)
        elif rows is whole and rows.correct.all():
            chain = Chain((Temperature(laplace_temperature(rows)),))
            summary = FitSummary(form="laplace")
        elif fold is None:
            chain, summary = self._only_temperature(whole, rows)
        else:
            chain, summary = self._many_classes(whole, rows, fold, references, tell)
        tell(1.0)
        warned = reference_warnings(summary, references)
        if isinstance(whole, Block):  # the labels of other rows are not in memory
            count = np.bincount(to_numpy(whole.labels), minlength=whole.n_classes)
            warned += event_warnings(count, dataset.classes)
        for warning in warned:
            warn(f"{type(self).__name__}.fit: {warning}", FitWarning)
        notes = {"scaling": summary.choice, "sentences": sentences(rows, summary, references) + warned}
        return Fitted(chain, notes=notes)

    def _fold(self, rows: Block) -> Indices | None:
        """The fold of each row, or None where so few are left to fit on that rows left out teach nothing."""
        fewest_rows = 10
        if rows.n_rows < min(fewest_rows, 2 * self.n_folds):
            return None
        return random_folds(rows, min(self.n_folds, rows.n_rows // 2), self.random_state)

    def _two_classes(self, rows: Block, fold: Indices | None) -> AutoFit:
        """A mean of curves of the log-odds, and a curve behind it, as one curve."""
        informative = np.isfinite(rows.logits).all(axis=1)  # a row with an impossible class says nothing
        if not informative.any():
            return AutoFit(Chain(), FitSummary(form="curve"))
        log_odds = log_odds_after(Chain(), rows)[informative]
        is_class = rows.labels[informative] == 1
        weight = rows.weights[informative]
        fit = fit_two_classes(log_odds, is_class, weight, None if fold is None else fold[informative])
        log_losses = None
        if fit.left_out is not None:
            of_members = dict(zip(MEMBERS, fit.left_out.of_members.tolist(), strict=True))
            log_losses = {"mean": fit.left_out.of_mean} | of_members
        summary = FitSummary(
            form="curve",
            weights=dict(zip(MEMBERS, fit.mean.weights.tolist(), strict=True)),
            share_uncalibrated=fit.mean.share_uncalibrated,
            log_losses_left_out=log_losses,
        )
        step = OneVsRest(Pieces.of(fit.pieces))
        return AutoFit(Chain((KeepTop((step,)) if self.order_preserving else step,)), summary)

    def _only_temperature(self, whole: Dataset, rows: Block) -> AutoFit:
        """Temperature scaling and a tail."""
        temperature = newton_temperature(whole).temperature
        draft = draft_tail(rows, IDENTITY._replace(inner_temperature=temperature))
        tail = fit_tail(rows, draft)
        log_loss = rows.average(tail_losses(rows, tail))
        # One temperature instead of two.
        chain = Chain((Temperature(temperature * tail.temperature), *tail.steps[1:]))
        return AutoFit(chain, FitSummary(form="temperature", log_loss_of_fit=log_loss, tail=tail))

    def _many_classes(
        self, whole: Dataset, rows: Block, fold: Indices, references: References, tell: Callable[[float], None]
    ) -> AutoFit:
        """A mean of scalings as one scaling, and a tail."""
        order_preserving = bool(self.order_preserving)
        temperature = newton_temperature(whole).temperature
        members = Members(rows, temperature, fold)
        tell(0.6)  # with a matrix it is more, with many classes less
        left_out = members.left_out()
        all_weights = left_out.fit_weights()
        omega = without_smallest(all_weights)
        scaled = Block(members.mean_scores(omega, order_preserving=order_preserving), rows.labels, rows.weight)
        draft = draft_tail(scaled)
        tail = fit_tail(scaled, draft)
        scaling = members.mean_scaling(omega, whole)
        tell(0.7)
        losses = self._losses_left_out(left_out, all_weights, draft)
        summary = FitSummary(
            form=scaling.recipe.shape,
            scaling=scaling,
            weights=dict(zip(members.names, omega.tolist(), strict=True)),
            log_losses_left_out=_log_losses(left_out, losses, references),
            tail=tail,
        )
        return AutoFit(Chain((scaling.step(order_preserving=order_preserving), *tail.steps)), summary)

    def _losses_left_out(self, left_out: LeftOutScores, weights: Vector, draft: Tail) -> Vector:
        """The log-loss of every row (n,) after the mean and the tail, whose parameters the other parts give.

        A part is one fold or several. Its weights and its tail are fitted to the labels of the other parts alone. It is
        no full nesting: the scores of those parts come from members fitted on all folds but their own, this part
        included, and T is of all rows. The fits begin at `weights` and `draft`, those of all rows, and the weights take
        one step from there.
        """
        losses = np.empty(left_out.rows.n_rows)
        part = joined_folds(left_out.fold)
        for i in np.unique(part):
            held_out = part == i
            others = ~held_out
            omega = without_smallest(left_out.fit_weights(others, weights))
            scaled = left_out.mean(omega, order_preserving=bool(self.order_preserving))
            tail = draft_tail(scaled.take(others), draft)
            losses[held_out] = tail_losses(scaled.take(held_out), tail)
        return losses


def _ignore(share: float) -> None:
    """Where nobody asks for the progress."""


def _log_losses(left_out: LeftOutScores, losses: Vector, references: References) -> dict[str, float]:
    """The mean log-loss of rows left out: of the whole fit, whose `losses` (n,) they are, and of the members.

    It is that of no calibration on all rows less what the n rows gain, so that it can be compared to the log-losses of
    all rows.
    """
    of_members = left_out.log_losses()
    log_losses = {"mean": losses} | of_members
    return {
        name: references.uncalibrated + left_out.rows.average(by_row - of_members["none"])
        for name, by_row in log_losses.items()
    }


def _sample(dataset: Dataset, has_vocabulary: bool) -> tuple[Block, Dataset]:
    """A sample of the rows, and all rows; both are the same object if the sample has all of them.

    Sampled rows are in the order of their keys, which are computed from their values, so that a fit does not depend on
    the order of the rows or on blocks. Those of a vocabulary keep their order: nothing is fitted to single classes.
    """
    n_rows = max_rows(dataset.n_classes)
    if not isinstance(dataset, Block):
        rows: Block = dataset.look(affine.usable_rows, min(n_rows, dataset.n_rows))
        return rows, (rows if rows.n_rows == dataset.n_rows else dataset)
    if has_vocabulary:
        usable = affine.counted_rows(dataset)
        rows = usable if usable.n_rows <= n_rows else usable.part(n_rows)
    else:
        usable = affine.usable_rows(dataset, keep_on_gpu=dataset.n_classes > 2)
        rows = sampled(usable, n_rows, dataset.floor)
    return rows, (rows if rows.n_rows == usable.n_rows else usable)
