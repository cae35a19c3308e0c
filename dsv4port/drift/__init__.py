"""What changed in the interfaces between two pins, and which of it concerns a series.

``facts`` of one file -> ``index`` of one tree -> ``compare`` two trees -> ``match`` with the
``uses`` of a series -> findings. Only ``store``, ``build`` and ``series`` touch disk or git.
"""
