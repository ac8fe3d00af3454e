"""The global option ``--read-only``, as the commands see it."""

import click

READ_ONLY = "eaglemon.read_only"
"""Key of ``Context.meta`` for the option."""


def is_read_only() -> bool:
    """Tell whether this call of ``eaglemon`` has ``--read-only``."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(READ_ONLY))
