"""Calibrators as exported torch programs."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from refocal._files import write_atomically
from refocal.calibrators import Calibrator
from refocal.export.onnx import class_axis_of, fitted_classes, takes_one_number

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
    of the classes may have any size. For two classes, n_axes=1 is one number per row, as in `predict_proba`.

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

    sizes = [3 + i for i in range(n_axes)]
    class_axes: list[int] = []
    if not takes_one_number(calibrator, classes, n_axes):
        sizes[axis : axis + 1] = [classes] if calibrator.has_class_axis else []
        class_axes = [axis] if calibrator.has_class_axis else []
    free = {i: torch.export.Dim.DYNAMIC for i in range(len(sizes)) if i not in class_axes}
    program = torch.export.export(layer, (torch.zeros(sizes),), dynamic_shapes=(free,))
    if path is not None:
        content = io.BytesIO()
        torch.export.save(program, content)
        write_atomically(path, content.getvalue())
    return program
