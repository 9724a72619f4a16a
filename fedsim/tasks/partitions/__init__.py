"""The partitions."""
