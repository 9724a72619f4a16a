"""What a run tells: statistics of time, participation and delay, and the report page."""
