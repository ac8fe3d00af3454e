"""eaglemon: a terminal console for EAGLE-3 speculative-decoding servers on GPU hosts."""

__version__ = "0.1.0"
