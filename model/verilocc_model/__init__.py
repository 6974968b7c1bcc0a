"""The learned allocator: encoding, language model, decoding, training and evaluation (docs/guide/model.md)."""
