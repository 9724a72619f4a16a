"""Scenario files: from YAML to validated, typed sections.

Mistakes in a scenario are raised together as one :class:`~fedsim.errors.UserError`, each with its line and column.
"""
