"""Data sets of torchvision, and of the library ``datasets`` of Hugging Face."""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from glob import escape
from itertools import chain
from pathlib import Path
from tarfile import is_tarfile
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.errors import UserError, cut, nearest_or_all, refused
from fedsim.files.checksums import require_file, require_regular
from fedsim.files.documents import parsed
from fedsim.files.room import open_parquet, read_arrow
from fedsim.files.sources import CODECS
from fedsim.files.unpickling import load_plain
from fedsim.parts.extras import required
from fedsim.tasks.dataset import Dataset, DatasetComponent, TargetKind
from fedsim.tasks.reading.files import (
    NotOnDisk,
    download_cache,
    local_folder,
    may_download,
    read_bytes,
    resolve,
    texts,
)
from fedsim.tasks.reading.samples import (
    PictureParameters,
    dataset_of_arrays,
    dataset_of_splits,
    decoded,
    numbered_by,
    opened,
)
from fedsim.vocabulary.arrays import Array


class Torchvision(DatasetComponent):
    """A data set of torchvision (``pip install "fedsim-des[torchvision]"``) whose samples are images with one label.

    Images are decoded once, into the cache, and stored as 8-bit pixels that are divided by 255 when used; 16-bit gray
    images are stored as float32 and divided by 65535.
    """

    name = "torchvision"

    class Params(PictureParameters):
        dataset: str
        """Class of `torchvision.datasets`, such as `SVHN`."""
        root: Path | None = None
        """Folder of the files, as torchvision expects them; by default ``$FEDSIM_DATA/datasets/torchvision`` if it
        exists, else the download cache, to which torchvision downloads them."""
        arguments: dict[str, Any] = {}
        """Further arguments of the class, such as `{split: letters}` of EMNIST. `train` or `split`, unless given here,
        distinguishes training and test samples; without them a random share becomes test samples."""
        test_split: str = "test"
        """Value of `split` for the test samples, such as `val`."""

    params: Params

    def load(self, folder: Path | None = None) -> Dataset:
        params, where = self.params, f"data set {self.params.dataset} of torchvision"
        known = required("torchvision.datasets", "torchvision", where)
        make = getattr(known, params.dataset, None)
        if not inspect.isclass(make):
            every = f"see torchvision.datasets: {', '.join(known.__all__)}"
            raise UserError(
                f"torchvision has no data set '{params.dataset}'",
                where="task.dataset.dataset",
                hint=nearest_or_all(params.dataset, known.__all__, every),
            )
        accepted = inspect.signature(make).parameters
        local = local_folder(self.name, params.root, folder)
        root = local or download_cache(self.name)
        given: dict[str, Any] = {"root": str(root), **params.arguments}
        # Some classes take it as a further keyword argument.
        takes_download = "download" in accepted or "kwargs" in accepted
        if takes_download and local is None and may_download():
            given.setdefault("download", True)
        kinds = {"train": (True, False), "split": ("train", params.test_split)}
        key = next((key for key in kinds if key in accepted and key not in given), None)
        if key is None and "kwargs" in accepted and "train" not in given:
            key = "train"
        each = [given] if key is None else [{**given, key: value} for value in kinds[key]]
        hint = "put its files into the folder root, or correct arguments; they are those of "
        with _reading(where, f"{hint}{params.dataset}{inspect.signature(make)}"), _plain_files():
            for file in root.rglob("*"):
                if not file.is_dir():
                    require_regular(file)
            splits = [make(**arguments) for arguments in each]
            files = ((file, file.stat()) for file in sorted(root.rglob("*")))
            state = [(str(file), each.st_size, each.st_mtime_ns) for file, each in files]
            content = [params.dataset, given, state]
            return dataset_of_splits(splits, where, params, name=params.dataset, key=content)


@contextmanager
def _plain_files() -> Iterator[None]:
    """Let torchvision load pickles of plain data only, and images of no format that Pillow gives to an interpreter."""
    from PIL import Image

    open_image = Image.open

    def open_plainly(file: Any, *_: Any) -> Any:
        name, is_path = str(getattr(file, "name", file)), isinstance(file, str | Path)
        return opened(Path(file) if is_path else file.read(), name, open_image)

    plain_load = mock.patch("pickle.load", lambda file, **given: load_plain(file.read(), **given))
    with plain_load, mock.patch.object(Image, "open", open_plainly):
        yield


