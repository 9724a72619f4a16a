"""The papers behind the parts: ``references.bib``, whose ``keywords`` name the parts (``method/fedavg``)."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from fedsim.bundled import HERE

FILE = HERE / "references.bib"
_ENTRY = re.compile(r"^@\w+\{(\S+),\n(.*?)^\}$", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^ +(\w+) += \{(.*)\},$", re.MULTILINE)


@dataclass(frozen=True)
class Reference:
    """One publication.

    Attributes:
        key: its BibTeX key.
        fields: its BibTeX fields.
        bibtex: the entry, without the keywords.
    """

    key: str
    fields: Mapping[str, str]
    bibtex: str

    @property
    def parts(self) -> list[str]:
        """The parts that implement it, as ``kind/name``."""
        return self.fields["keywords"].split(", ")

    @property
    def link(self) -> str:
        """Address of the publication: its DOI, its arXiv page, or another address."""
        if "doi" in self.fields:
            return f"https://doi.org/{self.fields['doi']}"
        if "eprint" in self.fields:
            return f"https://arxiv.org/abs/{self.fields['eprint']}"
        return self.fields["url"]


@functools.cache
def references() -> tuple[Reference, ...]:
    """All publications, in the order of the file."""
    entries = []
    for match in _ENTRY.finditer(FILE.read_text(encoding="utf-8")):
        bibtex = re.sub(r"\n +keywords +=.*", "", match[0])
        if "eprint" in bibtex:
            bibtex = bibtex.replace("\n}", "\n  archivePrefix = {arXiv},\n}")
        entries.append(Reference(match[1], dict(_FIELD.findall(match[2])), bibtex))
    return tuple(entries)


def of_part(kind: str, name: str) -> list[Reference]:
    """The publications of a part."""
    return [item for item in references() if f"{kind}/{name}" in item.parts]
