"""Named, replaceable parts: their classes, parameters and registries.

A user's part that cannot be used is refused with a :class:`~fedsim.errors.UserError`.
"""
