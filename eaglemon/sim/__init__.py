"""The simulated GPU host: real agent, real processes, simulated driver and engines."""
