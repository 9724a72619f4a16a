"""What is learned on: datasets, partitions among clients, models, and analytic tasks."""
