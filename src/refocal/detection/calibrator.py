"""Calibrated confidences of detections: one curve for all, the size of the box, and a line for each class."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from refocal._arrays import SMALLEST, Vector
from refocal._files import write_atomically
from refocal._json import read_json
from refocal.calibrators import AutoCalibration, Calibrator
from refocal.calibrators._logistic import fit_logistic, softplus
from refocal.calibrators._shrunken import Lines, fit_lines
from refocal.calibrators.serialize import from_dict, to_dict
from refocal.detection.detections import Detections
from refocal.errors import DataError, FormatError, ParameterError

# This share of the boxes at each end counts as neither smaller nor larger than the rest.
OUTLIERS = 0.005
FORMAT, VERSION, MAX_BYTES = "refocal-detection-calibrator", 1, 64 << 20


class DetectionCalibration(BaseEstimator):  # type: ignore[misc]
    """Confidences that are the share of true objects among detections of such a score, class and size.

    All detections together are calibrated first. With `box_size=True` the logarithm of the area of the box and its
    product with the score come in next. With `per_class=True` each class has a line in log-odds behind it, drawn to the
    identity as strongly as the classes are alike: a class of few detections is calibrated as all are, and so is one
    that was not seen.

    Parameters
    ----------
    calibrator : Calibrator, optional
        For all detections, with `input="probabilities"`; by default `AutoCalibration`.
    per_class : bool
        Whether each class has a line of its own; needs labels.
    box_size : bool
        Whether the size of the box counts; needs boxes.

    Attributes
    ----------
    calibrator_ : Calibrator
        Of all detections.
    classes_ : array
        The classes that have a line.
    slope_, intercept_ : array
        Their lines.
    deviation_ : float
        The standard deviation between classes, in log-odds, that the detections speak for.

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
    classes_: NDArray[Any]
    slope_: Vector
    intercept_: Vector
    deviation_: float

    def __init__(self, *, calibrator: Calibrator | None = None, per_class: bool = True, box_size: bool = False) -> None:
        self.calibrator = calibrator
        self.per_class = per_class
        self.box_size = box_size

    def fit(self, detections: Detections, y: Any = None) -> Self:
        """Fit on detections in images that the detector was not trained on; `y` is not looked at."""
        name = f"{type(self).__name__}.fit"
        calibrator = AutoCalibration(input="probabilities") if self.calibrator is None else clone(self.calibrator)
        if calibrator.input != "probabilities":
            expected = "made with input='probabilities'"
            raise ParameterError("calibrator", type(self).__name__, expected=expected, got=repr(calibrator.input))
        self._check(detections, name)
        hit = detections.correct
        if hit.all() or not hit.any():
            got = f"only {'true' if hit.any() else 'false'} ones"
            raise DataError("detections", name, expected="some true and some false positives", got=got)
        self.size_, self.classes_ = None, np.empty(0)
        self.calibrator_ = calibrator.fit(_columns(detections), hit.astype(np.int64))
        if self.box_size:
            self.size_ = _fit_size(self._log_odds_of_all(detections), detections)
        lines = Lines(np.empty(0), np.empty(0), 0.0)
        if self.per_class:
            self.classes_, group = np.unique(np.asarray(detections.labels), return_inverse=True)
            common = self._log_odds_of_all(detections)
            lines = fit_lines(common, hit, np.ones(len(hit)), group, len(self.classes_))
        self.slope_, self.intercept_, self.deviation_ = lines
        return self

    def predict_proba(self, detections: Detections) -> Vector:
        """The calibrated confidence of each detection."""
        check_is_fitted(self)
        self._check(detections, f"{type(self).__name__}.predict_proba")
        x = self._log_odds_of_all(detections)
        if len(self.classes_):
            labels = np.asarray(detections.labels)
            at = np.minimum(np.searchsorted(self.classes_, labels), len(self.classes_) - 1)
            known = self.classes_[at] == labels
            x = np.where(known, self.slope_[at] * x + self.intercept_[at], x)
        return np.exp(-softplus(-x))

    def transform(self, detections: Detections) -> Detections:
        """The same detections with calibrated scores."""
        return detections.with_scores(self.predict_proba(detections))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted calibrator as JSON; `DetectionCalibration.load` reads it."""
        check_is_fitted(self)
        data = {
            "format": FORMAT,
            "version": VERSION,
            "calibrator": to_dict(self.calibrator_),
            "size": None if self.size_ is None else self.size_._asdict(),
            "classes": self.classes_.tolist(),
            "slope": self.slope_.tolist(),
            "intercept": self.intercept_.tolist(),
            "deviation": self.deviation_,
        }
        write_atomically(path, json.dumps(data, indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` has written; nothing is executed."""
        data = read_json(path, what="a calibrator of detections", max_bytes=MAX_BYTES)
        if not isinstance(data, dict) or (data.get("format"), data.get("version")) != (FORMAT, VERSION):
            raise FormatError(
                f"{path}: not a calibrator of detections: 'format' must be {FORMAT!r}, version {VERSION}."
            )
        try:
            shared = from_dict(data["calibrator"])
            size = None if data["size"] is None else Size(**{name: float(data["size"][name]) for name in Size._fields})
            classes = np.array(data["classes"])
            slope, intercept = (np.array(data[name], dtype=np.float64) for name in ("slope", "intercept"))
            deviation = float(data["deviation"])
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{path}: the fitted numbers are damaged: {error}.") from error
        if not (shared.n_features_in_ == 2 and classes.shape == slope.shape == intercept.shape and classes.ndim == 1):
            raise FormatError(f"{path}: the fitted numbers are damaged: their shapes differ.")
        made = cls(calibrator=clone(shared), per_class=len(classes) > 0, box_size=size is not None)
        made.calibrator_, made.size_, made.classes_ = shared, size, classes
        made.slope_, made.intercept_, made.deviation_ = slope, intercept, deviation
        return made

    def __sklearn_is_fitted__(self) -> bool:
        """Fitted is what has lines, or has been told to have none."""
        return hasattr(self, "deviation_")

    def _check(self, detections: Any, function: str) -> None:
        if not isinstance(detections, Detections):
            expected = "Detections: refocal.detection.Detections.of(scores, correct, …), or read_coco"
            raise DataError("detections", function, expected=expected, got=type(detections).__name__)
        needs = {"labels": self.per_class, "boxes": self.box_size}
        for what, option in zip(needs, ("per_class", "box_size"), strict=True):
            if needs[what] and getattr(detections, what) is None:
                expected = f"with {what}, as {option}=True needs them"
                raise DataError("detections", function, expected=expected, got=f"detections without {what}")

    def _log_odds_of_all(self, detections: Detections) -> Vector:
        """Log-odds by what is common to all classes."""
        log_p = self.calibrator_.predict_log_proba(_columns(detections))
        x: Vector = log_p[:, 1] - log_p[:, 0]
        return x if self.size_ is None else self.size_.of(x, _log_area(detections))


