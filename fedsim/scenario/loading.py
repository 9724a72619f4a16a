"""Loads a scenario: parts are resolved, parameters validated, paths absolute, and every default is filled in."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from fedsim import bundled
from fedsim.errors import UserError, UserErrors, further_checks
from fedsim.files.checksums import data_sha256
from fedsim.parts.parameters import NO_PARAMETERS, UNKNOWN_KEY
from fedsim.scenario.description import keys_elsewhere
from fedsim.scenario.model import MOST_EVALUATIONS, GridSeries, Scenario, name_of
from fedsim.scenario.overrides import Override, apply_overrides
from fedsim.scenario.parts import OfKind, Part, Reading, UserCode
from fedsim.scenario.problems import Problem, all_errors, error_at, problems
from fedsim.scenario.source import KeyPath, Source, read_yaml, to_yaml
from fedsim.units import duration_at_least
from fedsim.vocabulary.formatting import format_count, format_duration


@dataclass(frozen=True)
class LoadedScenario:
    """A checked scenario.

    Attributes:
        scenario: its sections; parts are resolved, paths are absolute.
        path: the file; None if it was built in Python.
        source: the text as data, with the location of each value.
        reading: how it was read.
    """

    scenario: Scenario
    path: Path | None
    source: Source = field(repr=False, compare=False)
    reading: Reading = field(repr=False, compare=False)

    @property
    def folder(self) -> Path:
        """The folder that relative paths in the scenario refer to."""
        assert self.reading.folder is not None
        return self.reading.folder

    def resolved(self) -> dict[str, Any]:
        """Plain data with every default, which gives the same run from any folder.

        Paths are absolute, but for those of bundled traces (``builtin:NAME``).
        """
        data: dict[str, Any] = bundled.portable(
            self.scenario.model_dump(mode="json", by_alias=True)
        )
        return data

    def resolved_yaml(self) -> str:
        """:meth:`resolved` as YAML, keys in the order of the reference."""
        return to_yaml(self.resolved())

    def changed(self, overrides: Iterable[Override | str]) -> LoadedScenario:
        """The scenario with these values set, validated again; locations of the other values stay known."""
        return _load(apply_overrides(self.source, overrides), self.reading, self.path)

    def ignoring(self, rules: Iterable[str]) -> LoadedScenario:
        """The scenario that also ignores these rules, of the option ``--ignore``."""
        more = [rule for rule in rules if rule not in self.scenario.ignore]
        ignored = Override("ignore", [*self.scenario.ignore, *more], "option --ignore")
        return self.changed([ignored]) if more else self

    def parts(self) -> Iterator[Part[Any]]:
        """All parts."""
        return (value for _, value in _values(self.scenario) if isinstance(value, Part))

    def sources(self) -> dict[str, str]:
        """Source of the classes that have no file, by path in the run folder."""
        users = [(part.name, part.user) for part in self.parts() if part.user]
        return {name.rpartition(":")[0]: user.source for name, user in users if user.source}

    def user_code(self) -> dict[str, str | None]:
        """SHA-256 of the source of every user's part, by its name; None if the source cannot be read."""
        return {part.name: part.user.digest for part in self.parts() if part.user}

    def data_files(self) -> dict[str, str]:
        """:func:`fedsim.files.checksums.data_sha256` of every file and folder that the parameters name, by its path.

        The path is that of :meth:`resolved`. Folders of trackers are written to, not read.
        """
        paths = dict[Path, None]()
        for _, value in _values(self.scenario.model_copy(update={"logging": []})):
            files = value.files if isinstance(value, GridSeries) else [value]
            paths |= {file: None for file in files if isinstance(file, Path) and file.exists()}
        return {bundled.written(path): data_sha256(path) for path in paths}

    @contextmanager
    def locating_errors(self) -> Iterator[None]:
        """Add file, line and column to errors that name a key (``where="server.schedule"``).

        For checks that are made while a run is built, such as whether the parts are compatible.
        """
        try:
            yield
        except UserErrors as error:
            raise UserErrors([self.located(one) for one in error.errors]) from error.__cause__
        except UserError as error:
            raise self.located(error) from error.__cause__

    def located(self, error: UserError) -> UserError:
        """The error with its file, line and column, if it names a key, or a path in it without a file."""
        words = (error.where or "").split(".")
        if words[0] not in Scenario.model_fields:
            # It may be a path that is the value of a key, and neither a file nor a folder.
            file = Path(error.where or "")
            keys = [
                key
                for key, value in _values(self.source.data)
                if isinstance(value, str)
                and self.folder / value == file
                and not (file.is_file() or file.is_dir())
            ]
            if not keys:
                return error
            place, dotted = self.source.value_place(keys[0]), ".".join(map(str, keys[0]))
            return error_at(place, dotted, f"{error.where}: {error.message}", error.hint)
        path = tuple(int(word) if word.isdecimal() else word for word in words)
        return error_at(
            self.source.value_place(path), ".".join(words), error.message, error.hint, error.rule
        )


