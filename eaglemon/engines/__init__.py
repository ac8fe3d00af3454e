"""The engines: one pure module each; ``engine_named`` is the only way to get one."""
