"""Worker processes, one way for all that use them: solver, batch, hooks, service and corpus.

``frames``: what goes over a pipe. ``worker``: one process, asked one question at a time. ``serve``: the process's own
side. ``crew``: workers that wait for the next question. The audit trusts these four: they carry Z3's answers.

``jobs``: workers that start processes of their own, and the crew of those; one is forked from a process that has loaded
what it needs. ``tasks``: a function called of many items at once. ``isolated``: one call in a copy of this
process.
"""
