"""FedYogi: Yogi at the server."""

from __future__ import annotations

from fedsim.methods._adaptive import AdaptiveServer, DecayParams
from fedsim.methods.base import Tensor


class FedYogi(AdaptiveServer):
    """Yogi at the server, on the clients' weighted mean change D: v = v - (1 - beta2) D^2 sign(v - D^2).

    The model moves by ``server_lr`` x m / (sqrt(v) + tau) with m = beta1 m + (1 - beta1) D; v starts at tau^2.
    """

    name = "fedyogi"
    title = "FedYogi"
    Params = DecayParams
    params: DecayParams

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """A step of size (1 - beta2) D^2 toward D^2."""
        return v - (1 - self.params.beta2) * squared * (v - squared).sign()
