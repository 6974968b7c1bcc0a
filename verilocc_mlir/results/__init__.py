"""What a run has to say, as frozen data, one module for each command; ``documents`` are their JSON forms.

Everything that produces or shows a result imports it from here. Nothing here draws, and nothing here decides.
"""
