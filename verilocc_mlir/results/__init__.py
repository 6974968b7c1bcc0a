"""What a run has to say, as frozen data, one module for each command, most with their JSON form.

``documents`` has the JSON forms of what a compile loads without them, and the schemas of all.

Everything that produces or shows a result imports it from here. Nothing here draws, and nothing here decides.
"""
