"""Many compilations: inputs to outputs (``plan``), jobs and who does them (``jobs``, ``local``), what is done already
(``journal``), and the run itself (``run``). docs/guide/batches.md has the formats and what they guarantee."""
