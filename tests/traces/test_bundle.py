"""The bundle on disk: round trip, refusals, and every problem that validation must name with its row."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle, compare_files
from fedsim.traces.tables import TABLES, make_table
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
    other = tmp_path / "letters"
    other.mkdir()
    (other / "dear.txt").write_text("keep me")
    with pytest.raises(UserError, match="not a trace bundle"):
        build().write(other, overwrite=True)
    assert (other / "dear.txt").read_text() == "keep me"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "letters"]


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


def replace_availability(folder, **columns):
    pq.write_table(pa.table({"device_id": ["a"], **columns}), folder / "availability.parquet")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: truncate(f / "availability.parquet"), "cannot be read"),
        (lambda f: (f / "devices.parquet").unlink(), "table devices .* is missing"),
        (lambda f: (f / "manifest.json").unlink(), "has no manifest.json"),
        (lambda f: (f / "manifest.json").write_text("{"), "manifest cannot be read"),
        (lambda f: edit(f, schema="other/9"), "is not a trace manifest: schema"),
        (
            lambda f: edit(f, schema="fedsim.trace/9"),
            "another version of fedsim wrote .*format is fedsim.trace/9, not",
        ),
        (
            lambda f: edit(f, importer_version=3, importer=None),
            "importer is missing; importer_version is 3: it must be a valid string\n  import the",
        ),
        (lambda f: replace_availability(f, start_us=[1]), "lacks the column end_us"),
        (
            lambda f: replace_availability(f, start_us=["noon"], end_us=[1]),
            "column start_us of table availability cannot be read as int64",
        ),
        (
            lambda f: replace_availability(f, start_us=[1], end_us=[2], mood=[1]),
            "unknown column mood",
        ),
        (shutil.rmtree, "no such trace bundle"),
    ],
)
def test_read_refuses_a_damaged_bundle(tmp_path, damage, message):
    build().write(tmp_path / "b")
    forget_digests(tmp_path / "b")
    damage(tmp_path / "b")
    with pytest.raises(UserError, match=message) as caught:
        TraceBundle.read(tmp_path / "b")
    assert str(tmp_path / "b") in str(caught.value)


def test_a_missing_table_is_noticed_by_its_digest(tmp_path):
    build(command="fedsim traces make").write(tmp_path / "b")
    (tmp_path / "b" / "availability.parquet").unlink()
    with pytest.raises(UserError, match="table availability of this trace bundle is missing") as e:
        TraceBundle.read(tmp_path / "b")
    assert "fedsim traces make" in str(e.value)


@pytest.mark.parametrize("name", ["devices", "availability", "compute_series", "rtt_matrix"])
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
    # Another layout of the same content is no edit.
    file.write_text(json.dumps(written, indent=7))
    TraceBundle.read(tmp_path / "b")
    old = {key: value for key, value in written.items() if key != "manifest_sha256"}
    file.write_text(json.dumps(old | {"name": "other"}))
    assert TraceBundle.read(tmp_path / "b").manifest.name == "other"
    assert compare_files(tmp_path / "b") == (count - 1, [], False)


def test_a_symbolic_link_that_leads_to_itself_is_refused(tmp_path):
    (tmp_path / "b").symlink_to(tmp_path / "b")
    with pytest.raises(UserError, match="symbolic link leads nowhere"):
        TraceBundle.read(tmp_path / "b")
    with pytest.raises(UserError, match="already exists"):
        build().write(tmp_path / "b")
    with pytest.raises(UserError, match="will not be replaced"):
        build().write(tmp_path / "b", overwrite=True)


def test_a_changed_file_is_refused_and_named_by_validation(tmp_path):
    build().write(tmp_path / "b")
    tables = sound_tables()["availability"]
    tables["end_us"][0] += 1
    pq.write_table(make_table("availability", tables), tmp_path / "b" / "availability.parquet")
    with pytest.raises(UserError, match="has changed since fedsim wrote it"):
        TraceBundle.read(tmp_path / "b")
    assert TraceBundle.read(tmp_path / "b", tables=["compute"]).altered == ()
    findings = validate_bundle(TraceBundle.read(tmp_path / "b", verify=False))
    assert [(item.table, item.row) for item in findings] == [("availability", None)]
    assert "SHA-256" in findings[0].message


def test_only_bundles_are_replaced_and_nothing_else_is_deleted(tmp_path):
    extension = tmp_path / "extension"
    extension.mkdir()
    (extension / "manifest.json").write_text('{"manifest_version": 3, "name": "My extension"}')
    (extension / "background.js").write_text("keep me")
    with pytest.raises(UserError, match="not a trace bundle"):
        build().write(extension, overwrite=True)
    assert sorted(file.name for file in extension.iterdir()) == ["background.js", "manifest.json"]

    mixed = tmp_path / "mixed"
    build().write(mixed)
    (mixed / "notes.txt").write_text("keep me too")
    before = {file.name: file.read_bytes() for file in mixed.iterdir()}
    with pytest.raises(UserError, match=r"notes\.txt"):
        build(name="new").write(mixed, overwrite=True)
    assert {file.name: file.read_bytes() for file in mixed.iterdir()} == before


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


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    build().write(tmp_path / "b")
    file = tmp_path / "b" / "manifest.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"name": "three\x1b[2J"}))
    with pytest.raises(UserError, match="contains a control character") as caught:
        TraceBundle.read(tmp_path / "b")
    assert "\x1b" not in str(caught.value)
    tables = sound_tables()
    tables["devices"]["device_id"][1] = "b\x1b[2J"
    findings = validate_bundle(build(tables))
    assert any(f.row == 1 and "contains a control character" in f.message for f in findings)
    assert not any("\x1b" in str(finding) for finding in findings)