@contextmanager
def _reading(where: str, hint: str | None, message: str = "it cannot be read") -> Iterator[None]:
    """Turn an error of a library inside, which may be of any kind, into one that says where it is."""
    try:
        yield
    except (KeyboardInterrupt, UserError):
        raise
    except BaseException as error:  # A panic of a library in Rust is not an Exception.
        cause = error.__cause__ or error
        text = f"{message}: {type(cause).__name__}: {str(cause).strip()}"
        raise UserError(text, where=where, hint=hint) from error


_BATCH_TOKENS = 128_000
_PACKED = re.compile(rb"\x1f\x8b|BZh|\xfd7zXZ|\(\xb5/\xfd|\x04\"M\x18|PK\x03\x04|7z\xbc\xaf|Rar!")


class HuggingFace(DatasetComponent):
    """A data set of Hugging Face ``datasets`` (``pip install "fedsim-des[huggingface]"``): a folder of
    ``save_to_disk``, Parquet or Arrow files, or an id on the hub, if the network allows.

    Images are decoded once, into the cache, and stored as 8-bit pixels that are divided by 255 when used; 16-bit gray
    images are stored as float32 and divided by 65535.
    """

    name = "huggingface"

    class Params(PictureParameters):
        path: Path | str
        """Folder that `save_to_disk` wrote, Parquet or Arrow file, folder of such files, or id of a data set on the
        hub, such as `ylecun/mnist`."""
        config: str | None = None
        """Configuration of a data set on the hub that has several."""
        revision: str | None = None
        """Commit of a data set on the hub, without which its newest version is used."""
        split: str = "train"
        """Split with the training samples."""
        test_split: str | None = None
        """Split with the test samples; by default `test` if there is one, else a random share of the training
        samples."""
        image: str | None = None
        """Column of images; by default the only one, if neither text nor features is given."""
        text: str | None = None
        """Column of text, from which the tokenizer makes tokens."""
        features: list[str] | None = None
        """Columns of numbers, or one column of arrays of equal shape."""
        tokens: bool = False
        """The features are integer codes from 0, such as tokens, which the model receives as int64."""
        tokenizer: Path | None = None
        """File of the tokenizer of a text (`tokenizer.json`, as the library tokenizers saves it)."""
        length: int = Field(default=128, ge=1, le=1_000_000)
        """Tokens of a text; longer ones are cut, shorter ones are padded."""
        label: str = "label"
        """Column of the label, or of the quantity to be predicted."""
        target_kind: TargetKind = "class"
        """Type of the label: a class, or a quantity (regression), which keeps its unit."""
        group: str | None = None
        """Column of the natural group (client) of each sample, such as the writer."""

    params: Params

    def load(self, folder: Path | None = None) -> Dataset:
        params = self.params
        path = resolve(Path(params.path), folder)
        path = path.resolve() if path.is_dir() else path
        splits = self._splits(path)
        test = params.test_split or ("test" if "test" in splits else None)
        chosen = [params.split] if test in (None, params.split) else [params.split, test]
        for split in chosen:
            if split not in splits:
                hint = f"its splits are: {', '.join(splits)}"
                raise UserError(
                    f"it has no split '{split}'", where=f"data set {params.path}", hint=hint
                )
        return dataset_of_table(
            [splits[split] for split in chosen],
            params,
            name=path.name,
            folder=folder,
            images=path.parent if path.is_file() else path if path.is_dir() else None,
        )

    def _splits(self, path: Path) -> dict[str, Any]:
        datasets = required("datasets", "huggingface", f"data set {self.name}")
        params = self.params
        hint = (
            "give the folder of save_to_disk, a .parquet or .arrow file, a folder of such files, or the id of a data "
            "set on the hub (with a network); relative paths refer to the scenario's folder"
        )
        # The library would read a folder of the working directory instead of the hub.
        if not path.exists() and (Path(params.path).exists() or not may_download()):
            raise NotOnDisk("it is not on this disk", where=f"data set {params.path}", hint=hint)
        # Without a network it would print a line for each of its attempts.
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
        with _reading(f"data set {params.path}", hint):
            if (path / "state.json").is_file():
                loaded = _saved(path)
            elif (path / "dataset_dict.json").is_file():
                names = parsed((path / "dataset_dict.json").read_bytes())["splits"]
                loaded = {one: _saved(_inside(path, f"{one}/state.json").parent) for one in names}
            else:
                if (path / "README.md").is_file():
                    _check_header(path / "README.md")
                source = str(path) if path.is_dir() else str(params.path)
                given: dict[str, Any] = {"name": params.config, "revision": params.revision}
                if path.is_file():
                    source = path.suffix.removeprefix(".")
                    if source not in datasets.packaged_modules._PACKAGED_DATASETS_MODULES:
                        raise ValueError(f"{path.name} has an ending that is not known")
                    given = {"data_files": {params.split: str(path)}}
                with _naming_inside(path) if path.is_dir() else nullcontext():
                    builder = datasets.load_dataset_builder(source, **given)
                if type(builder).__name__ == "Pandas":
                    raise ValueError("pickles could run any program")
                if path.exists():
                    features = set[str]()
                    for name in chain.from_iterable((builder.config.data_files or {}).values()):
                        file = _inside(path if path.is_dir() else path.parent, name)
                        _checked(file, file.suffix.lower())
                        features |= _features(file)
                        shard = re.fullmatch(r"(.*)-\d{5}-of-(\d{5}).*", file.name)
                        if shard and path.is_dir():
                            count = len([*file.parent.glob(f"{escape(shard[1])}-*-of-*")])
                            if count != (every := int(shard[2])):
                                raise ValueError(f"there are not {every} files {shard[1]}-...")
                    if len(features) > 1:  # The library takes those of the first file for all.
                        raise ValueError(
                            "its files declare different features, or names of classes"
                        )
                builder.download_and_prepare()
                loaded = builder.as_dataset()
        return dict(loaded) if isinstance(loaded, dict) else {params.split: loaded}


