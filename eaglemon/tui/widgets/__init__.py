"""Widgets of the console; each draws views or series that it is given."""
