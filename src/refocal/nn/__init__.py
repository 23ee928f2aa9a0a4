"""torch: training losses, a calibration layer, and the collection of logits. Needs the extra `torch`."""

from refocal.errors import MissingExtraError

try:
    import torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError("refocal.nn", "torch", "torch") from error

from refocal.nn.adafocal import AdaFocalLoss
from refocal.nn.collect import collect_logits
from refocal.nn.layer import CalibrationLayer, MultiLabelLayer
from refocal.nn.losses import MMCE, BrierLoss, FocalLoss, ProperFocalLoss, SampleDependentFocalLoss
from refocal.nn.sigmoid import AsymmetricFocalLoss, SigmoidFocalLoss

__all__ = [
    "MMCE",
    "AdaFocalLoss",
    "AsymmetricFocalLoss",
    "BrierLoss",
    "CalibrationLayer",
    "FocalLoss",
    "MultiLabelLayer",
    "ProperFocalLoss",
    "SampleDependentFocalLoss",
    "SigmoidFocalLoss",
    "collect_logits",
]
