"""Lets ``import torchvision`` succeed with torch's CPU build; none of it is used here."""

from __future__ import annotations

import torch

# torchvision uses these operators when it is imported, and declares them in a binary that needs CUDA.
_LIBRARY = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
for _name in ("nms", "qnms"):
    schema = f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    _LIBRARY.define(schema)  # type: ignore[no-untyped-call]