class Size(NamedTuple):
    """Log-odds a + b·x + c·z + d·x·z of x and of z, the logarithm of the area of the box, cut to the usual sizes."""

    constant: float
    score: float
    area: float
    both: float
    smallest: float
    largest: float

    def of(self, x: Vector, z: Vector) -> Vector:
        """The log-odds of detections."""
        z = np.clip(z, self.smallest, self.largest)
        return self.constant + self.score * x + self.area * z + self.both * x * z


def _fit_size(x: Vector, detections: Detections) -> Size:
    z = _log_area(detections)
    smallest, largest = np.quantile(z, OUTLIERS), np.quantile(z, 1.0 - OUTLIERS)
    z = np.clip(z, smallest, largest)
    (mx, sx), (mz, sz) = ((float(v.mean()), float(v.std()) or 1.0) for v in (x, z))
    u, v = (x - mx) / sx, (z - mz) / sz
    start = np.array([mx, sx, 0.0, 0.0])  # which is x itself
    features = np.stack([np.ones_like(u), u, v, u * v], axis=1)
    t = fit_logistic(features, detections.correct, np.ones(len(x)), start, np.eye(4), np.full(4, -np.inf))
    both = t[3] / (sx * sz)
    score, area = t[1] / sx - both * mz, t[2] / sz - both * mx
    constant = t[0] - score * mx - area * mz - both * mx * mz
    return Size(*map(float, (constant, score, area, both, smallest, largest)))


def _log_area(detections: Detections) -> Vector:
    width, height = np.asarray(detections.boxes)[:, 2:].T
    return np.asarray(np.log(np.maximum(width * height, SMALLEST)))


def _columns(detections: Detections) -> Vector:
    return np.stack([1.0 - detections.scores, detections.scores], axis=1)
