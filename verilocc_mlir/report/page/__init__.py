"""A compilation as one HTML file with pictures: ``html.to_html``."""
