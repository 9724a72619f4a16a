"""Finding, downloading and parsing the files of data sets; parsers refuse damaged files and execute no code."""
