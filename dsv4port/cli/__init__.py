"""The command line: one module per command, arguments to one library call to output.

Nothing else in the package prints. A command returns a :class:`~dsv4port.cli.render.Reply`; main
prints it, as text or as one JSON object, and so it does with every error.
"""
