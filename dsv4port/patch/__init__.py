"""Patch files: bytes in, values out, and back to the same bytes. No I/O."""
