"""How a round exchanges its updates: through the server, or among the clients."""
