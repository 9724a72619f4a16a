"""fedsim: trace-driven discrete-event simulation of federated learning."""