@contextmanager
def _naming_inside(folder: Path) -> Iterator[None]:
    """Refuse names of files outside the folder before the library, which connects to any server, looks for them."""
    from datasets import data_files

    resolve_pattern = data_files.resolve_pattern

    def resolve_inside(pattern: str, base_path: str, *arguments: Any, **options: Any) -> Any:
        _named(folder, pattern if "://" in pattern else os.path.join(base_path, pattern))
        return resolve_pattern(pattern, base_path, *arguments, **options)

    with mock.patch.object(data_files, "resolve_pattern", resolve_inside):
        yield


def _check_header(readme: Path) -> None:
    """Refuse a description of a data set whose header the library would not understand, which would not name it."""
    from datasets.info import DatasetInfosDict
    from datasets.utils.metadata import MetadataConfigs
    from huggingface_hub import DatasetCard

    hint = "correct the YAML between the first two lines ---, or remove it"
    with _reading(str(readme), hint, "its header cannot be read"):
        header = DatasetCard.load(readme).data
    for key, reader in {"configs": MetadataConfigs, "dataset_info": DatasetInfosDict}.items():
        with _reading(str(readme), hint, f"{key} in its header is {cut(str(header.get(key)))}"):
            reader.from_dataset_card_data(header)


def _saved(folder: Path) -> Any:
    """The table that ``save_to_disk`` wrote to a folder, all columns as stored.

    Unlike ``load_from_disk``, no file outside the folder is read, and the view that was set is not applied.
    """
    import datasets

    names = [
        each["filename"] for each in parsed((folder / "state.json").read_bytes())["_data_files"]
    ]
    files = [str(_checked(_inside(folder, name), ".arrow")) for name in names]
    return datasets.concatenate_datasets([*map(datasets.Dataset.from_file, files)])


def _checked(path: Path, ending: str) -> Path:
    """A file of the library; refused if it unpacks to too much, or is damaged so that Arrow would end the process."""
    import pyarrow as pa

    with path.open("rb") as file:
        head = file.read(8)
    if head.startswith(b"PAR1"):
        open_parquet(path, path)
    elif ending == ".arrow":
        read_arrow(pa.memory_map(str(path)).read_buffer(), path)
    elif ending in CODECS:
        read_bytes(path)
    # Whatever its name, the library unpacks it.
    elif _PACKED.match(head) or (ending != ".tar" and is_tarfile(path)):
        raise ValueError(f"{path.name} is a compressed file or an archive: unpack it")
    return path


