"""Device traces: the bundle on disk, its interval index, synthesis, statistics, importers and exporters."""
