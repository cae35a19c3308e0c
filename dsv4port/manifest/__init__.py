"""YAML in, frozen validated values out: pins, patchsets, series, stacks and locks.

Every error that comes from a file is a :class:`~dsv4port.errors.ManifestError` whose message
starts with ``file:line:`` and names the key.
"""
