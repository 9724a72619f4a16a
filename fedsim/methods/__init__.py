"""Methods of federated learning, one file each; :mod:`fedsim.methods.base` is the interface."""
