"""Availability models: when a client is online and eligible."""
