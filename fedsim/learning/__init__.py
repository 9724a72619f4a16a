"""The learning plane: deferred, batched local training, aggregation and evaluation."""
