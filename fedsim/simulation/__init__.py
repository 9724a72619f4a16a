"""The time plane: the event engine, the life of a dispatch, and the server."""
