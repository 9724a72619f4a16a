"""Data sets from arrays, images and pairs as people and other libraries hold them; test samples held out."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, PositiveInt

from fedsim.errors import UserError, refused
from fedsim.files.checksums import file_crc32
from fedsim.files.durable import replacing_folder
from fedsim.files.room import require_room
from fedsim.parts.component import Parameters
from fedsim.parts.functions import shown
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.dataset import Dataset, TargetKind
from fedsim.tasks.reading.files import as_tokens, download_cache, first_not_finite, test_marks
from fedsim.vocabulary.arrays import Array, Bools, Floats, Ints
from fedsim.vocabulary.numbers import varies

if TYPE_CHECKING:
    from PIL.Image import Image

_SPLIT = 1


class HeldOutParameters(Parameters):
    """Parameters of data whose test samples may be unmarked."""

    test_share: float = Field(default=0.2, gt=0, lt=1)
    """Share of the samples that become test samples if the data do not mark them."""
    seed: int = Field(default=0, ge=0)
    """Seed of the choice of test samples."""

    def held_out(self, samples: int) -> Bools:
        """The mask of the test samples among this many samples; see :func:`held_out`."""
        return held_out(samples, self.test_share, self.seed)


class GeneratedParameters(Parameters):
    """Parameters of generated data."""

    seed: int = Field(default=0, ge=0)
    """Seed of the data; independent of the scenario's seed, so that repetitions share the data."""


def held_out(samples: int, share: float, seed: int) -> Bools:
    """The mask of the test samples: the rounded ``share`` of all, chosen at random, (n,) bool.

    A pure function of its arguments, independent of library versions.
    """
    keys = Stream(seed, Purpose.DATASET, _SPLIT).hashes(np.arange(samples))
    mask = np.zeros(samples, dtype=bool)
    mask[np.argsort(keys, kind="stable")[: round(share * samples)]] = True
    return mask


def split_dataset(
    x: Array,
    y: Array,
    is_test: Bools,
    groups: Array | None = None,
    group_names: tuple[str, ...] = (),
    **attributes: Any,
) -> Dataset:
    """The data set of samples with the test samples marked by ``is_test``.

    Its arrays are views, not copies, if all training samples come first.

    Args:
        x, y, is_test: samples (n, *input_shape), labels (n,) and marks (n,).
        groups: natural group of each sample (n,): numbers with ``group_names``, or names.
        group_names: names of the groups.
        attributes: other attributes of the dataset.
    """
    training = len(is_test) - int(np.count_nonzero(is_test))
    train, test = (~is_test, is_test) if is_test[:training].any() else np.s_[:training, training:]
    if groups is not None:
        if not group_names:
            names, groups = np.unique(groups, return_inverse=True)
            group_names = tuple(map(str, names))
        groups = groups.astype(np.int64)
        attributes.update(train_groups=groups[train], test_groups=groups[test])
    return Dataset(
        train_x=x[train],
        train_y=y[train],
        test_x=x[test],
        test_y=y[test],
        group_names=group_names,
        **attributes,
    )


def standardized(x: Floats, is_test: Bools) -> npt.NDArray[np.float32]:
    """Features (n, d) minus their mean over the training samples, divided by their standard deviation.

    A feature that is constant over the training samples is not divided: its computed deviation is rounding error.
    """
    mean, std = x[~is_test].mean(axis=0), x[~is_test].std(axis=0)
    divisor = np.where(varies(std, mean, int((~is_test).sum())), std, 1.0)
    scaled: Floats = (x - mean) / divisor
    return scaled.astype(np.float32)


Arrays = Mapping[str, Array]
# Changes with what :func:`pixels` makes of an image, so that no entry of the cache outlives it.
_DECODING = 4
_CHECKSUMS = "crc32.txt"
_FORM = "x are numbers (n, ...); y, group and is_test have one entry per sample"


_Pixels = Annotated[PositiveInt, Field(le=10_000)]


class PictureParameters(HeldOutParameters):
    """Parameters of data sets whose samples may be images that must be decoded."""

    size: tuple[_Pixels, _Pixels] | None = None
    """Height and width to which images are resized; by default all images must have the same size."""
    channels: Literal[1, 3] | None = None
    """3 for color, 1 for gray; by default 1 if the first image is gray."""


