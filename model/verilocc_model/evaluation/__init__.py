"""How often a first answer is proved, what it costs, and against whom."""
