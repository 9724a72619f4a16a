"""The papers' sweeps: runs them, and writes the tables of the READMEs and of benchmarks/papers/README.md from the runs.

    python -m benchmarks.papers run [--long] [--jobs N]     # resumable; one seed of every sweep, then the next seed
    python -m benchmarks.papers tables                      # no runs: only the tables, from finished runs

A table is between ``<!-- table NAME -->`` and ``<!-- end -->``. Every number in it comes from a run folder, so that
text and data cannot drift apart; the sentences around it are written by hand. Tables of sweeps without any finished run
stay as they are.
"""