def dataset_of_arrays(
    arrays: Arrays,
    where: str,
    held_out: Callable[[int], Bools],
    *,
    name: str,
    target_kind: TargetKind | None = "class",
    labels_from: int = 0,
    tokens: bool = False,
    layout: Layout = "auto",
    class_names: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Dataset:
    """The data set of arrays x (n, ...), y (n,) and optionally group (n,) and is_test (n,).

    8-bit samples are stored unchanged and divided by 255 when used; all others become float32, except tokens.

    Args:
        arrays: the arrays by name.
        where: the source of the arrays, for messages.
        held_out: the mask of the test samples among a number of samples, if there is no array is_test.
        name, target_kind, labels_from, tokens, layout, class_names, notes: as in :class:`Dataset` and ``npz``; without
            a ``target_kind``, floating-point y are quantities.
    """
    from fedsim.files.cells import UNKNOWN_TEXT

    _check_shapes(arrays, where)
    arrays = {
        name: np.char.decode(array, "utf-8", "backslashreplace")
        if array.dtype.kind == "S"
        else array
        for name, array in arrays.items()
    }
    x, y, notes = arrays["x"], arrays["y"], list(notes)
    target: dict[str, Any] = {"classes": 1, "kind": "regression"}
    if target_kind is None and y.dtype.kind == "f" and y.size == len(y):
        target_kind = "quantity"
    if target_kind == "quantity":
        y = _quantities(y, where)
    else:
        y, found = _labels(y, labels_from, where, notes)
        class_names = tuple(class_names) or found
        target = {"classes": len(class_names) or int(y.max(initial=0)) + 1}
        target["class_names"] = class_names
    if tokens:
        x = as_tokens(x, "x", where)
    else:
        x, note = channels_first(x, layout)
        notes += [note] if note else []
        if x.dtype == np.uint8:
            ones = (1,) * (x.ndim - 1)
            target["scale"] = np.full(ones, 1 / 255, np.float32)
            target["shift"] = np.zeros(ones, np.float32)
        else:
            # A value too large for float32 becomes infinite, and is refused with its row.
            with np.errstate(over="ignore"):
                x = x.astype(np.float32, copy=False)
    marks, group = arrays.get("is_test"), arrays.get("group")
    for key, values in (("y", arrays["y"]), ("group", group)):
        if values is not None and values.dtype.kind in "UM":
            unknown = np.isin(values.astype(str), [*UNKNOWN_TEXT, "NaT"])
            if unknown.any():
                row = np.argwhere(unknown)[0][0]
                message = f"{key}: sample {row} has no name, but {str(values[row])!r}"
                raise UserError(message, where=where, hint="remove such samples, or name them")
    for key, values in (("x", x), ("y", y), ("group", group)):
        if values is not None and (row := first_not_finite(values)) is not None:
            hint = "remove such samples or fill in their values; samples are stored as float32"
            raise UserError(f"{key}: sample {row} is not finite", where=where, hint=hint)
    is_test = held_out(len(y)) if marks is None else test_marks(marks, "is_test", where)
    return split_dataset(
        x, y, is_test, group, name=name, tokens=tokens, notes=tuple(notes), **target
    )


def joined(available: Arrays, listed: Sequence[str], where: str) -> tuple[Arrays, list[str]]:
    """The arrays x, y and, if known, group and is_test among those ``available``; and notes on what was read.

    Args:
        available: the arrays of one set, or of a training and a test pair, by any of the usual names.
        listed: names of all arrays, of which some may not have been read.
        where: the source of the arrays, for messages.
    """
    names = array_names(available)

    def unused(further: Collection[str] = ()) -> list[str]:
        left = [name for name in listed if name not in (*names, *further)]
        return [f"not used: {', '.join(left)}"] if left else []

    if len(names) == 2:
        both = (each for each in _known() if len(each) > 2 and set(each) <= {*listed})
        if pairs := next(both, None):
            what = f"has both {', '.join(names)} and {', '.join(pairs)}"
            raise UserError(what, where=where, hint="leave out the one or the other")
        if missing := {*names} - {*available}:
            what = f"it has no array {', '.join(sorted(missing))}"
            raise UserError(what, where=where, hint=f"it contains: {', '.join(map(str, listed))}")
        further = {name: available[name] for name in ("group", "is_test") if name in available}
        return {"x": available[names[0]], "y": available[names[1]], **further}, unused(further)
    arrays, lengths = {}, {}
    for key, train, test in zip("xy", names[:2], names[2:], strict=True):
        pair = available[train], available[test]
        lengths[key] = [each.shape[:1] for each in pair]
        # Only 8-bit samples are divided by 255; text and numbers are not the same labels.
        is_x = key == "x"
        forms = {
            (each.ndim, each.shape[1:], is_x and each.dtype == np.uint8, each.dtype.kind in "US")
            for each in pair
        }
        if len(forms) > 1 or not pair[0].ndim or lengths[key] != lengths["x"]:
            shapes = {name: (available[name].shape, str(available[name].dtype)) for name in names}
            raise UserError(f"its arrays do not fit together: {shapes}", where=where, hint=_FORM)
        arrays[key] = np.concatenate(pair)
    arrays["is_test"] = np.arange(len(arrays["y"])) >= lengths["y"][0][0]
    return arrays, unused()


def dataset_of_splits(
    splits: Sequence[Any],
    where: str,
    params: PictureParameters,
    *,
    name: str,
    key: Sequence[Any] | None = None,
) -> Dataset:
    """The data set of pairs (x, y) in one map-style data set of torch, or in one for training and one for testing.

    ``key`` is that of :func:`decoded`.
    """
    pairs = (split[row] for split in splits for row in range(len(split)))
    samples = sum(map(len, splits))
    x, y = decoded(pairs, samples, params, where, key)
    names = [_class_names(split) for split in splits]
    arrays = {"x": x, "y": y}
    if len(splits) > 1:
        train = len(splits[0])
        arrays["is_test"] = np.arange(samples) >= train
        y[train:] = numbered_by(names[0], y[train:], names[-1], where)
    return dataset_of_arrays(
        arrays,
        where,
        params.held_out,
        name=name,
        target_kind=None,
        layout="channels_first",
        class_names=names[0],
    )


def _class_names(split: Any) -> tuple[str, ...]:
    """The names of the classes of a data set of torchvision; none if it has no list of them."""
    names = getattr(split, "classes", ())
    named = isinstance(names, list | tuple) and all(isinstance(each, str) for each in names)
    return tuple(names) if named else ()


def numbered_by(names: Sequence[str], labels: Array, others: Sequence[str], where: str) -> Array:
    """Labels that number the names ``others``, renumbered by ``names``; unchanged if one of the two is empty."""
    # Labels below 0, which stand for unknown classes, are refused where all labels are checked.
    if not names or not others or list(names) == list(others) or (labels < 0).any():
        return labels
    if unknown := sorted({others[label] for label in np.unique(labels)} - set(names)):
        raise UserError(
            f"test samples have class '{unknown[0]}', which training samples do not have",
            where=where,
            hint=f"classes of training: {', '.join(names)}; of testing: {', '.join(others)}",
        )
    number = {name: label for label, name in enumerate(names)}
    return np.array([number[others[label]] for label in labels], labels.dtype)


def decoded(
    pairs: Iterable[tuple[Any, Any]],
    samples: int,
    params: PictureParameters,
    where: str,
    key: Sequence[Any] | None = None,
) -> tuple[Array, Array]:
    """Samples (n, ...) and labels (n,) of pairs whose samples are images (PIL), tensors, arrays or numbers.

    If ``key`` is given, which must identify the content, they are decoded once and then mapped from a file in the
    cache.
    """
    if key is None:
        return _stacked(pairs, samples, params, where, None)
    content = (*key, params.size, params.channels, _DECODING)
    digest = hashlib.sha256(repr(content).encode()).hexdigest()[:32]
    folder = download_cache("decoded") / digest
    if folder.is_dir():
        with suppress(OSError, ValueError, EOFError):
            if (folder / _CHECKSUMS).read_text() == _checksums(folder):
                return _mapped(folder)
        shutil.rmtree(folder, ignore_errors=True)  # It is damaged.
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacing_folder(folder) as temporary:
            _, y = _stacked(pairs, samples, params, where, temporary / "x.npy")
            np.save(temporary / "y.npy", y, allow_pickle=False)
            (temporary / _CHECKSUMS).write_text(_checksums(temporary))
    except OSError:
        if not folder.is_dir():  # Otherwise another process has decoded the same samples meanwhile.
            raise
    return _mapped(folder)


def _checksums(folder: Path) -> str:
    return "".join(f"{file_crc32(folder / name)} {name}\n" for name in ("x.npy", "y.npy"))


def _mapped(folder: Path) -> tuple[Array, Array]:
    x = np.lib.format.open_memmap(folder / "x.npy", mode="c")
    return x, np.load(folder / "y.npy", allow_pickle=False)


def _stacked(
    pairs: Iterable[tuple[Any, Any]],
    samples: int,
    params: PictureParameters,
    where: str,
    file: Path | None,
) -> tuple[Array, Array]:
    x: Array = np.empty(0)
    labels, channels, packed = [], params.channels, 0
    for row, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise UserError(f"sample {row} is {shown(pair)}, not a pair (x, y)", where=where)
        value, label = pair
        opened = getattr(value, "filename", "")  # An image of a file names it.
        own = getattr(value, "info", {}).get(_PACKED)
        if hasattr(value, "convert"):
            channels = channels or (1 if value.mode[0] in "1LIF" else 3)
            value = pixels(value, channels, params.size, opened or f"{where}: sample {row}")
        value = np.asarray(value)
        if not row:
            shape = (samples, *value.shape)
            x = (
                np.empty(shape, value.dtype)
                if file is None
                else np.lib.format.open_memmap(file, mode="w+", dtype=value.dtype, shape=shape)
            )
        if value.shape != x.shape[1:] or value.dtype != x.dtype:
            raise UserError(
                f"sample {row} is {shown(value)}, others have shape {x.shape[1:]} and type {x.dtype}",
                where=opened or where,
                hint="save all of them in the same type"
                if value.shape == x.shape[1:]
                else "give images a size: [height, width] to resize all of them; make other samples equally long",
            )
        packed += value.nbytes if own is None else own
        require_room((row + 1) * value.nbytes, packed, where)
        x[row] = value
        labels.append(label.item() if hasattr(label, "item") else label)
    if len(labels) != samples or not samples:
        raise UserError(f"it has {len(labels)} samples, not {samples}", where=where)
    return x, np.array(labels)


_PACKED = "fedsim_packed_bytes"
_ALONE = "save each as an image, or the first alone"
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


def opened(content: Path | bytes, where: str, open_image: Any = None) -> Image:
    """An image in a file, or its bytes; ``open_image`` is Pillow's own function if another is in its place."""
    from PIL import Image as images
    from PIL import ImageOps

    images.MAX_IMAGE_PIXELS = None  # Its own limit is a warning first.
    # Each format has its own kinds of damage.
    with refused("it cannot be read", where, kinds=Exception):
        packed = content.stat().st_size if isinstance(content, Path) else len(content)
        file = content if isinstance(content, Path) else BytesIO(content)
        # No others, because Pillow gives PostScript to an interpreter, whatever the file is called.
        with (open_image or images.open)(file, formats=_FORMATS) as image:
            # Pillow takes four bytes for each pixel, whatever their colors.
            require_room(4 * image.width * image.height, packed, where)
            frames = getattr(image, "n_frames", 1)
            if frames > 1 and image.format not in ("JPEG", "MPO"):
                raise UserError(f"it has {frames} pages or frames", where=where, hint=_ALONE)
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            has_alpha = "A" in image.getbands() or "transparency" in image.info
            # What lies behind it would decide what it shows.
            if has_alpha and np.asarray(image.convert("RGBA").getchannel("A")).min() < 255:
                raise UserError("it is transparent", where=where, hint="save it without alpha")
            image.info[_PACKED] = packed
            return image


def pixels(
    image: Image, channels: int, size: tuple[int, int] | None, where: str
) -> npt.NDArray[np.uint8 | np.float32]:
    """The image (channels, height, width), resized to ``size`` (height, width) if it is given.

    8-bit values, or for 16-bit gray images shares of 65535 (float32), which keep their precision.
    """
    # Older releases of Pillow open 16-bit PNG files in mode I.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        from PIL import Image as opened

        image = opened.fromarray(np.asarray(image).astype(np.float32) / 65535)
    elif image.mode in ("I", "F"):
        raise UserError(
            f"the image has mode {image.mode}, whose values have no range from black to white",
            where=where,
            hint="save it with 8 or 16 bits per pixel, or its values as an array (dataset: npz)",
        )
    else:
        image = image.convert("L" if channels == 1 else "RGB")
    if size is not None:
        image = image.resize(size[::-1])
    array = np.asarray(image)
    return np.stack([array] * channels) if array.ndim == 2 else array.transpose(2, 0, 1)


def _check_shapes(arrays: Arrays, where: str) -> None:
    x = arrays["x"]
    marks = [arrays[name] for name in ("group", "is_test") if name in arrays]
    lengths = {name: array.shape[:1] for name, array in arrays.items()}
    if (
        len(set(lengths.values())) > 1
        or x.ndim < 2
        or x.dtype.kind not in "fiub"
        or any(array.ndim != 1 or array.dtype.kind in "cV" for array in marks)
    ):
        shapes = {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}
        raise UserError(f"its arrays do not fit together: {shapes}", where=where, hint=_FORM)


def _quantities(y: Array, where: str) -> npt.NDArray[np.float32]:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "fiu":
        message = f"y has {y.ndim} dimensions of type {y.dtype}, but target_kind is quantity"
        raise UserError(message, where=where, hint="y must be numbers (n,)")
    with np.errstate(over="ignore"):
        return y.astype(np.float32)


def _labels(y: Array, first: int, where: str, notes: list[str]) -> tuple[Ints, tuple[str, ...]]:
    """Labels (n,) of integers, whole numbers in floats, one-hot rows or names, and the sorted names of the classes.

    They are numbered from 0 and not all equal. How they were read is added to the ``notes``.
    """
    names: tuple[str, ...] = ()
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 1 and y.dtype.kind == "U":
        unique, y = np.unique(y, return_inverse=True)
        names = tuple(map(str, unique))
        listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        notes += [f"the names in y are the classes 0 to {len(names) - 1} in sorted order: {listed}"]
    elif y.ndim == 2 and y.dtype.kind in "fiub" and np.isin(y, (0, 1)).all():
        if (y.sum(axis=1) == 1).all():
            y = y.argmax(axis=1)
            notes += ["the one-hot rows of y are the labels"]
    elif y.ndim == 1 and y.dtype.kind == "f" and (abs(y) < 2**63).all() and (y % 1 == 0).all():
        y = y.astype(np.int64)
        notes += ["the whole numbers in y are labels"]
    if y.ndim != 1 or y.dtype.kind not in "iub":
        raise UserError(
            f"y has {y.ndim} dimensions of type {y.dtype}, which are not labels",
            where=where,
            hint="y must be integer labels (n,), one-hot rows (n, classes) or names; for quantities, set "
            "target_kind: quantity",
        )
    first = 0 if names else first
    low, high = (int(y.min()) - first, int(y.max()) - first) if len(y) else (0, 1)
    if low < 0 or high >= max(len(y), 2) or low == high:
        raise UserError(
            f"y: labels run from {low} to {high}; there are {len(y)} samples",
            where=where,
            hint="number the classes 0, 1, 2, ..., at least two, or set labels_from to the first label",
        )
    return y.astype(np.int64) - first, names


Layout = Literal["auto", "channels_first", "channels_last"]

_PARTS = (
    *(("x", "y"), ("X", "y"), ("images", "labels"), ("data", "labels"), ("features", "labels")),
    *(("inputs", "targets"), ("data", "targets"), ("x", "label"), ("image", "label")),
)
_CHANNELS = (1, 3, 4)
_NARROWEST_IMAGE = 8


def array_names(available: Collection[str]) -> list[str]:
    """Samples and labels to use among the arrays of a file, then those of separate test samples; else ``x, y``."""
    known = (names for names in _known() if set(names) <= set(available))
    return next(known, ["x", "y"])


def _known() -> Iterator[list[str]]:
    yield ["x", "y"]
    for pair in _PARTS:
        for form in ("{part}_{split}", "{split}_{part}"):
            yield [
                form.format(part=part, split=split) for split in ("train", "test") for part in pair
            ]
        yield list(pair)


def channels_first(x: Array, layout: Layout) -> tuple[Array, str | None]:
    """Samples with their channels in the second axis; other samples are returned as they are.

    With ``auto``, (n, height, width) of at least 8 x 8 and at most twice as long as wide are gray images, and (n,
    height, width, channels) have their channels last if only the last axis can be the channels.
    """
    if layout == "channels_first" or x.ndim not in (3, 4):
        return x, None
    shape = x.shape[1:]
    if x.ndim == 3:
        gray = min(shape) >= _NARROWEST_IMAGE and max(shape) <= 2 * min(shape)
        if layout == "auto" and not gray:
            return x, None
        note = f"samples of {shape[0]} x {shape[1]} numbers are gray images with one channel"
        return x[:, None], note if layout == "auto" else None
    if layout == "auto" and (shape[2] not in _CHANNELS or shape[0] in _CHANNELS):
        return x, None
    note = f"samples of {' x '.join(map(str, shape))} numbers are images with channels last"
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), note if layout == "auto" else None
