"""The parts of a scenario: found by name, in a user's file or given as Python classes, and validated, once.

A field annotated ``Annotated[Part[Any], OfKind("method", default="fedavg")]`` takes a name (``fedavg``,
``my_file.py:MyClass``), a mapping with the name and the parameters, and from Python a class, an instance (if it is
built from its parameters alone, as a data set is), or a function for the kinds that have them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pydantic import Field, GetJsonSchemaHandler, ValidationError, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, core_schema

from fedsim.errors import UserError, similar
from fedsim.files.checksums import file_sha256, text_sha256
from fedsim.parts.catalog import CATALOG
from fedsim.parts.component import Component, is_user_reference, params_of
from fedsim.parts.parameters import mistake
from fedsim.randomness import isolated
from fedsim.scenario.own_code import python_reference, python_source

T = TypeVar("T")
UserCode = Literal["import", "describe"]

KIND_KEY = "x-fedsim-kind"
"""Key of the JSON Schema that marks a field of type :class:`Part`."""

BY_DEFAULT: Any = Field(default_factory=lambda: None, validate_default=True)
"""Default of a field for a part or a section that a scenario may omit."""


@dataclass(frozen=True)
class Reading:
    """How a scenario is read: the context of its validation.

    Attributes:
        folder: folder that relative paths refer to; None leaves them as they are.
        user_code: whether a user's file is imported, or only described.
    """

    folder: Path | None = None
    user_code: UserCode = "import"


@dataclass(frozen=True)
class UserFile:
    """The origin of a user's part.

    Attributes:
        file: its file; None for a class of a notebook or console.
        digest: SHA-256 of the file's bytes, or of the class's source; None if neither can be read.
        source: source of a class that has no file, as it goes into the run folder.
        raw: the parameters as the scenario gives them.
    """

    file: Path | None
    digest: str | None
    source: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Part(Generic[T]):
    """A part of a scenario, ready to be built.

    Attributes:
        kind: its kind, such as ``method``.
        name: its name; an absolute ``file.py:ClassName`` for a user's.
        component: its class; None if user code is only described.
        params: its validated parameters; None if user code is only described.
        folder: folder that relative paths referred to.
        user: its origin, if it is a user's.
        where: ``file:line:column`` in the scenario.
    """

    kind: str
    name: str
    component: type[T] | None
    params: Any
    folder: Path | None = field(default=None, compare=False)
    user: UserFile | None = field(default=None, compare=False)
    where: str = field(default="", compare=False)

    @property
    def type(self) -> type[T]:
        """The class; refused if the scenario was read without importing user code."""
        if self.component is None:
            raise UserError(f"{self.name} was not imported", where=self.where or None)
        return self.component

    def create(self, *arguments: Any) -> T:
        """An instance: the class called with the parameters and ``arguments``.

        A user's may draw from the global generators, which start from the seed of the run if it is known.
        """
        build: Callable[..., T] = self.type
        seed = next((one.seed for one in arguments if hasattr(one, "seed")), 0)
        with nullcontext() if self.user is None else isolated(seed):
            return build(self.params, *arguments)

    def data(self) -> dict[str, Any] | None:
        """Plain data as in a scenario; None for a default that only the user's code knows."""
        if not self.name:
            return None
        if self.params is None:
            return {"name": self.name, **(self.user.raw if self.user else {})}
        return {"name": self.name, **self.params.model_dump(mode="json", by_alias=True)}


