"""Reports of experiments: text, Markdown, CSV, JSON and one HTML file. Renders only; pure."""
