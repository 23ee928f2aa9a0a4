"""Calibration of detections: the size of the box, a common curve, and a line for each class."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from refocal._arrays import SMALLEST, Vector
from refocal._files import write_atomically
from refocal._json import build, read_json, without_format
from refocal.calibrators import Calibrator, GroupCalibration
from refocal.calibrators.registry import make, name_of
from refocal.calibrators.serialize import from_dict, to_dict
from refocal.detection.detections import Detections, check_detections
from refocal.errors import DataError, FitWarning, FormatError
from refocal.fitting.logistic import fit_logistic
from refocal.maps.row import softplus

CLASS = "class"
FORMAT = "refocal-detection-calibrator"
VERSION = 1


class DetectionCalibration(BaseEstimator):  # type: ignore[misc]
    """Confidences equal to the share of true objects among detections of the same score, class and size.

    With `box_size=True` a logistic regression of the score, the logarithm of the area of the box and the product of the
    two comes first. All detections together are calibrated then. With `per_class=True` each class has a line in
    log-odds after it, as `GroupCalibration` has for groups: a class of few detections is calibrated as all are, and so
    is one that was not seen.

    Parameters
    ----------
    method : str
        The calibrator of all detections, by its short name: "auto", "logistic", "isotonic", …
    per_class : bool
        Whether each class has a line of its own; needs labels.
    box_size : bool
        Whether the size of the box counts; needs boxes.

    Attributes
    ----------
    calibrator_ : Calibrator
        A `GroupCalibration` with the classes as groups, or that of all detections.
    classes_, slope_, intercept_ : array
        The classes as text, and their lines.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> score, label = rng.random(4000), rng.integers(2, size=4000)
    >>> right = rng.random(4000) < score ** np.where(label == 0, 1.0, 3.0)  # class 1 is overconfident
    >>> detections = Detections.of(score, right, labels=label)
    >>> calibrated = DetectionCalibration().fit(detections).transform(detections)
    >>> overconfident = calibrated.take(label == 1)
    >>> bool(abs(overconfident.scores.mean() - overconfident.correct.mean()) < 0.01)
    True
    """

    calibrator_: Calibrator
    size_: Size | None
    classes_: NDArray[np.str_]
    slope_: Vector
    intercept_: Vector

    def __init__(self, *, method: str = "auto", per_class: bool = True, box_size: bool = False) -> None:
        self.method = method
        self.per_class = per_class
        self.box_size = box_size

    def fit(self, detections: Detections, y: Any = None) -> Self:
        """Fit on detections in images that the detector was not trained on; `y` is ignored."""
        name = f"{type(self).__name__}.fit"
        self._check(detections, name)
        hit = detections.correct
        if hit.all() or not hit.any():
            got = f"only {'true' if hit.any() else 'false'} ones"
            raise DataError("detections", name, expected="some true and some false positives", got=got)
        size = _fit_size(detections) if self.box_size else None
        grouped = GroupCalibration(method=self.method, input="probabilities")
        calibrator = grouped if self.per_class else make(self.method, input="probabilities")
        with warnings.catch_warnings():
            if self.box_size:  # scores that are calibrated already are no reason to warn
                warnings.simplefilter("ignore", FitWarning)
            calibrator.fit(_scores(detections, size), hit.astype(np.int64), **self._groups(detections))
        return self._set(calibrator, size)

    def predict_proba(self, detections: Detections) -> Vector:
        """The calibrated confidence of each detection."""
        check_is_fitted(self)
        self._check(detections, f"{type(self).__name__}.predict_proba")
        if len(detections) == 0:  # an image in which nothing was found
            return detections.scores
        p = self.calibrator_.predict_proba(_scores(detections, self.size_), **self._groups(detections))
        return np.asarray(p[:, 1])

    def transform(self, detections: Detections) -> Detections:
        """The same detections with calibrated scores."""
        return detections.with_scores(self.predict_proba(detections))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted calibrator as JSON; `DetectionCalibration.load` reads it."""
        check_is_fitted(self)
        state = DetectorState(self.size_, to_dict(self.calibrator_))
        data = {"format": FORMAT, "version": VERSION, **asdict(state)}
        write_atomically(path, json.dumps(data, indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DetectionCalibration:
        """Read what `save` has written; nothing is executed."""
        title = "a calibrator of detections"

        def built(data: Any) -> DetectionCalibration:
            state = build(DetectorState, without_format(data, title, FORMAT, VERSION), "the calibrator")
            calibrator = from_dict(state.calibrator)
            per_class = isinstance(calibrator, GroupCalibration)
            if calibrator.n_features_in_ != 2 or (per_class and list(calibrator.lines_) != [CLASS]):
                raise FormatError("the calibrator must be one of two classes, with groups by class or none.")
            method = calibrator.method if isinstance(calibrator, GroupCalibration) else name_of(calibrator)
            if method is None:
                raise FormatError("the calibrator must be that of a method with a short name.")
            return cls(method=method, per_class=per_class, box_size=state.size is not None)._set(calibrator, state.size)

        return read_json(path, built, what=title, max_bytes=64 << 20)

    def _check(self, detections: Any, function: str) -> None:
        options = {"labels": "per_class", "boxes": "box_size"}
        needed = {name: f"; or say {option}=False" for name, option in options.items() if getattr(self, option)}
        check_detections(detections, function, needed)

    def _set(self, calibrator: Calibrator, size: Size | None) -> Self:
        """Keep what was fitted, and the lines of the classes."""
        none = (np.empty(0, dtype=np.str_), np.empty(0), np.empty(0))
        lines = calibrator.lines_[CLASS] if isinstance(calibrator, GroupCalibration) else none
        self.calibrator_ = calibrator
        self.size_ = size
        self.classes_, self.slope_, self.intercept_ = lines
        return self

    def _groups(self, detections: Detections) -> dict[str, Any]:
        return {"groups": {CLASS: detections.labels}} if self.per_class else {}


@dataclass(frozen=True)
class Size:
    """Log-odds a + b·x + c·z + d·x·z of x and of z, the logarithm of the area of the box, cut to the usual sizes."""

    constant: float
    score: float
    area: float
    both: float
    smallest: float
    largest: float


@dataclass(frozen=True)
class DetectorState:
    """The fields of a fitted calibrator in a file."""

    size: Size | None
    calibrator: dict[str, Any]


def _fit_size(detections: Detections) -> Size:
    x, z = _log_odds_and_area(detections)
    outliers = 0.005  # this share of the boxes at each end counts as neither smaller nor larger than the rest
    ends = np.quantile(z, [outliers, 1.0 - outliers])
    z = np.clip(z, *ends)
    (mx, sx), (mz, sz) = ((v.mean(), v.std() or 1.0) for v in (x, z))
    # The products of 1 and x with 1 and z; this makes them those of standardised x and z.
    standardise = np.kron([[1.0, -mz / sz], [0.0, 1.0 / sz]], [[1.0, -mx / sx], [0.0, 1.0 / sx]])
    features = np.stack([np.ones_like(x), x, z, x * z], axis=1) @ standardise
    start = np.array([mx, sx, 0.0, 0.0])  # which is x itself
    fitted = fit_logistic(features, detections.correct, np.ones(len(x)), start, np.eye(4), np.full(4, -np.inf))
    return Size(*map(float, (*standardise @ fitted.theta, *ends)))


def _scores(detections: Detections, size: Size | None) -> Vector:
    """Scores with the size of the box in them, if it counts."""
    if size is None:
        return detections.scores
    x, z = _log_odds_and_area(detections)
    z = np.clip(z, size.smallest, size.largest)
    p: Vector = np.exp(-softplus(np, -(size.constant + size.score * x + size.area * z + size.both * x * z)))
    return p


def _log_odds_and_area(detections: Detections) -> tuple[Vector, Vector]:
    """The log-odds of the scores, and the logarithms of the areas of the boxes."""
    closest = 1e-6  # a score closer to 0 or 1 counts as this close
    p = np.clip(detections.scores, closest, 1.0 - closest)
    area = np.prod(np.asarray(detections.boxes)[:, 2:], axis=1)
    return np.log(p) - np.log1p(-p), np.log(np.maximum(area, SMALLEST))