@dataclass(frozen=True)
class OfKind:
    """Marks a field that contains a part.

    Attributes:
        kind: kind of part.
        default: name of the part, or a function that returns it from the section's earlier fields and the part's own
            keys, for a field that names none; None if the name is required.
    """

    kind: str
    default: str | Callable[[Mapping[str, Any]], str] | None = None

    def default_name(self, section: Mapping[str, Any]) -> str | None:
        """Name of the part for a section with these fields."""
        return self.default(section) if callable(self.default) else self.default

    def read(self, value: Any, section: Mapping[str, Any], reading: Reading) -> Part[Any]:
        """The part that ``value`` stands for."""
        if isinstance(value, Part):
            return replace(value)
        if value is None or (isinstance(value, Mapping) and not value):
            # The companion of another part of the section, or the default.
            parts = [other for other in section.values() if isinstance(other, Part) and other.name]
            known = [other.component for other in parts if other.component is not None]
            brought = [one.companions[self.kind] for one in known if self.kind in one.companions]
            if brought:
                value = dict(brought[0])
            elif len(known) == len(parts):
                value = {}
            else:  # The user's code may bring one, and is not imported.
                return Part(self.kind, "", None, None)
        location = ("name",) if isinstance(value, Mapping) else ()
        if isinstance(value, Component):
            value = {**params_of(value).model_dump(by_alias=True), "name": type(value)}
        elif isinstance(value, str | type) or inspect.isfunction(value):
            value = {"name": value}
        elif not isinstance(value, Mapping):
            written = repr(value)
            hint = None
            if not isinstance(value, bool | int | float | list | tuple):
                # An object from Python, such as a torch module, whose text may have many lines.
                written = f"an object of type {type(value).__name__}"
                hint = "give a class or a function, or write its data to a file that a part reads"
            message = f"must be the name of a {self.kind}, or a mapping of its name and parameters, not {written}"
            raise mistake("part", message, hint)
        raw = {key: item for key, item in value.items() if key != "name"}
        name = value.get("name")
        if name is None:
            name = self.default_name({**section, **raw})
        if isinstance(name, type) or inspect.isfunction(name):
            return self._of_class(name, raw, reading)
        if name is None and (meant := similar("name", raw)):
            unknown = mistake("extra_forbidden", "unknown key", "did you mean 'name'?")
            raise _at((meant,), unknown, raw[meant])
        if not isinstance(name, str):
            what = "is missing" if name is None else f"must be text, not {name!r}"
            raise _at(location, mistake("missing", what), value)
        user = None
        folder = reading.folder or Path.cwd()
        if is_user_reference(name):
            path_text, _, class_name = name.rpartition(":")
            file = (folder / Path(path_text).expanduser()).resolve()
            name = f"{file}:{class_name}"
            digest = file_sha256(file) if file.is_file() else None
            user = UserFile(file, digest, raw=raw)
            if reading.user_code == "describe":
                return Part(self.kind, name, None, None, folder, user)
        try:
            component = CATALOG.find(self.kind, name, folder)
        except UserError as error:
            raise _at(location, mistake("part", error.message, error.hint), name) from None
        params = component.Params.model_validate(raw, context=reading)
        return Part(self.kind, name, component, params, reading.folder, user)

    def _of_class(
        self, given: type[Any] | Callable[..., Any], raw: dict[str, Any], reading: Reading
    ) -> Part[Any]:
        """The part of a class or function given from Python: one that ships with fedsim, or a user's."""
        name, user = getattr(given, "name", ""), None
        try:
            component = CATALOG.adopt(self.kind, given)
        except UserError as error:
            raise mistake("part", error.message, error.hint) from None
        if CATALOG.parts(self.kind).get(name) is not given:
            name, file = python_reference(given)
            source = None if file else python_source(given)
            digest = file_sha256(file) if file else None
            if source is not None:
                digest = text_sha256(source)
            user = UserFile(file, digest, source, raw)
        params = component.Params.model_validate(raw, context=reading)
        return Part(self.kind, name, component, params, reading.folder, user)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Read any form of a part; write it as plain data."""

        def read(value: Any, info: ValidationInfo) -> Part[Any]:
            reading = info.context if isinstance(info.context, Reading) else Reading()
            return self.read(value, info.data or {}, reading)

        return core_schema.with_info_plain_validator_function(
            read,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda part: part.data()
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Mark the field, for :mod:`fedsim.scenario.schema` to fill in the parts of this kind."""
        default = self.default_name({})
        return {KIND_KEY: self.kind} | ({} if default is None else {"default": {"name": default}})


def _at(location: Sequence[str], error: Any, value: Any) -> Exception:
    """The error at ``location`` within the part."""
    if not location:
        return error  # type: ignore[no-any-return]
    details = InitErrorDetails(type=error, loc=tuple(location), input=value)
    return ValidationError.from_exception_data("part", [details])
