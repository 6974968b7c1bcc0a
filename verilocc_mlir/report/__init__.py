"""What one run found, as data (``model``), JSON (``json``, ``schema.json``) and text (``text``)."""
