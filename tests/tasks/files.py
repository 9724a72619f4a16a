"""Files of data sets, written for the tests."""

import json
import pickle
import struct
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.tasks.dataset import Dataset


def equal(first: Dataset, second: Dataset) -> bool:
    return all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in ("train_x", "train_y", "test_x", "test_y")
    )


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n"


def bitmap(width: int) -> bytes:
    return b"BM" + struct.pack("<IHHIIiiHHIIiiII", 99, 0, 0, 54, 40, width, width, 1, 24, *[0] * 6)


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return head + array.astype(np.uint8).tobytes()


def idx_arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, 256, (30, 28, 28)),
        rng.integers(0, 10, 30),
        rng.integers(0, 256, (10, 28, 28)),
        rng.integers(0, 10, 10),
    ]


def digest(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def batch(start: int, count: int = 6, **labels: list[int]) -> bytes:
    data = (np.arange(count * 3072).reshape(count, 3072) + start).astype(np.uint8)
    return pickle.dumps({"data": data, **labels}, protocol=2)


def leaf(samples: dict[str, tuple[list[Any], list[Any]]]) -> str:
    return json.dumps(
        {
            "users": list(samples),
            "num_samples": [len(y) for _, y in samples.values()],
            "user_data": {user: {"x": x, "y": y} for user, (x, y) in samples.items()},
        }
    )


def save_npz(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


def rows(samples: int, wrong: float = 0.0, at: int = 0) -> np.ndarray:
    """Samples of two zeros, with one number in its place."""
    x = np.zeros((samples, 2))
    x[at, 1] = wrong
    return x
