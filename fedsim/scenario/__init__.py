"""The scenario: YAML to validated models, units, overrides, errors with their locations."""
