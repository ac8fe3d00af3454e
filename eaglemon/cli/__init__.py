"""The command line: thin commands over the domain API; no rules of their own."""
