"""The bundle on disk: round trip, refusals, and every problem that validation must name with its row."""

import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle, compare_files
from fedsim.traces.tables import TABLES
from fedsim.traces.validation import validate_bundle
from tests.traces.sound import build, sound_tables


def test_round_trip_keeps_every_value_and_the_same_bytes(tmp_path):
    bundle = build()
    bundle.write(tmp_path / "one")
    build().write(tmp_path / "two")
    again = TraceBundle.read(tmp_path / "one")
    assert again.manifest == bundle.manifest
    assert set(again.tables) == set(TABLES)
    for name, values in sound_tables().items():
        assert {key: again.tables[name].column(key).to_pylist() for key in values} == values
    for file in sorted((tmp_path / "one").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()
    assert validate_bundle(again) == []


def test_read_only_some_tables(tmp_path):
    build().write(tmp_path / "b")
    bundle = TraceBundle.read(tmp_path / "b", tables=["availability"])
    assert sorted(bundle.tables) == ["availability", "devices"]
    with pytest.raises(UserError, match="has no table compute"):
        bundle.table("compute")


def test_write_refuses_what_exists_and_replaces_only_bundles(tmp_path):
    build().write(tmp_path / "b")
    with pytest.raises(UserError, match="already exists"):
        build().write(tmp_path / "b")
    build(name="new").write(tmp_path / "b", overwrite=True)
    assert TraceBundle.read(tmp_path / "b").manifest.name == "new"
    extension = tmp_path / "extension"
    extension.mkdir()
    (extension / "manifest.json").write_text('{"manifest_version": 3, "name": "My extension"}')
    (tmp_path / "b" / "notes.txt").write_text("keep me")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("b", "extension", "loop"):
        with pytest.raises(UserError, match=r"contains other files|is not a trace bundle"):
            build().write(tmp_path / name, overwrite=True)
    assert (tmp_path / "b" / "notes.txt").read_text() == "keep me"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "extension", "loop"]


def edit(folder, **changes):
    """Change entries of the manifest; None removes one."""
    content = json.loads((folder / "manifest.json").read_text()) | changes
    content = {key: value for key, value in content.items() if value is not None}
    (folder / "manifest.json").write_text(json.dumps(content))


def forget_digests(folder):
    """Make the bundle one whose files cannot be verified."""
    edit(folder, sha256=None, manifest_sha256=None)


def truncate(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def change(folder, changed):
    """Another table of availability."""
    file = folder / "availability.parquet"
    pq.write_table(changed(pq.read_table(file)), file)


def twice(table):
    return table.append_column("start_us", table.column("start_us"))


def forget(table):
    column = table.column_names.index("start_us")
    return table.set_column(column, "start_us", pa.nulls(table.num_rows))


def replace_by_pipe(file):
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: truncate(f / "availability.parquet"), "the table cannot be read"),
        (lambda f: change(f, twice), "cannot be read: .*start_us"),
        (lambda f: change(f, forget), "values of start_us are missing"),
        (lambda f: change(f, lambda table: table.drop_columns("start_us")), "missing columns"),
        (lambda f: (f / "devices.parquet").unlink(), "table devices .* is missing"),
        (lambda f: (f / "manifest.json").unlink(), "has no manifest.json"),
        (lambda f: replace_by_pipe(f / "manifest.json"), "not a regular file"),
        (lambda f: replace_by_pipe(f / "devices.parquet"), "devices.parquet: is not a regular"),
        (lambda f: replace_by_pipe(f / "grid.parquet"), "grid.parquet: is not a regular file"),
        (lambda f: (f / "manifest.json").write_text("{"), "manifest cannot be read"),
        (lambda f: edit(f, sha256={"../secret": ""}, manifest_sha256=None), "no table '../secret'"),
        (lambda f: edit(f, schema="fedsim.trace/9"), "'schema': .* upgrade fedsim"),
        (lambda f: edit(f, importer=None), "'importer': .* import the trace again"),
        (lambda f: edit(f, name="three\x1b[2J"), "contains a control character"),
        (lambda f: edit(f, zone="/dev/zero"), "zone: .* is not a time zone"),
        (lambda f: edit(f, epoch="noon"), "manifest cannot be read: .*'noon'"),
        (shutil.rmtree, "no such trace bundle"),
    ],
)
def test_read_refuses_a_damaged_bundle(tmp_path, damage, message):
    build().write(tmp_path / "b")
    forget_digests(tmp_path / "b")
    damage(tmp_path / "b")
    with pytest.raises(UserError, match=f"(?s){message}") as caught:
        TraceBundle.read(tmp_path / "b")
    assert str(tmp_path / "b") in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("name", ["devices", "compute_series"])
