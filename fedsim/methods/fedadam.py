"""FedAdam: Adam at the server."""

from __future__ import annotations

from fedsim.methods._adaptive import AdaptiveServer, DecayParams
from fedsim.methods.base import Tensor


class FedAdam(AdaptiveServer):
    """Adam at the server, on the clients' weighted mean change D: v = beta2 v + (1 - beta2) D^2.

    The model moves by ``server_lr`` x m / (sqrt(v) + tau) with m = beta1 m + (1 - beta1) D; v starts at tau^2.
    """

    name = "fedadam"
    title = "FedAdam"
    Params = DecayParams
    params: DecayParams

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """Exponential mean of D^2."""
        return self.params.beta2 * v + (1 - self.params.beta2) * squared
