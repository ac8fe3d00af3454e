"""The pure core: values, parsers, state machines and statistics. No I/O, no clock, no asyncio."""
