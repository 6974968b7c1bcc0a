"""What ``verilocc allocate`` got: data (``model``), JSON (``allocate.schema.json``) and text."""
