"""The edge: one external thing per module, its exceptions mapped onto eaglemon.errors."""
