"""Transfers on shared links, by brute force (docs/time.md, "Networks")."""
class SharedLinks:
    def __init__(self, server): self.server=server
