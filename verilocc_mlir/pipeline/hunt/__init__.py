"""Audits of LLVM's own allocations under many options: what is wrong is grouped, made small and written down.

``variants``: the options. ``work``: one case, tried. ``cause``: what is wrong with it, in words that do not depend on
the kernel. ``reduce``: a text made small while a question is answered alike. ``example``: a group's example.
``worker``, ``run``: many cases in workers here or on Ray, with a journal.
"""
