"""A hunt in Markdown: a report for each group, to be filed, and a summary."""
