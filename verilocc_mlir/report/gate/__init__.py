"""A gate's result as text, Markdown and SARIF."""