def load_scenario(
    path: Path | str,
    overrides: Iterable[Override | str] = (),
    *,
    user_code: UserCode = "import",
) -> LoadedScenario:
    """Read and check a scenario file.

    Args:
        path: the YAML file, or the name of a bundled scenario (``quickstart``) if there is no such file; relative
            paths in it, and in the overrides, are relative to its folder.
        overrides: values by dotted path (``training.optimizer.lr=0.05``), later ones over earlier ones.
        user_code: ``describe`` does not import the files of users' parts: such a part has no class and no validated
            parameters.
    """
    file = bundled.scenario_file(Path(path))
    by_name = file != Path(path) and file.parent == bundled.located("scenarios")
    # Files that the user names in the overrides of a bundled scenario are in the working directory.
    folder = Path.cwd() if by_name else file.resolve().parent
    source = apply_overrides(read_yaml(file), overrides)
    name = name_of(unicodedata.normalize("NFC", file.stem))
    if name and isinstance(source.data, dict):
        source.data.setdefault("name", name)
    return _load(source, Reading(folder, user_code), file.resolve())


def load_scenario_dict(
    data: Mapping[str, Any],
    folder: Path | str,
    overrides: Iterable[Override | str] = (),
) -> LoadedScenario:
    """Check a scenario given as nested dicts and lists, as in a YAML file.

    A part may also be given as a class, or as an instance that is built from its parameters alone.

    Args:
        data: the sections; left unchanged.
        folder: folder that relative paths refer to.
        overrides: values by dotted path.
    """
    source = apply_overrides(Source("scenario", dict(data)), overrides)
    return _load(source, Reading(Path(folder).resolve()), None)


def load_source(source: Source, folder: Path) -> LoadedScenario:
    """Check a scenario that was read and changed by a caller; relative paths refer to ``folder``."""
    return _load(source, Reading(folder.resolve()), None)


def load_part(kind: str, value: Any, folder: Path) -> Part[Any]:
    """A part alone: a name, a mapping of its name and parameters, or a class."""
    adapter: TypeAdapter[Part[Any]] = TypeAdapter(Annotated[Part[Any], OfKind(kind)])
    try:
        return adapter.validate_python(value, context=Reading(folder))
    except ValidationError as error:
        raise all_errors(problems(error, value), Source(kind)) from None


def _load(source: Source, reading: Reading, path: Path | None) -> LoadedScenario:
    if source.data is None:
        raise UserError(
            "the scenario is empty",
            where=source.label,
            hint="it needs at least the sections task and stop",
        )
    if not isinstance(source.data, dict):
        raise UserError("a scenario is a mapping of sections", where=source.label)
    try:
        scenario = Scenario.model_validate(source.data, context=reading)
    except ValidationError as error:
        mistakes = [_naming_keys_elsewhere(one) for one in problems(error, source.data)]
        # Commands that only read a scenario check no more than this.
        with further_checks() if reading.user_code == "import" else nullcontext():
            raise all_errors(mistakes, source) from None
    every_s, until_s = scenario.evaluation.every, scenario.stop.simulated_time
    if every_s is not None and until_s is not None and until_s / every_s > MOST_EVALUATIONS:
        raise Problem(
            ("evaluation", "every"),
            f"an interval of {format_duration(every_s)} gives {format_count(until_s / every_s)} evaluations in the "
            f"{format_duration(until_s)} of stop.simulated_time",
            f"a run makes at most {format_count(MOST_EVALUATIONS)} evaluations: set at least "
            f"{duration_at_least(until_s / MOST_EVALUATIONS)}",
        ).to_error(source)
    for key, part in _values(scenario):
        if isinstance(part, Part):
            # The parts were just created, so that nothing has used them without their location.
            object.__setattr__(part, "where", source.value_place(key))
    return LoadedScenario(scenario, path, source, reading)


_NESTED = (Part, BaseModel, Mapping, list, tuple)


def _values(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """The sections, parts, collections, paths and texts in a value, and itself, with their paths in the scenario."""
    yield path, value
    if isinstance(value, Part):
        value = value.params
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, BaseModel):
        items = value
    elif isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for key, item in items:
        if isinstance(item, (*_NESTED, Path, str)):
            yield from _values(item, (*path, key))


def _naming_keys_elsewhere(problem: Problem) -> Problem:
    """The problem; for an unknown key that no other key of its section resembles, with such keys of other sections."""
    hint = problem.hint or ""
    if problem.message != UNKNOWN_KEY or "did you mean" in hint or hint == NO_PARAMETERS:
        return problem
    key = ".".join(map(str, problem.path))
    elsewhere = keys_elsewhere(key).strip()
    # The key itself may belong to another part of this kind.
    if not elsewhere or f"'{key}'" in elsewhere:
        return problem
    # A key within the section is probably meant; one of another section hides none of those known here.
    is_within = f"'{key.rpartition('.')[0]}." in elsewhere
    return replace(problem, hint=elsewhere if is_within else f"{elsewhere}\n  {hint}".rstrip())
