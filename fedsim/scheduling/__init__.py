"""When and whom: schedules and selections, one file each."""
