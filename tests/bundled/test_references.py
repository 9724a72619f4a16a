"""The papers of the parts."""

from fedsim.bundled.references import of_part, references
from fedsim.parts.catalog import CATALOG


def test_every_method_has_a_paper_with_a_link_and_bibtex() -> None:
    for name in CATALOG.parts("method"):
        assert of_part("method", name), name


def test_every_reference_names_existing_parts_and_can_be_found() -> None:
    keys = [one.key for one in references()]
    assert len(keys) == len(set(keys))
    for one in references():
        assert one.link.startswith("https://")
        assert {"author", "title", "year"} <= set(one.fields)
        assert one.bibtex.count("{") == one.bibtex.count("}")
        assert "keywords" not in one.bibtex
        for part in one.parts:
            kind, _, name = part.partition("/")
            assert name in CATALOG.parts(kind), f"{one.key}: {part}"
