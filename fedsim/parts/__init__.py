"""Parts of a scenario: what one is, its parameters, where it is found, and users' functions as parts."""