def test_every_flipped_byte_is_noticed_by_the_digest_and_ends_in_a_message_without_one(
    tmp_path, name
):
    build().write(tmp_path / "b")
    file = tmp_path / "b" / f"{name}.parquet"
    content = file.read_bytes()
    places = np.random.default_rng(0).choice(len(content), 25, replace=False)
    for offset in places:
        damaged = bytearray(content)
        damaged[offset] ^= 1 << (offset % 8)
        file.write_bytes(damaged)
        with pytest.raises(UserError, match="has changed since fedsim wrote it"):
            TraceBundle.read(tmp_path / "b")
    forget_digests(tmp_path / "b")
    for offset in places:
        damaged = bytearray(content)
        damaged[offset] ^= 1 << (offset % 8)
        file.write_bytes(damaged)
        try:
            bundle = TraceBundle.read(tmp_path / "b")
        except UserError:
            continue
        assert name in bundle.unverified
        validate_bundle(bundle)


def test_an_edited_manifest_is_noticed_and_one_without_sums_is_not_verifiable(tmp_path):
    build().write(tmp_path / "b")
    file = tmp_path / "b" / "manifest.json"
    written = json.loads(file.read_text())
    count = len(sound_tables()) + 1
    assert compare_files(tmp_path / "b") == (count, [], True)
    for key, value in (("name", "other"), ("on_end", "hold"), ("caveats", ["x"])):
        file.write_text(json.dumps(written | {key: value}))
        with pytest.raises(UserError, match="has changed since fedsim wrote it") as caught:
            TraceBundle.read(tmp_path / "b")
        assert str(file) in str(caught.value)
        findings = validate_bundle(TraceBundle.read(tmp_path / "b", verify=False))
        assert [(item.table, item.row) for item in findings] == [("manifest", None)]
        assert len(compare_files(tmp_path / "b")[1]) == 1
    (tmp_path / "b" / "availability.parquet").unlink()
    edit(tmp_path / "b", command="fedsim traces make")
    with pytest.raises(UserError, match=r"is missing\n(?s:.*)fedsim traces make"):
        TraceBundle.read(tmp_path / "b", verify=False)
    build().write(tmp_path / "c")
    shutil.copy(tmp_path / "c" / "availability.parquet", tmp_path / "b")
    # Another layout of the same content is no edit.
    file.write_text(json.dumps(written, indent=7))
    TraceBundle.read(tmp_path / "b")
    old = {key: value for key, value in written.items() if key != "manifest_sha256"}
    file.write_text(json.dumps(old | {"name": "other"}))
    assert TraceBundle.read(tmp_path / "b").manifest.name == "other"
    assert compare_files(tmp_path / "b") == (count - 1, [], False)
    file.write_text(json.dumps(old | {"sha256": {}}))
    replace_by_pipe(tmp_path / "b" / "availability.parquet")
    compared, [problem], _ = compare_files(tmp_path / "b")
    assert (compared, problem.message) == (1, "is not a regular file")


def test_a_link_to_a_bundle_stays_a_link_when_the_bundle_is_replaced(tmp_path):
    build().write(tmp_path / "b")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    build(name="new").write(tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert TraceBundle.read(tmp_path / "b").manifest.name == "new"


def test_bundled_traces_can_be_verified(checkout):
    manifests = [
        *checkout.glob("traces/*/manifest.json"),
        *checkout.glob("scenarios/**/turns*/*.json"),
    ]
    assert len(manifests) >= 12
    for manifest in manifests:
        assert compare_files(manifest.parent)[1:] == ([], True)


def test_control_characters_do_not_reach_the_terminal():
    tables = sound_tables()
    tables["devices"]["device_id"][1] = "b\x1b[2J"
    findings = validate_bundle(build(tables))
    assert any(f.row == 1 and "contains a control character" in f.message for f in findings)
    assert not any("\x1b" in str(finding) for finding in findings)
