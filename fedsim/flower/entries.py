"""Names of entries in the messages of a deployment and in the configuration of its nodes."""

TIMING = "fedsim.timing"
"""The record of a reply with the seconds for which its ClientApp worked."""
NUMBER = "partition-id"
"""The entry of a node's configuration that is the number of its client."""
