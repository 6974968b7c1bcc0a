"""How often a first answer is proved, and what it costs compared with other allocators."""
