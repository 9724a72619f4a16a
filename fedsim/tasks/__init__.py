"""Learning tasks: data sets, partitions among clients, models, and analytic tasks."""
