"""Methods of federated learning, one file per family; :mod:`fedsim.methods.base` is the interface."""
