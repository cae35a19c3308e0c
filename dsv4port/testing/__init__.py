"""A patchset's regression tests on a patched tree."""
