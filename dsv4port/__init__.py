"""Apply, prove and carry patch stacks on pinned vLLM releases."""

__version__ = "0.1.0"
