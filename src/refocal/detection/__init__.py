"""Detectors: matching of boxes, calibration of the confidence, D-ECE and LaECE."""

from refocal.detection.calibrator import DetectionCalibration
from refocal.detection.detections import Detections, detection_ece, localisation_aware_ece
from refocal.detection.matching import Match, box_iou, match_boxes, read_coco

__all__ = [
    "DetectionCalibration",
    "Detections",
    "Match",
    "box_iou",
    "detection_ece",
    "localisation_aware_ece",
    "match_boxes",
    "read_coco",
]
