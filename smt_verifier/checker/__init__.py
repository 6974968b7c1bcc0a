"""The checker of certificates: small, total, and without anything of the rest of this project.

It reads two texts of machine IR, a certificate and the data in ``data/``, and believes nothing else.
"""
