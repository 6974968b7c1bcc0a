"""What ``verilocc audit`` found: data (``model``), text, JSON (``audit.schema.json``), SARIF 2.1.0 and HTML."""
