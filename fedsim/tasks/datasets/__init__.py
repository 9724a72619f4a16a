"""The data sets, one file per source."""
