"""An independent fluid integrator: progressive filling in rational numbers, from one event to the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Flow:
    """A flow that starts at ``start`` (s) and, unless cancelled at ``stop``, moves ``bits`` over ``route``."""

    start: Fraction
    bits: Fraction
    route: tuple[int, ...]
    stop: Fraction | None = None


def filling(
    routes: Mapping[int, Sequence[int]], capacity: Sequence[Fraction]
) -> dict[int, Fraction]:
    """Max-min fair rates: raise all rates together; freeze the flows of every link that fills up; repeat."""
    rates = dict.fromkeys(routes, Fraction(0))
    rising = set(routes)
    while rising:
        room = {}
        for link, total in enumerate(capacity):
            climbing = sum(link in routes[flow] for flow in rising)
            if climbing:
                used = sum((rates[flow] for flow in routes if link in routes[flow]), Fraction(0))
                room[link] = (total - used) / climbing
        step = min(room.values())
        for flow in rising:
            rates[flow] += step
        full = {link for link, space in room.items() if space == step}
        rising = {flow for flow in rising if not full & set(routes[flow])}
    return rates


def integrate(
    flows: Sequence[Flow], capacity: Sequence[Fraction]
) -> tuple[dict[int, Fraction], dict[int, Fraction]]:
    """Completion instants (s) of the flows that complete, and bits moved by those that are cancelled before."""
    pending = sorted(range(len(flows)), key=lambda flow: flows[flow].start)
    left: dict[int, Fraction] = {}
    done: dict[int, Fraction] = {}
    cut: dict[int, Fraction] = {}
    now = Fraction(0)
    while pending or left:
        rates = filling({flow: flows[flow].route for flow in left}, capacity)
        instants = [now + left[flow] / rates[flow] for flow in left if rates[flow]]
        instants += [stop for flow in left if (stop := flows[flow].stop) is not None]
        instants += [flows[pending[0]].start] if pending else []
        if not instants:
            break
        then = min(instants)
        for flow in left:
            left[flow] -= rates[flow] * (then - now)
        now = then
        for flow in [flow for flow in left if left[flow] == 0]:
            done[flow] = now
            del left[flow]
        for flow in [flow for flow in left if flows[flow].stop == now]:
            cut[flow] = flows[flow].bits - left.pop(flow)
        while pending and flows[pending[0]].start == now:
            flow = pending.pop(0)
            left[flow] = flows[flow].bits
    return done, cut
