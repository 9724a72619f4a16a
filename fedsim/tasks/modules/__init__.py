"""Torch modules of the built-in models, and what is done to any module; imported only when a module is built."""
