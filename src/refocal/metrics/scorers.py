"""Metrics as scikit-learn's `scoring=`: of the probabilities that an estimator predicts, higher for better ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refocal._arrays import to_numpy
from refocal.errors import DataError, ParameterError
from refocal.metrics.inputs import read_probabilities
from refocal.metrics.record import Metric
from refocal.metrics.records import as_metric, record_of_function
from refocal.rows import Predictions

__all__ = ["MetricScorer", "scorer"]


@dataclass(frozen=True)
class MetricScorer:
    """A metric of the probabilities of a classifier, as a number that is higher for better ones.

    >>> scorer("brier_score")
    scorer('brier_score')
    """

    metric: Metric
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """The score of a fitted classifier on rows `X` with labels `y`, which its `classes_` name."""
        if isinstance(X, Predictions):
            expected = (
                "an array or a data frame (Predictions have labels and weights of their own, for the metric itself)"
            )
            raise DataError("X", "scorer", expected=expected, got="Predictions")
        record = self.metric
        names = [str(name) for name in np.asarray(estimator.classes_).tolist()]
        p = to_numpy(estimator.predict_proba(X))
        rows = read_probabilities(y, p, sample_weight, "scorer", labels_name="y", class_names=names)
        return -float(record.cost(record.measure(rows, **self.options)))

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"scorer({self.metric.name!r}{options})"


def scorer(
    metric: str | Metric | Callable[..., Any], *, lower_is_better: bool | None = None, **options: Any
) -> MetricScorer:
    """A metric for the `scoring=` of scikit-learn's GridSearchCV, cross_validate and others.

    `metric` is the name of a metric, such as "smooth_ece" or "log_loss", its function or record, or a function of your
    own of labels and probabilities; `options` are passed on to it. As scikit-learn wants them, scores are higher for
    better probabilities: a loss or an error has its sign changed, and so has the distance from a best value, such as 0.
    `lower_is_better` is for a function of your own, and True by default.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import GridSearchCV
    >>> X, y = load_iris(return_X_y=True)
    >>> grid = {"C": [0.01, 1.0]}
    >>> search = GridSearchCV(LogisticRegression(max_iter=1000), grid, scoring=scorer("smooth_ece"))
    >>> search.fit(X, y).best_params_, bool(search.best_score_ < 0)
    ({'C': 1.0}, True)
    """
    record = as_metric(metric, "scorer")
    is_own_function = callable(metric) and record_of_function(metric) is None
    if is_own_function:
        record = Metric.of_function(record.function, lower_is_better=lower_is_better is not False)
    elif lower_is_better is not None:
        expected = "left out: it is for functions of your own, and this metric knows"
        raise ParameterError("lower_is_better", "scorer", expected=expected, got=repr(lower_is_better))
    return MetricScorer(record, options)
