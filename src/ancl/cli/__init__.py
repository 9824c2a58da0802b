"""The command line: the only place that sees argv.

Modules that hold commands import no torch, so that ``ancl --help`` answers at once; what they
need is imported when a command runs.
"""
