"""The time plane: the event engine, the process of a dispatch, and the server."""
