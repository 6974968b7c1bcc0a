"""Many compilations: jobs and who does them (``jobs``, ``executors``); inputs to outputs, what is done already, and the
run itself (``run``). docs/guide/batches.md has the formats and what they guarantee."""
