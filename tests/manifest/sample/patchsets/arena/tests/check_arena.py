"""Named by the sample manifest; never run."""
