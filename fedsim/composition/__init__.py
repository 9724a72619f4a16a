"""The composition root: builds the objects of a run from a scenario, and runs it.

Its functions raise a :class:`~fedsim.errors.UserError` if a scenario cannot be built, checked or run.
"""
