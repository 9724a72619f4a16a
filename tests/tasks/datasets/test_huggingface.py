"""Data sets of Hugging Face: saved to disk, and in Parquet files."""

import gzip
import io
import json
import lzma
import os
import pickle
import socket
import tarfile
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.scenario.loading import load_scenario
from fedsim.tasks.reading.files import NotOnDisk, download_cache, no_downloads
from tests.composition.interrupting import interrupted
from tests.tasks.files import EPS, bitmap, equal
from tests.tasks.toys import load

datasets = pytest.importorskip("datasets", reason="needs the extra huggingface")

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 5, 4)).astype(np.uint8)


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        datasets.disable_progress_bars()
        yield


def images(rows: slice, **columns: Any) -> Any:
    from PIL import Image

    labels = np.arange(12)[rows] % 3
    content = {
        "img": [Image.fromarray(array) for array in PIXELS[rows]],
        "label": labels.tolist(),
        "writer": [f"w{label}" for label in labels],
        **columns,
    }
    kinds = {
        "img": datasets.Image(),
        "label": datasets.ClassLabel(names=["cat", "dog", "eel"]),
        "writer": datasets.Value("string"),
    }
    return datasets.Dataset.from_dict(content, features=datasets.Features(kinds))


def test_images_on_disk_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = {"train": images(slice(0, 8)), "test": images(slice(8, 12))}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")
    dataset = load("huggingface", path=str(tmp_path / "saved"), group="writer")
    assert np.array_equal(dataset.train_x, PIXELS[:8, None])
    assert np.array_equal(dataset.test_x, PIXELS[8:, None])
    assert dataset.train_y.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert dataset.class_names == ("cat", "dog", "eel")
    assert dataset.group_names == ("w0", "w1", "w2")
    assert dataset.scale is not None
    monkeypatch.setattr("fedsim.tasks.reading.samples.pixels", None)  # no image is decoded again
    assert equal(load("huggingface", path=str(tmp_path / "saved")), dataset)
    monkeypatch.undo()
    resized = load(
        "huggingface", path=str(tmp_path / "saved"), image="img", size=(2, 3), channels=3
    )
    assert resized.train_x.shape == (8, 3, 2, 3)


