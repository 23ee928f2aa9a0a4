"""Sums over rows for several methods, which add up over blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from refocal._arrays import Indices, Vector
from refocal.evaluate import _details as details
from refocal.evaluate._cluster_sums import ClusterSums, merged
from refocal.evaluate._details import N_BINS, NO_GROUPS, GroupCounts
from refocal.evaluate._results import reported
from refocal.evaluate.predicted import ZerosAtLabels
from refocal.metrics import CalibrationHistogram
from refocal.metrics.record import BlockSums, Metric
from refocal.metrics.smooth import GRID_POINTS, residuals_on_grid
from refocal.rows import Predictions


@dataclass
class MethodCounts:
    """Sums over some rows for one method: `count` adds rows to them, `merge` those of another block."""

    histogram: CalibrationHistogram
    """The confidence."""
    class_histograms: list[CalibrationHistogram]
    """The probability of each class; none where there are too many classes."""
    class_counts: Vector
    """What `count_classes` counts, (5, classes)."""
    residuals: Vector
    """Confidence less outcome on the grid of `smooth_ece`."""
    decisions: Vector
    """What `sum_decisions` sums, (3, thresholds)."""
    groups: GroupCounts

    @classmethod
    def empty(
        cls, histogram: CalibrationHistogram, class_histograms: list[CalibrationHistogram], n_classes: int
    ) -> MethodCounts:
        """The sums over no rows; the histograms are empty."""
        return cls(
            histogram=histogram,
            class_histograms=class_histograms,
            class_counts=np.zeros((5, n_classes)),
            residuals=np.zeros(GRID_POINTS),
            decisions=np.zeros((3, len(details.DECISION_THRESHOLDS))),
            groups=NO_GROUPS,
        )

    def count(self, rows: Predictions, group_names: list[tuple[str, str]], group_numbers: list[Indices]) -> None:
        """Add some rows; their groups are those of `details.numbered`."""
        p, happened = rows.confidence()
        self.histogram.count_rows(p, happened, rows.weight)
        classes = range(len(self.class_histograms))
        for histogram, (class_p, occurs) in zip(self.class_histograms, rows.events(classes), strict=True):
            histogram.count_rows(class_p, occurs, rows.weight)
        self.class_counts += details.count_classes(rows)
        self.residuals += residuals_on_grid(p, happened, rows.weight)
        self.decisions += details.sum_decisions(rows)
        if group_numbers:
            self.groups = self.groups.merge(GroupCounts.of(rows, group_names, group_numbers))

    def merge(self, other: MethodCounts) -> MethodCounts:
        """The sums over the rows of both."""
        class_pairs = zip(self.class_histograms, other.class_histograms, strict=True)
        return MethodCounts(
            histogram=self.histogram.merge(other.histogram),
            class_histograms=[mine.merge(theirs) for mine, theirs in class_pairs],
            class_counts=self.class_counts + other.class_counts,
            residuals=self.residuals + other.residuals,
            decisions=self.decisions + other.decisions,
            groups=self.groups.merge(other.groups),
        )


@dataclass(frozen=True)
class TermSums:
    """Sums of the terms of all metrics that are means, for k methods and with 1 as the last term.

    With x the k + 1 terms of a row and w its weight, `sums` is Σ w x, (metrics, k + 1), and `products`, which the
    covariances need, Σ w² x xᵀ, (metrics, k + 1, k + 1). The last of the metrics is the score test of each method.
    `cubes`, which the skewness of differences needs, is Σ w³ y yᵀ, (metrics, 2k + 1, 2k + 1), with y the terms x and
    the squares of the first k.
    """

    sums: Vector
    products: Vector
    cubes: Vector
    score_variances: Vector
    """Σ w² v of the score test of each method, (k,), with v the variance of its term if the model is right."""
    clusters: ClusterSums | None = None
    """Σ w x of each cluster, (metrics · (k + 1), clusters), where rows have clusters."""

    @property
    def weight(self) -> float:
        """The weight of all rows."""
        return float(self.sums[0, -1])

    @property
    def factor_of_rows(self) -> float:
        """The factor n / (n - 1) of n rows, effectively: what `metrics.influence` has for rows of the same weight."""
        squared_weight = float(self.products[0, -1, -1])
        return 1.0 / (1.0 - squared_weight / self.weight**2) if squared_weight < self.weight**2 else math.inf

    @property
    def means(self) -> Vector:
        """The means, (metrics, k)."""
        return np.asarray(self.sums[:, :-1] / self.weight)

    def covariances(self) -> list[Vector]:
        """The covariance of each mean between the methods, (k, k).

        Σ w² (x - mean)(x - mean)ᵀ / (Σ w)², by n / (n - 1). One row or cluster says nothing about it: NaN.
        """
        if self._is_one_unit:
            return self._unknown()
        covariances = []
        for mean, products in zip(self.means, self._products_of_units(), strict=True):
            centre = np.column_stack([np.eye(len(mean)), -mean])  # takes x and 1 to x - mean
            covariances.append(centre @ products @ centre.T / self.weight**2)
        return covariances

    def third_moments(self) -> list[Vector]:
        """Σ u² v of the influences u and v of two methods on each row or cluster, (k, k), of each mean.

        u is w (x - mean) / Σ w, by √(n / (n - 1)). One row or cluster says nothing about it: NaN.
        """
        if self._is_one_unit:
            return self._unknown()
        moments = []
        scale = math.sqrt(self.factor_of_rows) / self.weight if self.clusters is None else 1.0 / self.weight
        clusters = None if self.clusters is None else self._scaled_clusters()
        for i, mean in enumerate(self.means):
            identity = np.eye(len(mean))
            centre = np.column_stack([identity, -mean])  # takes x and 1 to x - mean
            if clusters is None:
                # (x - mean)² = x² - 2 mean x + mean², of y = (x, 1, x²)
                squares = np.column_stack([-2.0 * np.diag(mean), np.square(mean), identity])
                of_metric = squares @ self.cubes[i][:, : len(mean) + 1] @ centre.T
            else:
                of_cluster = centre @ clusters[i]
                of_metric = np.square(of_cluster) @ of_cluster.T
            moments.append(of_metric * scale**3)
        return moments

    @property
    def _is_one_unit(self) -> bool:
        """Whether there is one row alone, or one cluster."""
        if self.clusters is None:
            return math.isinf(self.factor_of_rows)
        return self.clusters.n_clusters < 2

    def _unknown(self) -> list[Vector]:
        n_methods = self.means.shape[1]
        return [np.full((n_methods, n_methods), math.nan) for _ in self.means]

    @property
    def n_rows(self) -> float:
        """The effective number of rows, where these have no clusters."""
        return self.weight**2 / float(self.products[0, -1, -1])

    def _products_of_units(self) -> Vector:
        """The products of what is independent: of rows, or of the sums of clusters."""
        if self.clusters is None:
            return self.products * self.factor_of_rows
        scaled = self._scaled_clusters()
        return np.asarray(scaled @ scaled.transpose(0, 2, 1))

    def _scaled_clusters(self) -> Vector:
        """The sums of clusters by `cluster_factors`, (metrics, k + 1, clusters)."""
        assert self.clusters is not None  # noqa: S101 - callers ask
        of_cluster = self.clusters.sums.reshape(*self.sums.shape, self.clusters.n_clusters)
        return np.asarray(of_cluster * cluster_factors(of_cluster[0, -1]))

    def merge(self, other: TermSums) -> TermSums:
        """The sums over the rows of both."""
        return TermSums(
            sums=self.sums + other.sums,
            products=self.products + other.products,
            cubes=self.cubes + other.cubes,
            score_variances=self.score_variances + other.score_variances,
            clusters=merged(self.clusters, other.clusters),
        )


@dataclass(frozen=True)
class Counts:
    """All sums over some rows."""

    methods: list[MethodCounts]
    terms: TermSums
    zeros: ZerosAtLabels

    def merge(self, other: Counts) -> Counts:
        """The sums over the rows of both."""
        pairs = zip(self.methods, other.methods, strict=True)
        methods = [mine.merge(theirs) for mine, theirs in pairs]
        return Counts(methods, self.terms.merge(other.terms), self.zeros.merge(other.zeros))

    def finish(self) -> Sums:
        """The sums over all rows; measures of classes take the place of their histograms, which are large to send."""
        n_classes = self.methods[0].class_counts.shape[1]
        names = [*(metric.name for metric in mean_metrics(n_classes)), SCORE]
        methods = []
        for counts, means in zip(self.methods, self.terms.means.T.tolist(), strict=True):
            methods.append(
                MethodSums(
                    histogram=counts.histogram,
                    classes=[histogram.compute(n_bins=N_BINS) for histogram in counts.class_histograms],
                    residuals=counts.residuals / self.terms.weight,
                    means=dict(zip(names, means, strict=True)),
                    class_counts=counts.class_counts,
                    decisions=counts.decisions,
                    groups=counts.groups,
                )
            )
        return Sums(methods, self.terms, self.zeros)


@dataclass(frozen=True, kw_only=True)
class MethodSums(BlockSums):
    """Sums over all rows for one method: what metrics take, and what its details are made of (`MethodCounts`)."""

    class_counts: Vector
    decisions: Vector
    groups: GroupCounts


@dataclass(frozen=True)
class Sums:
    """All sums over all rows."""

    methods: list[MethodSums]
    terms: TermSums
    zeros: ZerosAtLabels
    """Of logits they say nothing: these may be as low."""

    @property
    def n_clusters(self) -> int | None:
        """The number of clusters; None where rows have none."""
        return None if self.terms.clusters is None else self.terms.clusters.n_clusters

    def covariances(self) -> dict[str, Vector]:
        """The covariance between the methods of each metric that is a mean, (methods, methods), by its name."""
        return dict(zip(self.methods[0].means, self.terms.covariances(), strict=True))

    def score_errors(self) -> Vector:
        """The standard errors of the mean terms of the score test, (methods,).

        As in memory, from the larger of two variances: the empirical one, and that of a calibrated model.
        """
        as_seen = np.diagonal(self.covariances()[SCORE])
        of_right_model = self.terms.score_variances / self.terms.weight**2
        return np.sqrt(np.maximum(as_seen, of_right_model))

    def third_moments(self) -> dict[str, Vector]:
        """Those of `TermSums.third_moments`, by the name of the metric."""
        return dict(zip(self.methods[0].means, self.terms.third_moments(), strict=True))


def cluster_factors(weight: Vector) -> Vector:
    """By what the sums of clusters of these weights are multiplied before they are squared, (clusters,).

    √((m - 1) / m) W / (W - W_u), as `metrics.influence` has it; one cluster alone says nothing about the variance.
    """
    if len(weight) < 2:
        return np.full_like(weight, math.inf)
    return np.asarray(math.sqrt(1.0 - 1.0 / len(weight)) * weight.sum() / (weight.sum() - weight))


SCORE = "score"
"""The terms of the score test, among those of metrics that are means."""


def mean_metrics(n_classes: int) -> list[Metric]:
    """The reported metrics that are means of terms."""
    return [metric for metric in reported("with interval", n_classes) if metric.terms is not None]
