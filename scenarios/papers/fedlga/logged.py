"""FedLGA that also writes |g|^2 of every correction, the quantity that decides between useful and divergent."""

from __future__ import annotations

from pathlib import Path

from fedsim.methods.base import MethodContext, Tensor, Updates
from fedsim.methods.fedavg import FedLga


class LoggedFedLga(FedLga):
    """FedLGA with a log of the squared lengths of g_i."""

    class Params(FedLga.Params):
        folder: str = "runs/fedlga-gradients"
        """Folder of the files ``seed<seed>-momentum<m>.csv``, with lines ``version,client,squared``; a resumed run may
        repeat some."""

    def __init__(self, params: Params, context: MethodContext) -> None:
        super().__init__(params, context)
        name = f"seed{context.seed}-momentum{context.sgd_momentum[0]:g}.csv"
        self._path = Path(params.folder) / name

    def _gradient(self, updates: Updates, index: int, gap: Tensor) -> Tensor:
        gradient = super()._gradient(updates, index, gap)
        squared = float(gradient[: self.context.layout.trainable].square().sum())
        self._path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not self._path.exists()
        with self._path.open("a") as file:
            file.write("version,client,squared\n" * is_new)
            file.write(f"{updates.version},{int(updates.clients[index])},{squared!r}\n")
        return gradient
