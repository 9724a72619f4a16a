"""Words that all layers share: outcomes, metrics, the timeline's instructions, and how values are written."""
