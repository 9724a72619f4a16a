"""Files and objects that pages and docstrings name exist."""

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "fedsim"
ARCHITECTURE = CHECKOUT / "docs" / "architecture.md"
PAGES = [
    CHECKOUT / "README.md",
    CHECKOUT / "CONTRIBUTING.md",
    CHECKOUT / "STYLE.md",
    *CHECKOUT.glob("docs/*.md"),
    *CHECKOUT.glob("docs/tutorials/*.md"),
    *CHECKOUT.glob("scenarios/**/*.md"),
    *CHECKOUT.glob("traces/*.md"),
]
FOLDERS = ("fedsim", "tests", "benchmarks", "tools", "scenarios", "traces", "docs")


def named_on(page: Path) -> list[str]:
    """Code in the running text of a page, without arguments of calls."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    return [code.partition("(")[0] for code in re.findall(r"`([^`\n]+)`", text)]


def exists(name: str) -> bool:
    """Whether a dotted name leads to a module, an object in it, an attribute, or a field of a model or data class."""
    thing: Any = None
    words = name.split(".")
    for position, word in enumerate(words):
        try:
            thing = importlib.import_module(".".join(words[: position + 1]))
        except ModuleNotFoundError:
            if position == len(words) - 1 and isinstance(thing, type) and word in fields(thing):
                return True
            if not hasattr(thing, word):
                return False
            thing = getattr(thing, word)
    return True


def fields(owner: type) -> set[str]:
    """The names that a class annotates, and those that its methods assign to ``self``."""
    source = Path(importlib.import_module(owner.__module__).__file__ or "").read_text("utf-8")
    assigned = set(re.findall(r"\bself\.(\w+)(?:: [^=\n]+)? =", source))
    return assigned.union(*(vars(base).get("__annotations__", {}) for base in owner.__mro__))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_the_files_and_objects_that_a_page_names_exist(page: Path) -> None:
    names = named_on(page)
    paths = [name for name in names if re.match(rf"({'|'.join(FOLDERS)})/[\w./-]+$", name)]
    roots = [CHECKOUT]
    if page == ARCHITECTURE:  # Its paths are relative to the package.
        roots.append(PACKAGE)
        paths = [name for name in names if re.match(r"(?!my_)[\w/]+(\.py|/)$", name)]
        # A list such as `optimizers/`, `rates/` gives the folder above only once.
        paths = [name for name in paths if "/" in name.rstrip("/")]
        assert len(paths) > 30
    missing = [name for name in paths if not any((root / name).exists() for root in roots)]
    objects = [name for name in names if re.match(r"fedsim\.[\w.]+$", name)]
    assert missing + [name for name in objects if not exists(name)] == []


def test_every_package_stands_on_the_page_on_the_architecture() -> None:
    text = ARCHITECTURE.read_text("utf-8")
    packages = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    assert [name for name in packages if f"`fedsim/{name}`" not in text] == []


def test_the_objects_that_docstrings_name_exist() -> None:
    named = {
        (str(path.relative_to(PACKAGE)), name)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in re.findall(r":\w+:`~?(fedsim\.[\w.]+)`", node.value)
    }
    assert len(named) > 80
    assert sorted((path, name) for path, name in named if not exists(name)) == []
