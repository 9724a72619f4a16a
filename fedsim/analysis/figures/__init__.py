"""The figures of the report page: columns of numbers, and a sentence about each."""
