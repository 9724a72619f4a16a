"""The guard against a run that never ends because nothing in it takes simulated time."""

from __future__ import annotations

from typing import ClassVar

from fedsim.errors import UserError


class Standstill:
    """Counts the rounds of a schedule at one instant, and stops a run that has too many.

    Args:
        steps: name of the rounds, in the plural.
        remedy: what the user can do besides giving compute or network times, or ``stop.rounds``.
        allowance: rounds beyond :attr:`LIMIT` that are still allowed at one instant.
    """

    LIMIT: ClassVar[int] = 1_000_000

    def __init__(self, steps: str, remedy: str = "", allowance: int = 0) -> None:
        self._steps = steps
        self._remedy = remedy
        self._allowance = allowance
        self._instant_ns = -1
        self._count = 0

    def count(self, now_ns: int) -> None:
        """Count one more round.

        Raises:
            UserError: the limit is passed.
        """
        if now_ns != self._instant_ns:
            self._instant_ns, self._count = now_ns, 1
            return
        self._count += 1
        if self._count > self.LIMIT + self._allowance:
            raise UserError(
                f"{self._count} {self._steps} in a row took no simulated time, so the run may never end",
                where="devices",
                hint=f"give compute or network times, {self._remedy}or stop.rounds",
            )
