"""Services over the core and the edge, and the domain API that both front ends use."""
