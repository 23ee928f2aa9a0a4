"""The maps from logits to probabilities, in log space: softmax, temperature, the focal calibration map, its inverse.

Class weights, sigmoid outputs with α, asymmetric loss and label smoothing have theirs too.
One body serves NumPy, torch and JAX; the last axis holds the classes, any leading axes are rows. The kind, device and
dtype of a result follow the input's; half precision is computed in float32. gamma and temperature are numbers, or
arrays with one value for each row. `steps` and `curves` hold what fitted calibrators are chains of.
"""

from refocal.maps.chain import Chain, Step, array_field, number_field
from refocal.maps.sigmoid import asymmetric_focal, inverse_sigmoid_focal, sigmoid_focal, sigmoid_unsmooth
from refocal.maps.softmax import (
    LabelDerivatives,
    focal,
    focal_temperature,
    inverse_focal,
    label_derivatives,
    log_softmax,
    unsmooth,
)
from refocal.maps.steps import Affine, Focal, Mixture, Offset, Temperature, Uniform, Unsmooth

__all__ = [
    "Affine",
    "Chain",
    "Focal",
    "LabelDerivatives",
    "Mixture",
    "Offset",
    "Step",
    "Temperature",
    "Uniform",
    "Unsmooth",
    "array_field",
    "asymmetric_focal",
    "focal",
    "focal_temperature",
    "inverse_focal",
    "inverse_sigmoid_focal",
    "label_derivatives",
    "log_softmax",
    "number_field",
    "sigmoid_focal",
    "sigmoid_unsmooth",
    "unsmooth",
]
