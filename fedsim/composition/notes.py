"""Notes: combinations of parts that work, but hardly as the user expects."""

from __future__ import annotations

from fedsim.composition.assembly import Assembly
from fedsim.formatting import format_share
from fedsim.units import to_ns

_FEW_ONLINE = 0.5


def notes(assembly: Assembly) -> list[str]:
    """One sentence per note; empty if there are none."""
    method, availability = assembly.method, assembly.population.availability
    if not method.weights_population:
        return []
    end_ns = min(to_ns(method.context.availability_cycle_s), availability.horizon_ns)
    share = float(availability.online_between_ns(0, end_ns).mean()) / max(1, end_ns)
    if share >= _FEW_ONLINE:
        return []
    return [
        f"{method.title} weights each update by its client's share of the whole population, and on average only "
        f"{format_share(share)} of the clients are online: they move the model by that share of their mean change, "
        "which is slow. Use a method that averages over those who report, such as fedavg or fedbuff with scale: mean, or "
        "a trace with more clients online."
    ]