def _features(path: Path) -> set[str]:
    """Types of columns and names of classes that the library wrote into a Parquet file; empty if there are none."""
    import pyarrow.parquet as pq

    if path.suffix.lower() != ".parquet":
        return set()
    written = (pq.read_schema(path).metadata or {}).get(b"huggingface", b"{}")
    features = parsed(written).get("info", {}).get("features")
    return {json.dumps(features)} if features else set()


def _inside(folder: Path | None, file: str) -> Path:
    """The path of a regular file, which must be in the ``folder`` (None: on this disk)."""
    path = _named(folder, file)
    require_regular(path)
    return path


def _named(folder: Path | None, file: str) -> Path:
    """The path that a name or pattern stands for, which must be in the ``folder``."""
    path = Path(os.path.abspath((folder or Path()) / file))
    is_remote = "://" in file or "::" in file
    if is_remote or not path.is_relative_to(os.path.abspath(folder or "/")):
        raise ValueError(f"it names the file {file!r}, which is not in its folder")
    return path


def dataset_of_table(
    splits: list[Any],
    params: HuggingFace.Params,
    *,
    name: str,
    folder: Path | None = None,
    images: Path | None = None,
) -> Dataset:
    """The data set of a table (``datasets.Dataset``) with all samples, or of one for training and one for testing.

    Files of images that it names must be in the folder ``images`` (None: anywhere).
    """
    datasets = required("datasets", "huggingface", f"data set {name}")
    where = f"data set {name}"
    columns = splits[0].column_names
    pictures = [key for key, kind in splits[0].features.items() if isinstance(kind, datasets.Image)]
    image = params.image
    if image is None and params.text is None and not params.features:
        if len(pictures) != 1:
            message = f"its samples may be in any of the columns {', '.join(columns)}"
            raise UserError(message, where=where, hint="name one with image, text or features")
        (image,) = pictures
    inputs = [key for key in (image, params.text) if key is not None] + (params.features or [])
    needed = [*inputs, params.label, *([params.group] if params.group else [])]
    for split in splits:
        if missing := [key for key in needed if key not in split.column_names]:
            hint = f"its columns are: {', '.join(split.column_names)}"
            raise UserError(f"no column {', '.join(map(repr, missing))}", where=where, hint=hint)
    samples = sum(map(len, splits))
    labels, names = _labels(splits, params.label, where)
    arrays = {"y": labels}
    if params.group is not None:
        arrays["group"] = np.concatenate([_values(split, params.group, where) for split in splits])
    if len(splits) > 1:
        arrays["is_test"] = np.arange(samples) >= len(splits[0])
    key = [image, params.text, params.length, *(_identity(split) for split in splits)]
    if image is not None:
        as_stored = datasets.Image(decode=False)
        unfit = TypeError, ValueError, NotImplementedError
        with refused(f"column '{image}' has no images", where, kinds=unfit):
            tables = [each.select_columns(image).cast_column(image, as_stored) for each in splits]
        stored = (row[image] for table in tables for row in table)
        pairs = ((_image(one, f"{where}: row {row}", images), 0) for row, one in enumerate(stored))
        arrays["x"], _ = decoded(pairs, samples, params, where, key)
    elif params.text is not None:
        file, coded = _tokenized(splits, params, where, folder)
        arrays["x"], _ = decoded(
            ((codes, 0) for codes in coded), samples, params, where, [*key, file]
        )
    else:
        parts = [_numbers(split, params.features or [], where) for split in splits]
        if len(shapes := {part.shape[1:] for part in parts}) > 1:
            hint = "training and test samples must have one shape"
            message = f"its splits have samples of the shapes {', '.join(map(str, sorted(shapes)))}"
            raise UserError(message, where=where, hint=hint)
        arrays["x"] = np.concatenate(parts)
    return dataset_of_arrays(
        arrays,
        where,
        params.held_out,
        name=name,
        target_kind=params.target_kind,
        tokens=params.tokens or params.text is not None,
        layout="auto" if image is None else "channels_first",
        class_names=names,
    )


def _image(stored: Any, where: str, folder: Path | None) -> Any:
    """The image whose bytes or file a row has, turned as it says."""
    from PIL import ImageOps

    content, file = (stored or {}).get("bytes"), (stored or {}).get("path")
    with refused("the image cannot be read", where, kinds=(OSError, ValueError)):
        content = _inside(folder, str(file or "")) if content is None else content
    image = opened(content, where)
    ImageOps.exif_transpose(image, in_place=True)
    return image


