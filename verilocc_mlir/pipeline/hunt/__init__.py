"""Audits of LLVM's own allocations under many options: what is wrong is grouped, made small and written down.

``work``: one case, tried, and what is wrong with it, in words that do not depend on the kernel. ``reduce``: a text made
small while a question is answered alike. ``worker``: the process that tries cases and makes a group's example. ``run``:
the options, and many cases in workers here or on Ray, with a journal.
"""
