"""Analysis of runs: statistics of time, participation and delay, report pages, comparisons and exports."""
