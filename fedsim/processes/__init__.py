"""Processes of this machine: signals that stop them, the fork server, cores and Ray."""
