"""Write data.npz: images of three shapes, each taken by one of 20 people."""

import numpy as np

rng = np.random.default_rng(0)
y = rng.integers(0, 3, size=3000)
x = rng.normal(scale=1.6, size=(3000, 1, 12, 12)).astype(np.float32)
x[y == 0, :, 3:9, 3:9] += 1  # a square
x[y == 1, :, 5:7, :] += 1  # a horizontal bar
x[y == 2, :, :, 5:7] += 1  # a vertical bar
# x (n, ...), y (n,) with labels 0, 1, 2, ...; group: the natural client of each sample.
np.savez("data.npz", x=x, y=y, group=rng.integers(0, 20, size=3000))
print("wrote data.npz: 3,000 images of 20 people")
