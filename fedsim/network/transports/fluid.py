"""``transport: {name: fluid}``: all bytes flow at the rate of the links."""

from __future__ import annotations

from fedsim.network.transport import Connection, Course, Transport


class Fluid(Transport):
    """A transfer takes one latency and its size over the rate."""

    name = "fluid"

    def course(self, size_bytes: float, connection: Connection) -> Course:
        return Course(size_bytes)
