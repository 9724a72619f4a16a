"""From a scenario file to a checked scenario in which every default is written out."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from fedsim.components import Component, is_user_reference
from fedsim.errors import UserError, UserErrors
from fedsim.scenario.catalog import Catalog
from fedsim.scenario.model import MOST_EVALUATIONS, Scenario
from fedsim.scenario.overrides import Override, apply_overrides
from fedsim.scenario.problems import Problem, problems, shown
from fedsim.scenario.shapes import Shape, field_shape, fields_by_key, shape_of
from fedsim.scenario.source import KeyPath, Source, read_yaml
from fedsim.scenario.writing import to_yaml


@dataclass(frozen=True)
class LoadedScenario:
    """A checked scenario.

    Attributes:
        scenario: its sections; every part carries all its parameters, paths are absolute.
        folder: folder that relative paths referred to.
        path: the file; None where it was built in Python.
        source: what was written, with its places.
    """

    scenario: Scenario
    folder: Path
    path: Path | None
    source: Source = field(repr=False, compare=False)

    def resolved(self) -> dict[str, Any]:
        """Plain data with every default written out and absolute paths: it runs the same from anywhere."""
        return self.scenario.model_dump(mode="json", by_alias=True)

    def resolved_yaml(self) -> str:
        """:meth:`resolved` as YAML, keys in the order of the reference."""
        return to_yaml(self.resolved())

    def changed(self, catalog: Catalog, overrides: Iterable[Override | str]) -> LoadedScenario:
        """The scenario with these values set, checked anew; what was written stays known by its place.

        Raises:
            UserError: one for all that is wrong.
        """
        return _load(apply_overrides(self.source, overrides), self.folder, self.path, catalog)

    @contextmanager
    def locating_errors(self) -> Iterator[None]:
        """Give errors whose place is a key (``where="server.schedule"``) its file, line and column.

        For the checks that can only be made once a run is built: whether the parts fit together.
        """
        try:
            yield
        except UserErrors as error:
            raise UserErrors([self._located(one) for one in error.errors]) from error.__cause__
        except UserError as error:
            raise self._located(error) from error.__cause__

    def _located(self, error: UserError) -> UserError:
        words = (error.where or "").split(".")
        if words[0] not in Scenario.model_fields:
            return error
        path = tuple(int(word) if word.isdigit() else word for word in words)
        return UserError(
            f"{error.where}: {error.message}", where=self.source.value_place(path), hint=error.hint
        )


def load_scenario(
    path: Path | str, catalog: Catalog, overrides: Iterable[Override | str] = ()
) -> LoadedScenario:
    """Read and check a scenario file.

    Args:
        path: the YAML file; relative paths in it, and in the overrides, are relative to its folder.
        catalog: the parts it may name.
        overrides: values by dotted path (``training.optimizer.lr=0.05``), later ones over earlier ones.

    Raises:
        UserError: one for all that is wrong, each with its file, line and column, or its option.
    """
    file = Path(path)
    source = apply_overrides(read_yaml(file), overrides)
    return _load(source, file.resolve().parent, file.resolve(), catalog)


def load_scenario_dict(
    data: Mapping[str, Any],
    folder: Path | str,
    catalog: Catalog,
    overrides: Iterable[Override | str] = (),
) -> LoadedScenario:
    """Check a scenario given as nested dicts and lists, as a YAML file would hold them.

    Args:
        data: the sections; left unchanged.
        folder: folder that relative paths refer to.
        catalog: the parts it may name.
        overrides: values by dotted path.

    Raises:
        UserError: one for all that is wrong, each with its key.
    """
    source = apply_overrides(Source("scenario", copy.deepcopy(dict(data))), overrides)
    return _load(source, Path(folder).resolve(), None, catalog)


def _load(source: Source, folder: Path, path: Path | None, catalog: Catalog) -> LoadedScenario:
    if source.data is None:
        raise UserError(
            "the scenario is empty",
            where=source.label,
            hint="it needs at least the sections task and stop",
        )
    if not isinstance(source.data, dict):
        raise UserError("a scenario is a mapping of sections", where=source.label)
    preparation = _Preparation(folder, catalog)
    data = preparation.section(Scenario, source.data, ())
    found = list(preparation.problems)
    try:
        scenario = Scenario.model_validate(data)
    except ValidationError as error:
        found += problems(error, Scenario, data)
    else:
        found += _too_many_evaluations(scenario)
    if found:
        raise _all_errors(found, source)
    return LoadedScenario(scenario, folder, path, source)


def _too_many_evaluations(scenario: Scenario) -> list[Problem]:
    every_s, until_s = scenario.evaluation.every, scenario.stop.simulated_time
    if every_s is None or until_s is None or until_s / every_s <= MOST_EVALUATIONS:
        return []
    return [
        Problem(
            ("evaluation", "every"),
            f"{every_s:g} s between evaluations makes {until_s / every_s:,.0f} of them in the {until_s:g} s of "
            "stop.simulated_time",
            f"a run makes {MOST_EVALUATIONS:,} at the most: measure less often than every "
            f"{until_s / MOST_EVALUATIONS:g} s",
        )
    ]


def _all_errors(found: Iterable[Problem], source: Source) -> UserError:
    # In the order of the file: what was written there first, then what is missing or came from elsewhere.
    order = {path: number for number, path in enumerate(source.keys)}
    ranked = sorted(
        dict.fromkeys(found),
        key=lambda problem: order.get(problem.path, order.get(problem.path[:-1], len(order))),
    )
    errors = [problem.to_error(source) for problem in ranked]
    return errors[0] if len(errors) == 1 else UserErrors(errors)


class _Preparation:
    """Walks the data beside the models: names parts, makes paths absolute, checks the parts' own parameters.

    What does not have the form a model wants is passed on as it is; checking the model then says what is wrong.
    """

    def __init__(self, folder: Path, catalog: Catalog) -> None:
        self._folder = folder
        self._catalog = catalog
        self.problems: list[Problem] = []

    def section(self, model: type[BaseModel], raw: dict[str, Any], path: KeyPath) -> dict[str, Any]:
        """The data of a section, prepared."""
        result = dict(raw)
        companions: dict[str, Mapping[str, Any]] = {}
        for key, info in fields_by_key(model).items():
            shape = field_shape(info)
            value = result.get(key)
            if shape.slot is not None:
                if value is None:
                    value = companions.get(shape.slot.kind, {})
                if isinstance(value, dict | Mapping) and (value or shape.slot.default):
                    component, result[key] = self._part(shape, dict(value), result, (*path, key))
                    companions.update(component.companions if component else {})
                continue
            if value is None and isinstance(info.default, BaseModel):
                # A section whose keys are all left out, or commented out, is one that is not there.
                result.pop(key, None)
                if _holds_parts(type(info.default)):
                    result[key] = self.section(type(info.default), {}, (*path, key))
            elif key in result:
                result[key] = self._value(shape, value, (*path, key))
        return result

    def _value(self, shape: Shape, raw: Any, path: KeyPath) -> Any:
        if isinstance(raw, dict):
            model = shape.model_for(raw)
            if model is not None:
                name = model.model_fields.get("name")
                if len(shape.models) > 1 and name is not None and not name.is_required():
                    raw = {"name": name.default, **raw}
                return self.section(model, raw, path)
            if shape.values and not shape.models:
                values = shape_of(shape.values[0])
                return {key: self._value(values, item, (*path, key)) for key, item in raw.items()}
        elif isinstance(raw, list) and shape.items:
            items = shape_of(shape.items[0])
            if items.slot is not None:
                return [
                    self._listed_part(items, item, (*path, index)) for index, item in enumerate(raw)
                ]
            return [self._value(items, item, (*path, index)) for index, item in enumerate(raw)]
        elif isinstance(raw, str) and shape.is_path:
            return str((self._folder / Path(raw).expanduser()).resolve())
        elif isinstance(raw, Path) and shape.is_path:
            return str((self._folder / raw.expanduser()).resolve())
        elif isinstance(raw, bool) and shape.wants_number:
            self.problems.append(Problem(path, f"must be a number, not {shown(raw)}"))
            return int(raw)
        return raw

    def _listed_part(self, shape: Shape, raw: Any, path: KeyPath) -> Any:
        """A part in a list, which may be given by its bare name."""
        raw = {"name": raw} if isinstance(raw, str) else raw
        return self._part(shape, dict(raw), {}, path)[1] if isinstance(raw, Mapping) else raw

    def _part(
        self, shape: Shape, raw: dict[str, Any], section: Mapping[str, Any], path: KeyPath
    ) -> tuple[type[Component] | None, dict[str, Any]]:
        """The class of a part and its data, all parameters written out where they are right."""
        slot = shape.slot
        assert slot is not None
        if raw.get("name") is None and slot.default is not None:
            raw = {**raw, "name": slot.default(section)}
        name = raw.get("name")
        if not isinstance(name, str):
            return None, raw
        if is_user_reference(name):
            file, _, class_name = name.rpartition(":")
            name = f"{(self._folder / file).resolve()}:{class_name}"
        try:
            component = self._catalog.find(slot.kind, name, self._folder)
        except UserError as error:
            self.problems.append(Problem((*path, "name"), error.message, error.hint))
            return None, raw
        given = {key: value for key, value in raw.items() if key != "name"}
        options = self.section(component.Params, given, path)
        try:
            params = component.Params.model_validate(options)
        except ValidationError as error:
            self.problems += problems(error, component.Params, options, path)
            return component, raw
        return component, {"name": name, **params.model_dump(mode="json", by_alias=True)}


def _holds_parts(model: type[BaseModel]) -> bool:
    """Whether parts stand somewhere in a section."""
    for info in model.model_fields.values():
        shape = field_shape(info)
        if shape.slot or any(_holds_parts(inner) for inner in shape.models):
            return True
    return False
