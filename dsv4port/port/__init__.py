"""Carry patches to another tree: merge, prove the place, say why where it cannot."""
