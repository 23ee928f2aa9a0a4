"""The packages of the stress suite: for each task the call that its documentation tells a user to make.

A package without a task says so by not having it. What one takes only as NumPy arrays or torch tensors is converted
by `np.asarray` or `torch.as_tensor`, as its user would; what takes probabilities gets scipy's softmax of the logits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import softmax


class NotOffered(Exception):  # noqa: N818 - not an error of anyone
    """The package has nothing for this."""


def array(values: Any) -> Any:
    """As NumPy has it; bfloat16, which it has not, as float32."""
    if not torch.is_tensor(values):
        return np.asarray(values)
    return (values.float() if values.dtype == torch.bfloat16 else values).detach().numpy()


def tensor(values: Any) -> torch.Tensor:
    """As torch has it."""
    if torch.is_tensor(values):
        return values.detach()
    values = np.asarray(values)
    if values.dtype.kind == "U" or not values.dtype.isnative:
        raise NotOffered("torch has no such tensors")
    return torch.as_tensor(values)


def unweighted(inputs):
    if inputs.weight is not None:
        raise NotOffered("no sample weights")


def confidence_and_hits(inputs):
    p, y = array(inputs.X), array(inputs.y)
    return (p, y) if p.ndim == 1 else (p.max(axis=1), (p.argmax(axis=1) == y).astype(int))


class Refocal:
    def fit(self, inputs):
        from refocal import TemperatureScaling

        model = TemperatureScaling().fit(inputs.X, inputs.y, inputs.weight)
        p = model.predict_proba(inputs.X)
        return (p.detach().double().numpy() if torch.is_tensor(p) else p), model.temperature_

    def isotonic(self, inputs):
        from refocal import IsotonicCalibration

        return IsotonicCalibration().fit(inputs.X, inputs.y).predict_proba(inputs.extra["test"])

    def ece(self, inputs):
        from refocal.metrics import expected_calibration_error

        return expected_calibration_error(inputs.y, inputs.X, n_bins=15, strategy="uniform")

    def gradient(self, inputs):
        from refocal.nn import FocalLoss

        x = torch.from_numpy(inputs.X).requires_grad_()
        FocalLoss(inputs.extra["gamma"])(x, torch.from_numpy(inputs.y)).backward()
        return x.grad.numpy()


class ScikitLearn:
    """CalibratedClassifierCV around a frozen classifier whose decision function is the logits."""

    def _fitted(self, inputs, method):
        from sklearn.base import BaseEstimator, ClassifierMixin
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.frozen import FrozenEstimator

        X = inputs.X.detach().numpy() if torch.is_tensor(inputs.X) and inputs.X.requires_grad else inputs.X
        seen, columns = np.unique(array(inputs.y)), np.shape(X)[1]

        class Logits(ClassifierMixin, BaseEstimator):
            classes_ = seen if len(seen) == columns else np.arange(columns)

            def fit(self, X, y):
                return self

            def predict(self, X):
                return self.classes_[np.asarray(X).argmax(axis=1)]

            def decision_function(self, X):
                X = np.asarray(X) if not torch.is_tensor(X) else X
                return X[:, 1] - X[:, 0] if X.shape[1] == 2 else X

            def __sklearn_is_fitted__(self):
                return True

        model = CalibratedClassifierCV(FrozenEstimator(Logits()), method=method)
        return model.fit(X, inputs.y, sample_weight=inputs.weight), X

    def fit(self, inputs):
        model, X = self._fitted(inputs, "temperature")
        inner = model.calibrated_classifiers_[0].calibrators[0]
        return model.predict_proba(X), float(1.0 / np.ravel(inner.beta_)[0])

    def isotonic(self, inputs):
        return self._fitted(inputs, "isotonic")[0].predict_proba(inputs.extra["test"])


class Probmetrics:
    def fit(self, inputs):
        from probmetrics.calibrators import TemperatureScalingCalibrator
        from probmetrics.distributions import CategoricalLogits

        unweighted(inputs)
        X, y = tensor(inputs.X), tensor(inputs.y)
        model = TemperatureScalingCalibrator()
        model.fit_torch(CategoricalLogits(X), y)
        p = model.predict_proba_torch(CategoricalLogits(X)).get_probs()
        return p.double().numpy(), 1.0 / float(model.invtemp_)

    def isotonic(self, inputs):
        from probmetrics.calibrators import get_calibrator

        model = get_calibrator("isotonic")
        model.fit(softmax(inputs.X, axis=1), inputs.y)
        return model.predict_proba(softmax(inputs.extra["test"], axis=1))

    def ece(self, inputs):
        from probmetrics.metrics import Metrics

        p, y = tensor(inputs.X), tensor(inputs.y)
        if p.ndim == 1:
            raise NotOffered("two or more columns only")
        return float(Metrics.from_names(["ece-15"]).compute_all_from_labels_logits(y, torch.log(p))["ece-15"])


class Netcal:
    def _probabilities(self, X):
        p = softmax(array(X), axis=1)
        return p[:, 1] if p.shape[1] == 2 else p

    def _predicted(self, model, X):
        p = np.asarray(model.transform(self._probabilities(X)))
        return np.stack([1 - p, p], axis=1) if p.ndim == 1 else p

    def fit(self, inputs):
        from netcal.scaling import TemperatureScaling

        unweighted(inputs)
        model = TemperatureScaling()
        model.fit(self._probabilities(inputs.X), array(inputs.y))
        return self._predicted(model, inputs.X), float(1.0 / np.ravel(model.temperature)[0])

    def isotonic(self, inputs):
        from netcal.binning import IsotonicRegression

        model = IsotonicRegression()
        model.fit(self._probabilities(inputs.X), inputs.y)
        return self._predicted(model, inputs.extra["test"])

    def ece(self, inputs):
        from netcal.metrics import ECE

        return ECE(15).measure(array(inputs.X), array(inputs.y))


class Torchmetrics:
    def ece(self, inputs):
        from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

        p, y = tensor(inputs.X), tensor(inputs.y)
        if p.ndim == 1:
            return float(binary_calibration_error(p, y, n_bins=15))
        return float(multiclass_calibration_error(p, y, num_classes=p.shape[1], n_bins=15))


class Relplot:
    """It measures a vector of confidences and of hits; those are taken by NumPy."""

    def ece(self, inputs):
        from relplot.metrics import binnedECE

        return binnedECE(*confidence_and_hits(inputs), nbins=15)


class Probcal:
    """Binary alone; an ECE of many classes is that of a vector of confidences and of hits, taken by NumPy."""

    def _pair(self, inputs):
        p = softmax(array(inputs.X), axis=1)
        if p.shape[1] != 2:
            raise NotOffered("two classes only")
        return p[:, 1], array(inputs.y)

    def fit(self, inputs):
        from probcal import TemperatureCalibrator

        p, y = self._pair(inputs)
        model = TemperatureCalibrator().fit(p, y, sample_weight=inputs.weight)
        found = np.asarray(model.predict_proba(p) if hasattr(model, "predict_proba") else model.transform(p))
        return np.stack([1 - found, found], axis=1) if found.ndim == 1 else found, float(model.T_)

    def isotonic(self, inputs):
        from probcal import IsotonicCalibrator

        p, y = self._pair(inputs)
        model = IsotonicCalibrator().fit(p, y)
        test = softmax(inputs.extra["test"], axis=1)[:, 1]
        found = np.asarray(model.predict_proba(test) if hasattr(model, "predict_proba") else model.transform(test))
        return np.stack([1 - found, found], axis=1) if found.ndim == 1 else found

    def ece(self, inputs):
        from probcal.metrics import ece

        p, y = confidence_and_hits(inputs)
        return ece(y, p, n_bins=15, strategy="width")


PACKAGES = {
    "refocal": Refocal,
    "scikit-learn": ScikitLearn,
    "probmetrics": Probmetrics,
    "netcal": Netcal,
    "torchmetrics": Torchmetrics,
    "relplot": Relplot,
    "probcal": Probcal,
}


def answer(package, case, inputs):
    """What the package says to a case; NotOffered where it has nothing for it."""
    task = case.task.removeprefix("refuse ")
    method = getattr(PACKAGES[package](), task, None)
    if method is None:
        raise NotOffered("no such function")
    if package in ("relplot", "probcal") and case.task == "refuse ece" and np.ndim(inputs.X) == 2:
        raise NotOffered("a vector of confidences only")  # what is wrong with the matrix it would never see
    return method(inputs)
