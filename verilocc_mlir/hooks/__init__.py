"""Ways in from other compilers: an MLIR pass, a Triton stage hook, IREE substitution, a torch.compile backend.

Each front end is optional. Importing a module of this package never imports the front end itself; using it without the
front end raises one error that names the extra to install.
"""
