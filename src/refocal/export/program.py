"""Calibrators as exported torch programs."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from refocal._files import write_atomically
from refocal.calibrators import Calibrator
from refocal.export.onnx import class_axis_of, fitted_classes

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def to_torch_export(
    calibrator: Calibrator,
    path: str | os.PathLike[str] | None = None,
    n_classes: int | None = None,
    *,
    class_axis: int = -1,
    n_axes: int = 2,
) -> ExportedProgram:
    """The calibrator's layer as a program of `torch.export`, from float32 logits to log-probabilities.

    It is written to `path`, whole or not at all, if one is given, and `torch.export.load` reads it. All axes but that
    of the classes may have any size.

    >>> import numpy as np
    >>> from refocal import FocalCalibration
    >>> fitted = FocalCalibration(gamma=2.0).fit(np.log([[0.6, 0.4], [0.3, 0.7]]), [0, 1])
    >>> program = to_torch_export(fitted)
    >>> import torch
    >>> program.module()(torch.tensor([[0.5, 0.0], [9.0, 0.0]])).exp().sum(1)
    tensor([1., 1.])
    """
    classes = fitted_classes(calibrator, n_classes, "to_torch_export")
    axis = class_axis_of(class_axis, n_axes, "to_torch_export")
    layer = calibrator.to_torch(class_axis=class_axis)
    import torch

    has_class_axis = calibrator.has_class_axis
    sizes = [classes if i == axis else 3 + i for i in range(n_axes) if has_class_axis or i != axis]
    free = {i: torch.export.Dim.DYNAMIC for i in range(len(sizes)) if not has_class_axis or i != axis}
    program = torch.export.export(layer, (torch.zeros(sizes),), dynamic_shapes=(free,))
    if path is not None:
        content = io.BytesIO()
        torch.export.save(program, content)
        write_atomically(path, content.getvalue())
    return program