def test_a_folder_beside_the_scenario_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even after the project was moved; an id of the hub stays, and is no folder of the working directory."""
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    project, set_key = tmp_path / "project", "task.dataset.path="
    images(slice(0, 12)).save_to_disk(project / "saved")
    (project / "link").symlink_to("saved")
    file = project / "scenario.yaml"
    file.write_text(
        "task: {dataset: {name: huggingface, path: link}, partition: {name: iid, clients: 2},\n"
        "  model: {name: mlp, hidden: [2]}}\n"
        "training: {optimizer: {lr: 0.1}, batch_size: 4, local_epochs: 1}\n"
        "devices: {compute: {name: values, step: 1s}, network: {name: static, down: 1Mbps, up: 1Mbps}}\n"
        "stop: {rounds: 3}\n"
    )
    loaded = load_scenario(file)
    assert loaded.resolved()["task"]["dataset"]["path"] == str(project / "link")
    assert [*loaded.data_files()] == [str(project / "link")]
    hub = load_scenario(file, [f"{set_key}ylecun/mnist"])
    assert (hub.resolved()["task"]["dataset"]["path"], hub.data_files()) == ("ylecun/mnist", {})
    complete = fedsim.run(file, tmp_path / "complete")
    again = fedsim.run(tmp_path / "complete" / "scenario.yaml", tmp_path / "again")
    interrupted(project / "runs" / "a", file)
    moved = project.rename(tmp_path / "moved")
    for run in (again, fedsim.resume(moved / "runs" / "a")):
        assert run.metrics.equals(complete.metrics)
    monkeypatch.chdir(moved)
    (tmp_path / "other.yaml").write_text((moved / "scenario.yaml").read_text())
    with pytest.raises(UserError, match="data set link: it is not on this disk"):
        fedsim.run(tmp_path / "other.yaml", tmp_path / "none")


def test_damage_in_the_cache_is_decoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    images(slice(0, 12)).to_parquet(tmp_path / "train.parquet")
    dataset = load("huggingface", path=str(tmp_path / "train.parquet"))
    [file] = (tmp_path / "cache").rglob("x.npy")
    content = bytearray(file.read_bytes())
    content[-8] ^= 1
    file.write_bytes(content)
    assert equal(load("huggingface", path=str(tmp_path / "train.parquet")), dataset)


def test_16_bit_images_keep_their_precision(tmp_path: Path) -> None:
    from PIL import Image

    deep = PIXELS.astype(np.uint16) * 257
    deep[0, 0, 0] = 1
    pictures = [Image.fromarray(array) for array in deep]
    columns = {"img": pictures, "label": [0, 1] * 6}
    features = datasets.Features({"img": datasets.Image(), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(tmp_path / "saved")
    dataset = load("huggingface", path=str(tmp_path / "saved"), test_share=0.25)
    assert dataset.scale is None
    values = np.concatenate([dataset.train_x, dataset.test_x])
    assert np.array_equal(np.sort(values, axis=None), np.sort(np.float32(deep / 65535), axis=None))


N, V = ["cat", "dog", "eel"], datasets.Value


@pytest.mark.parametrize(
    ("kinds", "labels", "expected"),
    [
        # Types are cast.
        ((V("int64"), V("int32")), ([0, 1, 2], [2, 0, 0]), [2, 0, 0]),
        # Labels are matched by the names of their classes, whichever split has numbers or text.
        ((datasets.ClassLabel(names=N), datasets.ClassLabel(names=N[::-1])), (N, N), [0, 1, 2]),
        ((datasets.ClassLabel(names=N), datasets.ClassLabel(names=N[1:])), (N, N[1:]), [1, 2]),
        ((datasets.ClassLabel(names=N[::-1]), V("string")), (N, N), [0, 1, 2]),
        ((V("string"), datasets.ClassLabel(names=N[::-1])), (N, N), [0, 1, 2]),
        ((datasets.ClassLabel(names=N[1:]), datasets.ClassLabel(names=N)), (N[1:], N), None),
    ],
)
def test_splits_of_different_types(
    tmp_path: Path, kinds: Any, labels: Any, expected: list[int] | None
) -> None:
    splits = {}
    for name, kind, column, number in zip(
        ("train", "test"), kinds, labels, ("float32", "float64"), strict=True
    ):
        features = datasets.Features({"a": V(number), "label": kind})
        table = {"a": [0.5] * len(column), "label": column}
        splits[name] = datasets.Dataset.from_dict(table, features=features)
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")
    given = {"path": str(tmp_path / "saved"), "features": ["a"]}
    if expected is None:
        with pytest.raises(UserError, match="test samples have class 'cat'"):
            load("huggingface", **given)
        return
    dataset = load("huggingface", **given)
    assert dataset.test_y.tolist() == expected
    assert (dataset.train_x.dtype, dataset.test_x.dtype) == (np.float32, np.float32)
    if isinstance(labels[0][0], str):
        assert [dataset.class_names[label] for label in dataset.train_y] == labels[0]
        assert [dataset.class_names[label] for label in dataset.test_y] == labels[1]


def test_a_changed_folder_is_decoded_again(tmp_path: Path) -> None:
    for rows in (slice(0, 8), slice(4, 12)):
        images(rows).to_parquet(tmp_path / "train.parquet")
        dataset = load("huggingface", path=str(tmp_path / "train.parquet"), test_share=0.25)
        both = np.concatenate([dataset.train_x, dataset.test_x])[:, 0]
        assert len(dataset.test_y) == 2
        assert sorted(both.sum((1, 2))) == sorted(PIXELS[rows].sum((1, 2), dtype=int))


def test_columns_of_numbers(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    table = {"a": x[:, 0], "b": x[:, 1], "ids": [[1, 2, 3]] * 20, "label": x[:, 0] * 2}
    datasets.Dataset.from_dict(table).to_parquet(tmp_path / "all" / "train.parquet")
    folder = {"path": str(tmp_path / "all"), "target_kind": "quantity"}
    dataset = load("huggingface", **folder, features=["a", "b"])
    assert dataset.kind == "regression"
    assert np.allclose(dataset.train_x[:, 0] * 2, dataset.train_y)
    coded = load("huggingface", **folder, features=["ids"], tokens=True)
    assert (coded.tokens, coded.input_shape, coded.vocabulary) == (True, (3,), 4)


def test_text_becomes_tokens(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra transformers")
    words = tokenizers.models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    rows = {"text": ["a b b a", "b z", "a", "b"], "label": ["x", "y", "x", "y"]}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "saved")
    given = {"path": str(tmp_path / "saved"), "text": "text", "length": 3, "test_share": 0.25}
    dataset = load("huggingface", **given, tokenizer=tmp_path / "tokenizer.json")
    samples = [*dataset.train_x.tolist(), *dataset.test_x.tolist()]
    assert sorted(samples) == [[1, 0, 0], [1, 2, 2], [2, 0, 0], [2, 0, 0]]
    assert dataset.class_names == ("x", "y")
    with pytest.raises(UserError, match="needs a tokenizer"):
        load("huggingface", **given)
    with pytest.raises(UserError, match="not a tokenizer"):
        load("huggingface", **given, tokenizer=tmp_path / "saved" / "state.json")
    stored = json.loads((tmp_path / "tokenizer.json").read_text())
    pad = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_id": 0, "pad_type_id": 0}
    pad |= {"pad_to_multiple_of": 10**9, "pad_token": "x"}
    begin = {"single": [{"SpecialToken": {"id": "b", "type_id": 0}}] * 4, "pair": []}
    begin |= {"special_tokens": {"b": {"id": "b", "ids": [2], "tokens": ["b"]}}}
    for change, message in (
        ({"padding": pad}, None),
        ({"model": {**stored["model"], "vocab": {"a": 0}}}, "not a tokenizer of these texts"),
        ({"model": {**stored["model"], "vocab": {"[UNK]": 2**32 - 1}}}, "out of bounds"),
        ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "must be non-zero"),
        ({"post_processor": {"type": "TemplateProcessing", **begin}}, "adds 4 tokens to each"),
    ):
        (tmp_path / "changed.json").write_text(json.dumps({**stored, **change}))
        if message is None:
            same = load("huggingface", **given, tokenizer=tmp_path / "changed.json")
            assert equal(same, dataset)
            continue
        with pytest.raises(UserError, match=message):
            load("huggingface", **given, tokenizer=tmp_path / "changed.json")
    for texts in (["a", None], [["a", "b"]] * 2):
        rows = {"text": texts, "label": ["x", "y"]}
        datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "other")
        with pytest.raises(UserError, match="which is not text"):
            load(
                "huggingface",
                **given
                | {"path": str(tmp_path / "other"), "tokenizer": tmp_path / "tokenizer.json"},
            )


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"label": "labels"}, "no column 'labels'", "img, label, writer"),
        ({"split": "training"}, "no split 'training'", "train"),
        ({"features": ["writer"]}, "column 'writer' does not contain numbers", "pad sequences"),
    ],
)
def test_mistakes_say_what_there_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    message: str,
    hint: str,
) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.DatasetDict(train=images(slice(0, 8))).save_to_disk(tmp_path / "saved")
    with pytest.raises(UserError, match=message) as refusal:
        load("huggingface", **{"path": str(tmp_path / "saved"), **given})
    assert hint in str(refusal.value.hint)


def test_a_saved_format_is_not_applied(tmp_path: Path) -> None:
    table = datasets.Dataset.from_dict({"a": [1.0, 2.0] * 5, "label": [0, 1] * 5})
    table.with_format("numpy", columns=["a"]).save_to_disk(tmp_path / "saved", num_shards=2)
    state = tmp_path / "saved" / "state.json"
    custom = json.loads(state.read_text()) | {
        "_format_type": "custom",
        "_format_kwargs": {"transform": "x"},
    }
    for content in (state.read_text(), json.dumps(custom)):
        state.write_text(content)
        dataset = load("huggingface", path=str(state.parent), features=["a"], test_share=0.2)
        assert (dataset.train_y + 1 == dataset.train_x[:, 0]).all()
        assert len(dataset.train_y) == 8


@pytest.mark.parametrize(
    ("file", "message"),
    [("../other.arrow", "is not in its folder"), ("pipe", "not a regular file")],
)
def test_only_files_of_the_folder_are_read(tmp_path: Path, file: str, message: str) -> None:
    datasets.Dataset.from_dict({"a": [1.0], "label": [0]}).save_to_disk(tmp_path / "saved")
    (stored,) = (tmp_path / "saved").glob("*.arrow")
    stored.rename(tmp_path / "other.arrow")
    os.mkfifo(tmp_path / "saved" / "pipe")
    state = tmp_path / "saved" / "state.json"
    state.write_text(state.read_text().replace(stored.name, file))
    with pytest.raises(UserError, match=message):
        load("huggingface", path=str(state.parent), features=["a"])


def test_shards_that_name_their_classes_differently_are_refused(tmp_path: Path) -> None:
    """The library takes the names of the first one for all."""
    for number, names in enumerate((["cat", "dog"], ["dog", "cat"])):
        label = datasets.ClassLabel(names=names)
        features = datasets.Features({"a": datasets.Value("float32"), "label": label})
        table = datasets.Dataset.from_dict(
            {"a": [1.0] * 10, "label": [0, 1] * 5}, features=features
        )
        table.to_parquet(tmp_path / f"train-0000{number}-of-00002.parquet")
    with pytest.raises(UserError, match="its files declare different features"):
        load("huggingface", path=str(tmp_path), features=["a"])
    (tmp_path / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(UserError, match="there are not 2 files train-"):
        load("huggingface", path=str(tmp_path), features=["a"])
    (tmp_path / "train-00000-of-00002.parquet").rename(tmp_path / "train.parquet")
    assert load("huggingface", path=str(tmp_path), features=["a"], test_share=0.2).classes == 2
    with tarfile.open(tmp_path / "train.csv", "w") as archive:
        archive.add(tmp_path / "train.parquet")
    with pytest.raises(UserError, match=r"train\.csv is a compressed file or an archive"):
        load("huggingface", path=str(tmp_path / "train.csv"), features=["a"])


def test_missing_values_and_downloads(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"a": [1.0, 2.0], "label": [0, None]}).save_to_disk(
        tmp_path / "saved"
    )
    with pytest.raises(UserError, match="row 1 has no value in column 'label'"):
        load("huggingface", path=str(tmp_path / "saved"), features=["a"])
    with no_downloads(), pytest.raises(NotOnDisk):
        load("huggingface", path="someone/something")


def test_a_readme_names_files_of_its_folder_only(tmp_path: Path) -> None:
    table = datasets.Dataset.from_dict({"a": [1.0, 2.0] * 5, "label": [0, 1] * 5})
    table.to_parquet(tmp_path / "other.parquet")
    table.to_parquet(tmp_path / "own" / "train.parquet")
    for file in ("train.parquet", "../other.parquet", str(tmp_path / "other.parquet")):
        front = f"---\nconfigs:\n- config_name: default\n  data_files: {file}\n---\n"
        (tmp_path / "own" / "README.md").write_text(front)
        if file == "train.parquet":
            load("huggingface", path=str(tmp_path / "own"), features=["a"])
        else:
            with pytest.raises(UserError, match="not in its folder"):
                load("huggingface", path=str(tmp_path / "own"), features=["a"])


@pytest.mark.parametrize("header", ["README.md", ".huggingface.yaml"])
@pytest.mark.parametrize(
    "files",
    [
        "data_files: http://{host}/x.csv",
        "data_files: [{{split: train, path: [train.csv, 'http://{host}/x.csv']}}]",
        "data_files: 'zip://x.csv::http://{host}/x.zip'",
        "data_dir: http://{host}/x",
        "data_dir: 'x::http://{host}/x'",
        "data_dir: ../other",
        "data_files: ../other/x.csv",
    ],
)
def test_a_folder_opens_no_connection_and_no_other_folder(
    tmp_path: Path, header: str, files: str
) -> None:
    for file in ("own/train.csv", "other/x.csv"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_bytes(ROWS)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        front = files.format(host=f"127.0.0.1:{server.getsockname()[1]}")
        text = f"---\nconfigs:\n- config_name: default\n  {front}\n"
        text = f"{text}---\n" if header == "README.md" else text
        (tmp_path / "own" / header).write_text(text)
        # A connection would wait for an answer.
        loading = Thread(target=lambda: refusals.append(refusal_of(tmp_path / "own")), daemon=True)
        refusals: list[str] = []
        loading.start()
        loading.join(20)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert "not in its folder" in refusals[0]


def refusal_of(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        load("huggingface", path=str(path), features=["a"])
    return str(caught.value)


def test_a_file_of_an_unknown_type_is_not_looked_for_on_the_hub(tmp_path: Path) -> None:
    (tmp_path / "train.npz").write_bytes(ROWS)
    assert "train.npz has an ending that is not known" in refusal_of(tmp_path / "train.npz")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("dataset_info: [x]", "dataset_info in its header is .*'x'.*'get'"),
        ("dataset_info: {features: 3}", "dataset_info in its header is .*3"),
        ("configs: [x]", "configs in its header is .*'x'"),
        ("configs: {", "its header cannot be read"),
    ],
)
def test_a_readme_that_cannot_be_read_is_named(tmp_path: Path, header: str, message: str) -> None:
    table = datasets.Dataset.from_dict({"a": [1.0, 2.0] * 5, "label": [0, 1] * 5})
    table.to_parquet(tmp_path / "train.parquet")
    (tmp_path / "README.md").write_text(f"---\n{header}\n---\n")
    with pytest.raises(UserError, match=rf"README\.md: {message}"):
        load("huggingface", path=str(tmp_path), features=["a"])


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (
            {"bytes": EPS},
            "row 0: .*cannot identify",
        ),
        ({"bytes": b"nonsense"}, "row 0: it cannot be read"),
        ({"bytes": bitmap(40_000)}, "row 0: unpacks to more than"),
        ({"path": "http://127.0.0.1:9/a.png"}, "not in its folder"),
        ({"path": "/outside/a.png"}, "not in its folder"),
        ({}, "row 0: .*not a regular file"),
    ],
)
def test_images_of_others_are_only_decoded(tmp_path: Path, image: Any, message: str) -> None:
    rows = {"image": [{"bytes": None, "path": None, **image}] * 4, "label": [0, 1] * 2}
    datasets.Dataset.from_dict(rows).to_parquet(tmp_path / "own" / "train.parquet")
    with pytest.raises(UserError, match=message):
        load("huggingface", path=str(tmp_path / "own"), image="image")


@pytest.mark.parametrize("column", ["label", "features", "group"])
def test_images_in_columns_of_numbers_are_not_decoded(tmp_path: Path, column: str) -> None:
    """Whoever decodes them gives PostScript to an interpreter, and reads any file."""
    content = {"x": [0.5] * 4, "label": [0, 1] * 2, "image": [{"bytes": EPS, "path": None}] * 4}
    kinds = {"x": V("float32"), "label": V("int64"), "image": datasets.Image()}
    made = datasets.Dataset.from_dict(content, features=datasets.Features(kinds))
    made.save_to_disk(tmp_path / "saved")
    chosen = {"features": ["x"], column: ["image"] if column == "features" else "image"}
    with pytest.raises(UserError, match="'image' does not contain numbers"):
        load("huggingface", path=str(tmp_path / "saved"), **chosen)


ROWS = b"a,label\n" + b"0.5,0\n0.5,1\n" * 10


def stream(table: Any) -> bytes:
    buffer = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(buffer, table.schema, options=options) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def parquet(table: Any) -> bytes:
    pq.write_table(table, buffer := io.BytesIO(), compression="zstd")
    return buffer.getvalue()


ZEROS = pa.table({"a": np.zeros(1_000_000)})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.pandas", pickle.dumps(Path("x")), "pickles could run any program"),
        ("train.csv", gzip.compress(ROWS), "is a compressed file or an archive"),
        ("train.json", lzma.compress(ROWS), "is a compressed file or an archive"),
        ("train.parquet", parquet(ZEROS), "unpacks to more than"),
        ("train.arrow", stream(ZEROS), "unpacks to more than"),
        ("saved/data-00000-of-00001.arrow", stream(ZEROS), "unpacks to more than"),
        ("saved/data-00000-of-00001.arrow", b"x", "it cannot be read"),
    ],
    ids=lambda each: "" if isinstance(each, bytes) else each,
)
def test_files_of_others_run_nothing_and_have_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, message: str
) -> None:
    monkeypatch.setenv("FEDSIM_MAX_UNPACKED", "1MB")
    datasets.Dataset.from_dict({"a": [0.5] * 4}).save_to_disk(tmp_path / "saved")
    (tmp_path / "own").mkdir()
    file = tmp_path / (name if "/" in name else f"own/{name}")
    file.write_bytes(content)
    for path in (file.parent, file)[name == "train.pandas" : 1 if "/" in name else 2]:
        with pytest.raises(UserError, match=message):
            load("huggingface", path=str(path), features=["a"])


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG"])
def test_images_are_turned_as_they_say(tmp_path: Path, kind: str) -> None:
    from PIL import Image

    picture, stored = Image.new("L", (4, 2)), io.BytesIO()
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(stored, kind, exif=exif)
    rows = {"image": [{"bytes": stored.getvalue(), "path": None}] * 4, "label": [0, 1] * 2}
    datasets.Dataset.from_dict(rows).to_parquet(tmp_path / "own" / "train.parquet")
    expected = datasets.Image().decode_example(rows["image"][0]).size[::-1]
    loaded = load("huggingface", path=str(tmp_path / "own"), image="image")
    assert loaded.input_shape == (1, *expected)


def test_a_damaged_entry_of_the_cache_is_made_again(tmp_path: Path) -> None:
    images(slice(0, 8)).save_to_disk(tmp_path / "saved")
    dataset = load("huggingface", path=str(tmp_path / "saved"))
    for name in ("x.npy", "y.npy"):
        for damage in (
            lambda file: os.truncate(file, 90),
            lambda file: os.truncate(file, 0),
            os.remove,
        ):
            (file,) = download_cache("decoded").glob(f"*/{name}")
            damage(file)
            assert equal(load("huggingface", path=str(tmp_path / "saved")), dataset)


@pytest.mark.parametrize("label", [[[1], [1, 2]], [{"a": 1}, {"a": 2}]])
def test_columns_of_other_types_are_refused(tmp_path: Path, label: Any) -> None:
    datasets.Dataset.from_dict({"a": [1.0, 2.0], "label": label}).save_to_disk(tmp_path / "saved")
    with pytest.raises(UserError, match="'label' does not contain numbers or text"):
        load("huggingface", path=str(tmp_path / "saved"), features=["a"])


def test_a_missing_split_is_damage(tmp_path: Path) -> None:
    parts = {"train": images(slice(0, 8)), "test": images(slice(8, 12))}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / "test" / "state.json").unlink()
    with pytest.raises(UserError, match=r"test/state\.json"):
        load("huggingface", path=str(tmp_path / "saved"))
