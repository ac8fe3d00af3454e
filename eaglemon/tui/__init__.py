"""The terminal console: screens and widgets over the domain API."""
