"""Checks what a method needs from the rest of the scenario; methods declare their needs as attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from fedsim.errors import UserError, raise_all
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
    raise_all(errors)


def unmet_requirements(method: Method, schedule: type[ScheduleTraits]) -> list[UserError]:
    """The needs of a method that its schedule and optimizer do not meet."""
    title, optimizer = method.title or method.name, method.context.optimizer
    needs = (
        (
            method.only_synchronous and not schedule.synchronous,
            f"{title} cannot run under the {schedule.name} schedule: {method.only_synchronous}",
            "server.schedule",
            "use the sync schedule",
        ),
        (
            method.prologue() is not None and not schedule.begins_with_prologue,
            f"{title} begins with work by all clients, which the {schedule.name} schedule does not dispatch",
            "server.schedule",
            "use the sync schedule",
        ),
        (
            method.needs_plain_sgd and not optimizer.is_plain,
            f"{title} needs plain SGD: {method.needs_plain_sgd}",
            "training.optimizer",
            "use sgd without momentum and weight_decay",
        ),
        (
            method.needs_sgd and not isinstance(optimizer, Sgd),
            f"{title} does not work with {optimizer.name}: {method.needs_sgd}",
            "training.optimizer",
            "use sgd, with or without momentum",
        ),
        (
            method.needs_no_momentum
            and not (isinstance(optimizer, Sgd) and not optimizer.params.momentum),
            f"{title} needs SGD without momentum: {method.needs_no_momentum}",
            "training.optimizer",
            "use sgd without momentum; weight_decay is allowed",
        ),
    )
    return [
        UserError(message, where=where, hint=hint) for unmet, message, where, hint in needs if unmet
    ]
