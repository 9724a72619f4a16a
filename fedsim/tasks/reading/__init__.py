"""Finding, downloading and parsing the files of datasets; every parser refuses what is damaged, and executes
nothing."""
