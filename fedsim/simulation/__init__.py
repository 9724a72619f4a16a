"""The time plane: engine, life of a dispatch, server, recording."""
