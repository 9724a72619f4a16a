"""Packages that only some scenarios need: the extras of fedsim."""

from __future__ import annotations

import importlib
from typing import Any

from fedsim.errors import UserError


def required(module: str, extra: str, where: str) -> Any:
    """The module of an optional package; ``where`` names what needs it."""
    try:
        return importlib.import_module(module)
    # A torchvision that was built for another torch raises RuntimeError.
    except (ImportError, RuntimeError) as error:
        package = module.partition(".")[0]
        missing = isinstance(error, ModuleNotFoundError) and error.name == package
        raise UserError(
            f"the package {package} is not installed"
            if missing
            else f"the package {package} cannot be imported: {error}",
            where=where,
            hint=f'pip install "fedsim-des[{extra}]"'
            if missing
            else f"install the version of {package} that fits the other packages, such as torch",
        ) from error