def _labels(splits: list[Any], column: str, where: str) -> tuple[Array, Sequence[str]]:
    """The labels of all splits (n,), as the first one numbers its classes, and its names of them.

    Labels are text, without names, if they are text in one of the splits.
    """
    labels = [
        (_values(split, column, where), getattr(split.features[column], "names", ()))
        for split in splits
    ]
    if any(values.dtype.kind == "U" for values, _ in labels):
        return np.concatenate([np.array(names)[own] if names else own for own, names in labels]), ()
    first = labels[0][1]
    numbered = [numbered_by(first, values, names, where) for values, names in labels]
    return np.concatenate(numbered), first


def _identity(split: Any) -> tuple[Any, ...]:
    """What identifies the content of a split: its fingerprint, and the state of its files."""
    files = [Path(each["filename"]) for each in split.cache_files]
    return (split._fingerprint, *((str(file), file.stat().st_mtime_ns) for file in files))


def _values(table: Any, column: str, where: str) -> Array:
    # Not table[column], which would decode images, whatever they are.
    values = table.select_columns(column).with_format("arrow")[:][column].to_pylist()
    if None in values:
        message = f"row {values.index(None)} has no value in column '{column}'"
        raise UserError(message, where=where, hint="drop such rows, and save the data set again")
    try:
        kinds = {*map(type, values)}
        array = texts(values, where) if kinds <= {str} or kinds <= {bytes} else np.array(values)
    except ValueError:  # Lists of different lengths.
        kinds = {dict}
    if dict in kinds:
        raise UserError(f"column '{column}' does not contain numbers or text", where=where)
    return array


def _numbers(table: Any, columns: list[str], where: str) -> Array:
    """The values of columns of numbers (n, columns), or those of one column of arrays (n, ...)."""
    rows, schema = table.with_format("numpy"), table.data.schema
    # Images and the like are not decoded.
    is_file = ["struct" in str(schema.field(column).type) for column in columns]
    values = [np.asarray({} if is_file[n] else rows[each][:]) for n, each in enumerate(columns)]
    for column, array in zip(columns, values, strict=True):
        if array.dtype.kind not in "fiub" or (len(columns) > 1 and array.ndim != 1):
            message = f"column '{column}' does not contain numbers, or arrays of one shape"
            hint = "name columns of numbers, or one column of arrays of equal shape (pad sequences)"
            raise UserError(message, where=where, hint=hint)
    return values[0] if values[0].ndim > 1 else np.stack(values, axis=1)


def _tokenized(
    splits: list[Any], params: HuggingFace.Params, where: str, folder: Path | None
) -> tuple[bytes, Iterator[npt.NDArray[np.int32]]]:
    """The content of the tokenizer's file, and the tokens (length,) of each text."""
    if params.tokenizer is None:
        hint = "give its file, as in tokenizer: tokenizer.json; save_pretrained of transformers writes it"
        raise UserError("a column of text needs a tokenizer", where=where, hint=hint)
    path = resolve(params.tokenizer, folder)
    require_file(path)
    tokenizers = required("tokenizers", "transformers", where)
    usable = partial(_reading, str(path), None, "it is not a tokenizer of these texts")
    with usable():
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
        tokenizer.enable_truncation(params.length)
        fixed = {"length": params.length, "pad_to_multiple_of": None}
        tokenizer.enable_padding(**{**(tokenizer.padding or {}), **fixed})
        if (own := len(tokenizer.encode("").ids)) != params.length:
            raise ValueError(f"it adds {own} tokens to each, more than the length {params.length}")

    rows = max(1, _BATCH_TOKENS // params.length)

    def coded() -> Iterator[npt.NDArray[np.int32]]:
        for split in splits:
            for batch in split.select_columns(params.text).with_format("arrow").iter(rows):
                words = batch[params.text].to_pylist()
                if wrong := [word for word in words if not isinstance(word, str)]:
                    message = f"column '{params.text}' contains {wrong[0]!r}, which is not text"
                    raise UserError(message, where=where, hint="drop such rows, and save it again")
                with usable():
                    codes = [each.ids for each in tokenizer.encode_batch(words)]
                    samples = np.array(codes, np.int32)
                yield from samples

    return path.read_bytes(), coded()
