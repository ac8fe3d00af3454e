"""The command line: lazy commands over the domain API."""
