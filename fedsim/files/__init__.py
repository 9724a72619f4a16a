"""Reading and writing files safely: durable writes, checksums, locks, safe unpickling, delimited text."""
