"""The agent: one stand-alone file that is sent to a host and executed there in memory."""
