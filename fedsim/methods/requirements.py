"""Checks what a method needs from the rest of the scenario; methods declare their needs as attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from fedsim.errors import UserError, UserErrors
from fedsim.learning.optimizers.sgd import Sgd

if TYPE_CHECKING:
    from fedsim.methods.base import Method


class ScheduleTraits(Protocol):
    """What a method may need from a schedule; see :class:`fedsim.scheduling.base.Schedule`."""

    name: ClassVar[str]
    synchronous: ClassVar[bool]
    begins_with_prologue: ClassVar[bool]


def check_requirements(method: Method, schedule: type[ScheduleTraits]) -> None:
    """Check that the scenario's schedule and optimizer meet the needs of a method.

    Raises:
        UserError: they do not; one error for all unmet needs.
    """
    errors = unmet_requirements(method, schedule)
    if errors:
        raise errors[0] if len(errors) == 1 else UserErrors(errors)


def unmet_requirements(method: Method, schedule: type[ScheduleTraits]) -> list[UserError]:
    """The needs of a method that its schedule and optimizer do not meet."""
    title, optimizer = method.title or method.name, method.context.optimizer
    errors = []
    if method.only_synchronous and not schedule.synchronous:
        errors.append(
            UserError(
                f"{title} cannot run under the {schedule.name} schedule: {method.only_synchronous}",
                where="server.schedule",
                hint="use the sync schedule",
            )
        )
    if method.prologue() is not None and not schedule.begins_with_prologue:
        errors.append(
            UserError(
                f"{title} begins with work by all clients, which the {schedule.name} schedule does not dispatch",
                where="server.schedule",
                hint="use the sync schedule",
            )
        )
    if method.needs_plain_sgd and not optimizer.is_plain:
        errors.append(
            UserError(
                f"{title} needs plain SGD: {method.needs_plain_sgd}",
                where="training.optimizer",
                hint="use sgd without momentum and weight_decay",
            )
        )
    if method.needs_sgd and not isinstance(optimizer, Sgd):
        errors.append(
            UserError(
                f"{title} does not work with {optimizer.name}: {method.needs_sgd}",
                where="training.optimizer",
                hint="use sgd, with or without momentum",
            )
        )
    return errors
